"""`allneg explore`."""

import ipaddress
import os
import signal
import threading
import webbrowser
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from allneg.cli import options
from allneg.errors import Interrupted, UsageError, extra, printable
from allneg.terminal import note


@click.command()
@click.argument("runs", nargs=-1, required=True, type=options.PATH, metavar="RUN…")
@click.option(
    "--labels", type=options.PATH, help="A file of lines: name, tab, readable label; also .gz, .xz."
)
@click.option("--audit", type=options.PATH, help="A .tsv, .csv or .jsonl file of `allneg audit`.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 chooses a free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="A host name that browsers may use for this machine. May be repeated.",
)
@click.option("--no-browser", is_flag=True, help="Do not open the page in a browser.")
@options.device
def explore_command(
    runs: tuple[Path, ...],
    labels: Path | None,
    audit: Path | None,
    port: int,
    host: str,
    allowed: tuple[str, ...],
    no_browser: bool,
    device: str,
) -> None:
    """Open a web page to query and compare RUNs and to see their facts and metrics."""
    _check_options(host, allowed)
    with extra("serve", "the explorer"):
        from allneg.predict.lookup import read_labels
        from allneg.serve.app import make_app
        from allneg.serve.loaded_run import load_runs
        from allneg.serve.review import read_suspicious
        from allneg.serve.server import LOOPBACK, listen, serve
        from allneg.serve.workers import Workers

    with listen(host, port) as listener:
        suspicious = read_suspicious(audit) if audit else []
        loaded = load_runs(runs, read_labels(labels) if labels else {}, device)
        workers = Workers()
        shown = allowed[0] if allowed and not _is_loopback(host) else host
        shown = f"[{shown}]" if ":" in shown else shown
        # The app and the signal handlers are ready before the page is announced.
        hosts = list(dict.fromkeys([*LOOPBACK, shown, *allowed]))
        app = make_app(loaded, workers, hosts, suspicious)
        url = f"http://{shown}:{listener.getsockname()[1]}/"
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)
        try:
            note(f"explorer: {url} (Ctrl-C ends it)")
            if not no_browser:
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
            serve(app, listener)
        except Interrupted as end:
            if not workers.stop(seconds=1):
                # Python would wait for the running thread, perhaps for minutes.
                note(f"allneg: {end}")
                os._exit(end.exit_code)
            raise


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted("the explorer has stopped", number)


def _check_options(host: str, allowed: tuple[str, ...]) -> None:
    """Check that other machines have a host name to use."""
    for name in allowed:
        if not name or any(c in name for c in "/:@ ") or not name.isprintable():
            raise UsageError(f"--allow-host {printable(name)}: expected a plain host name")
    if _is_loopback(host):
        return
    if not allowed:
        raise UsageError(f"--host {host} admits other machines; add --allow-host NAME")
    note(f"explorer: listens on {host}: everyone who reaches this machine can query these runs")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
