"""`allneg compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import PATH, device_option, json_option, split_option
from allneg.cli.output import json_document, relation_table
from allneg.errors import counted

if TYPE_CHECKING:
    from allneg.evaluation.ranks import Ranking
    from allneg.runs import Run


@click.command()
@click.argument("one", type=PATH, metavar="RUN")
@click.argument("other", type=PATH, metavar="RUN")
@split_option
@device_option
@json_option
def command(one: Path, other: Path, split: str, device: str | None, as_json: bool) -> None:
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
    relations = sorted(found.by_relation.items(), key=lambda item: -item[1].triples)
    relation_table(
        ("triples#", "A - B#", "95 %", "p#", "adjusted p#"),
        [
            (
                name,
                difference.triples,
                f"{difference.mean:+.4f}",
                f"{difference.low:+.4f} to {difference.high:+.4f}",
                difference.p,
                found.adjusted[name],
            )
            for name, difference in relations
        ],
    )
    print("adjusted p: corrected for the number of relations (Benjamini and Hochberg)")


def _ranked(run: Run, split: str, name: str | None) -> Ranking:
    from allneg.cli.reports import note_if_unfinished
    from allneg.evaluation import PROTOCOLS
    from allneg.evaluation.ranks import rank
    from allneg.hardware import device_errors, find_device

    device, block = find_device(name or "auto"), run.recipe.evaluation.block
    with device_errors(device):
        tables = run.tables().to(device)
        note_if_unfinished(run)
        return rank(run.model, tables, run.graph, split, PROTOCOLS["allneg"], block)
