"""`allneg export`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import PATH, json_option, run_argument
from allneg.cli.output import json_document


@click.command()
@run_argument
@click.option(
    "--out",
    type=PATH,
    required=True,
    help="A new .safetensors file for the best weights, or a new folder for the whole run.",
)
@json_option
def command(run: Path, out: Path, as_json: bool) -> None:
    """Join the shards of RUN, as if one process had trained it.

    Rows are copied in blocks, so the tables need not fit in memory.
    """
    from allneg.runs import Run
    from allneg.runs.export import export

    export(Run.open(run), out)
    if as_json:
        json_document({"run": str(run), "out": str(out)})
    else:
        print(out)
