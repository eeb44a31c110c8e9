"""`allneg convert`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli import options
from allneg.cli.output import echo, json_document


@click.command()
@click.argument("vectors", type=options.PATH)
@click.option("--data", required=True, help="The graph: a known name, a file or a folder.")
@click.option("--model", required=True, metavar="NAME", help="Model of the vectors.")
@click.option("--out", type=options.PATH, required=True, help="A new folder for the run.")
@options.settings
@options.device
@options.as_json
def convert_command(
    vectors: Path,
    data: str,
    model: str,
    out: Path,
    settings: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """Make a run from VECTORS that another program has trained, such as PyKEEN.

    VECTORS is NAME.npy, next to NAME.relations.npy, or NAME.safetensors. The names of the
    rows are in VECTORS.entities.txt and VECTORS.relations.txt, one per line. The run is evaluated
    and can answer queries, but cannot be trained further. Pickled files are not read.
    """
    from allneg.cli.reports import print_report
    from allneg.exports.convert import convert

    run = convert(vectors, data, model=model, out=out, settings=settings, device=device)
    if run.has_report:
        print_report(run.report, run, as_json)
    elif as_json:
        json_document({"run": str(out)})
    else:
        echo(str(out))
