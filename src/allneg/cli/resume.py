"""`allneg resume`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import (
    json_option,
    mesh_option,
    parent_option,
    quiet_option,
    run_argument,
)


@click.command()
@run_argument
@mesh_option
@json_option
@quiet_option
@parent_option
def command(run: Path, mesh: str | None, as_json: bool, quiet: bool, parent: int | None) -> None:
    """Go on with RUN from its last checkpoint, as if it had never stopped."""
    from allneg.cli.progress import watched
    from allneg.cli.reports import print_report
    from allneg.cli.say import note, speaks
    from allneg.cli.workers import with_parent
    from allneg.runs import Run
    from allneg.training.train import resume

    opened = Run.open(run)
    if not opened.finished:
        with watched(quiet) as (callbacks, stopped_by):
            stopped = with_parent(stopped_by, parent)
            resume(run, mesh=mesh, callbacks=callbacks, stopped_by=stopped)
    elif speaks():
        note("it is finished already")
    if speaks():
        print_report(opened, as_json)
