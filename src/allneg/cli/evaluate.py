"""`allneg evaluate` and `allneg compare`: rank a split with the best weights of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import PATH, device_option, json_option, run_argument, split_option
from allneg.cli.output import json_document, table
from allneg.errors import counted

if TYPE_CHECKING:
    from allneg.evaluation.ranks import Ranking
    from allneg.runs import Run


@click.command()
@run_argument
@split_option
@click.option(
    "--protocol",
    type=click.Choice(["allneg", "kbc", "libkge", "pykeen"], case_sensitive=False),
    default="allneg",
    show_default=True,
    help="Whose rules for ties, filters and unseen entities.",
)
@device_option
@json_option
def evaluate_command(
    run: Path, split: str, protocol: str, device: str | None, as_json: bool
) -> None:
    """Rank a split with the best weights of RUN and print the report."""
    from allneg.cli.reports import print_report
    from allneg.evaluation import Report
    from allneg.runs import Run

    opened = Run.open(run)
    report = Report.of(_ranked(opened, split, device, protocol), opened.graph)
    print_report(report, opened, as_json)


@click.command()
@click.argument("one", type=PATH, metavar="RUN")
@click.argument("other", type=PATH, metavar="RUN")
@split_option
@device_option
@json_option
def compare_command(one: Path, other: Path, split: str, device: str | None, as_json: bool) -> None:
    """Test whether one RUN ranks better than the other.

    Both answer the same queries. The interval is a bootstrap over triples, and p is from a
    permutation test that flips signs; both use 10,000 samples.
    """
    from allneg.evaluation.compare import compare, same_data
    from allneg.runs import Run

    first, second = Run.open(one), Run.open(other)
    same_data((str(one), str(other)), (first.graph, second.graph))
    found = compare(_ranked(first, split, device), _ranked(second, split, device), first.graph)
    if as_json:
        json_document({"runs": [str(one), str(other)], **found.to_json()})
        return
    for letter, run, mrr in zip("AB", (one, other), found.mrr, strict=True):
        print(f"{letter}: {run}, {found.split} MRR {mrr:.4f}")
    whole = found.difference
    print(f"{whole.in_words('A', 'B')} ({counted(whole.triples, 'triple')}, both sides)")
    rows = [
        (
            relation,
            difference.triples,
            f"{difference.mean:+.4f}",
            f"{difference.low:+.4f} to {difference.high:+.4f}",
            difference.p,
            found.adjusted[relation],
        )
        for relation, difference in sorted(
            found.by_relation.items(), key=lambda item: -item[1].triples
        )
    ]
    columns = ("relation", "triples#", "A - B#", "95 %", "p#", "adjusted p#")
    table("by relation", columns, rows, most=20)
    print("adjusted p: corrected for the number of relations (Benjamini and Hochberg)")


def _ranked(run: Run, split: str, device: str | None, protocol: str = "allneg") -> Ranking:
    from allneg.cli.reports import note_if_unfinished
    from allneg.evaluation import PROTOCOLS
    from allneg.evaluation.ranks import rank
    from allneg.hardware import find_device, trouble_named

    chosen, block = find_device(device or "auto"), run.recipe.evaluation.block
    with trouble_named(chosen):
        tables = run.tables().to(chosen)
        note_if_unfinished(run)
        return rank(run.model, tables, run.graph, split, PROTOCOLS[protocol], block)
