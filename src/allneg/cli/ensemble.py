"""`allneg ensemble`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli import options


@click.command()
@click.argument("runs", nargs=-1, type=options.PATH, metavar="RUN RUN…")
@click.option("--out", type=options.PATH, required=True, help="A new folder for the ensemble.")
@click.option(
    "--counts",
    is_flag=True,
    help="One more member: entities that already have their only fact of a relation.",
)
@options.device
@options.as_json
def ensemble_command(
    runs: tuple[Path, ...], out: Path, counts: bool, device: str, as_json: bool
) -> None:
    """Combine RUNs on the same data into one, with weights per relation chosen on valid.

    The new run holds copies of the members' best weights. Other commands use it like any run.
    """
    from allneg.cli.reports import note_if_unfinished, print_report
    from allneg.runs import Run
    from allneg.runs.ensemble import ensemble

    if len(runs) < (1 if counts else 2):
        raise click.UsageError("give at least two runs, or one run and --counts")
    if len({folder.resolve() for folder in runs}) < len(runs):
        raise click.UsageError("a run is given twice; give each RUN once")
    for folder in runs:
        note_if_unfinished(Run.open(folder))
    made = ensemble(runs, out=out, device=device, counts=counts)
    print_report(made.report, made, as_json)
