"""`allneg explore`."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import signal
import threading
import webbrowser
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from allneg.cli.options import device_option
from allneg.cli.output import note
from allneg.errors import Interrupted, RecipeError, printable


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN…")
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    help="A file of lines name, tab, label for entities whose names are ids; also .gz or .xz.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers may call this machine. May be repeated.",
)
@click.option("--no-browser", is_flag=True, help="Do not open the page.")
@device_option
def command(
    runs: tuple[Path, ...],
    labels: Path | None,
    port: int,
    host: str,
    allowed: tuple[str, ...],
    no_browser: bool,
    device: str | None,
) -> None:
    """Open a page on RUNs: ask them, compare them, see what they know."""
    _check(host, allowed)
    from allneg.serving.app import make_app
    from allneg.serving.guard import LOOPBACK
    from allneg.serving.labels import read_labels
    from allneg.serving.listen import listening
    from allneg.serving.opened import open_runs
    from allneg.serving.server import serve
    from allneg.serving.workers import Workers

    with listening(host, port) as listener:
        models = open_runs(runs, read_labels(labels) if labels else {}, device or "auto")
        workers = Workers()
        # Made before the page is announced: from then on a signal ends the service in order.
        shown = allowed[0] if allowed and not _is_loopback(host) else host
        shown = f"[{shown}]" if ":" in shown else shown
        app = make_app(models, workers, list(dict.fromkeys([*LOOPBACK, shown, *allowed])))
        url = f"http://{shown}:{listener.getsockname()[1]}/"
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
        try:
            note(f"explorer: {url} (Ctrl-C ends it)")
            if not no_browser:
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
            serve(app, listener)
        except Interrupted as end:
            if not workers.stop(seconds=3):
                # A thread in the middle of its work would fall over a process that is torn down.
                note(f"allneg: {end}")
                os._exit(end.exit_code)
            raise


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted("the explorer has stopped", number)


def _check(host: str, allowed: tuple[str, ...]) -> None:
    """The extra is there, and who listens to more than this machine says by which name."""
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise RecipeError(
            f"the explorer needs {' and '.join(missing)}; install allneg[serve] to have them"
        )
    for name in allowed:
        if not name or any(c in name for c in "/:@ ") or not name.isprintable():
            raise RecipeError(f"--allow-host {printable(name)}: a plain host name is expected")
    if _is_loopback(host):
        return
    if not allowed:
        raise RecipeError(
            f"--host {host} lets other machines in; say by which name with --allow-host NAME"
        )
    note(f"explorer: listens on {host}: whoever reaches this machine can ask these runs")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
