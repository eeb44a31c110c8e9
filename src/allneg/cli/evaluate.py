"""`allneg evaluate`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import device_option, json_option, run_argument, split_option


@click.command()
@run_argument
@split_option
@click.option(
    "--protocol",
    "rules",
    type=click.Choice(["allneg", "kbc", "libkge", "pykeen"], case_sensitive=False),
    default="allneg",
    show_default=True,
    help="Whose rules for ties, filters and unseen entities.",
)
@device_option
@json_option
def command(run: Path, split: str, rules: str, device: str | None, as_json: bool) -> None:
    """Rank a split with the best weights of RUN and print the report."""
    from allneg.cli.reports import note_if_unfinished, print_report
    from allneg.evaluation import evaluate, protocol
    from allneg.hardware import device_errors, find_device
    from allneg.runs import Run

    opened, chosen = Run.open(run), find_device(device or "auto")
    block = opened.recipe.evaluation.block
    with device_errors(chosen):
        tables = opened.tables().to(chosen)
        note_if_unfinished(opened)
        report = evaluate(opened.model, tables, opened.graph, split, protocol(rules), block)
    print_report(report, opened, as_json)
