"""`allneg verify`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import json_option, run_argument
from allneg.cli.output import json_document, table
from allneg.errors import RunError


@click.command()
@run_argument
@click.option("--rank", is_flag=True, help="Also rank again, and compare with the report.")
@json_option
def command(run: Path, rank: bool, as_json: bool) -> None:
    """Check sizes, SHA-256, shapes, names and ids of all files of RUN; exit with 4 on errors."""
    from allneg.runs.verify import verify

    checks = verify(run, rank)
    failed = [check for check in checks if check.wrong is not None]
    if as_json:
        results = [check.to_json() for check in checks]
        json_document({"run": str(run), "whole": not failed, "checks": results})
    else:
        rows = [(check.what, check.wrong or "ok") for check in checks]
        table(str(run), ("checked", "result"), rows)
    if failed:
        raise RunError(f"{run}: {len(failed)} of {len(checks)} checks failed")
