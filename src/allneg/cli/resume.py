"""`allneg resume`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import json_option, mesh_option, parent_option, quiet_option, run_argument


@click.command()
@run_argument
@mesh_option
@json_option
@quiet_option
@parent_option
def command(run: Path, mesh: str | None, as_json: bool, quiet: bool, parent: int | None) -> None:
    """Continue RUN from its last checkpoint.

    The result is bit-identical to that of an uninterrupted run.
    """
    from allneg.cli.output import is_rank_zero, note
    from allneg.cli.progress import training_progress
    from allneg.cli.reports import print_run
    from allneg.cli.workers import or_parent_ended
    from allneg.runs import Run
    from allneg.training.train import resume

    opened = Run.open(run)
    if not opened.finished:
        with training_progress(quiet) as (callbacks, stopped_by):
            stopped = or_parent_ended(stopped_by, parent)
            resume(run, mesh=mesh, callbacks=callbacks, stopped_by=stopped)
    elif is_rank_zero():
        note("the run is finished already")
    if is_rank_zero():
        print_run(opened, as_json)
