"""`allneg resume`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import json_option, parent_option, quiet_option, run_argument


@click.command()
@run_argument
@json_option
@quiet_option
@parent_option
def command(run: Path, as_json: bool, quiet: bool, parent: int | None) -> None:
    """Go on with RUN from its last checkpoint, as if it had never stopped."""
    from allneg.cli.progress import watched
    from allneg.cli.reports import print_report
    from allneg.cli.say import note
    from allneg.cli.workers import with_parent
    from allneg.run import Run
    from allneg.training import fit

    opened = Run.open(run)
    if not opened.finished:
        with watched(quiet) as (watch, stopped_by), opened.held():
            fit(opened, watch, with_parent(stopped_by, parent))
    else:
        note("it is finished already; this is its report")
    print_report(opened, as_json)
