"""`allneg verify`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import json_option, run_argument
from allneg.cli.say import SCHEMA_VERSION, json_document, table
from allneg.errors import RunError


@click.command()
@run_argument
@click.option("--rank", is_flag=True, help="Also rank again, and compare with the report.")
@json_option
def command(run: Path, rank: bool, as_json: bool) -> None:
    """Check every file of RUN: sizes, SHA-256, shapes, names, ids; exit with 4 if one is wrong."""
    from allneg.runs.verify import verify

    checks = verify(run, rank)
    wrong = [check for check in checks if check.wrong is not None]
    if as_json:
        about = {"schema_version": SCHEMA_VERSION, "run": str(run), "whole": not wrong}
        json_document({**about, "checks": [check.to_json() for check in checks]})
    else:
        rows = [(check.what, check.wrong or "as it should be") for check in checks]
        table(str(run), ("checked", "found"), rows)
    if wrong:
        raise RunError(f"{run}: {len(wrong)} of {len(checks)} checks failed")
