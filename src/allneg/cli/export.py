"""`allneg export`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import json_option, run_argument
from allneg.cli.say import SCHEMA_VERSION, json_document


@click.command()
@run_argument
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="A new .safetensors file for the best weights, or a new folder for the whole run.",
)
@json_option
def command(run: Path, out: Path, as_json: bool) -> None:
    """Join RUN's shards, a block of rows at a time, as if one process had trained it."""
    from allneg.runs import Run
    from allneg.runs.export import export

    export(Run.open(run), out)
    if as_json:
        json_document({"schema_version": SCHEMA_VERSION, "run": str(run), "out": str(out)})
    else:
        print(out)
