"""`allneg compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import device_option, json_option
from allneg.cli.say import SCHEMA_VERSION, json_document, table
from allneg.errors import counted

if TYPE_CHECKING:
    from allneg.evaluation.compare import Comparison
    from allneg.evaluation.ranks import Ranking
    from allneg.runs import Run

_MOST_RELATIONS = 20


@click.command()
@click.argument("one", type=click.Path(path_type=Path), metavar="RUN")
@click.argument("other", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "--split", type=click.Choice(["train", "valid", "test"], case_sensitive=False), default="test"
)
@device_option
@json_option
def command(one: Path, other: Path, split: str, device: str | None, as_json: bool) -> None:
    """Say whether one RUN ranks better than the other, and how sure that is.

    Both are asked the same queries. The interval is a bootstrap over triples, p a permutation
    test that flips signs; both draw 10,000 times.
    """
    from allneg.evaluation.compare import compare, same_data
    from allneg.runs import Run

    first, second = Run.open(one), Run.open(other)
    same_data((str(one), str(other)), (first.graph, second.graph))
    found = compare(_ranked(first, split, device), _ranked(second, split, device), first.graph)
    if as_json:
        about = {"schema_version": SCHEMA_VERSION, "runs": [str(one), str(other)]}
        json_document({**about, **found.to_json()})
    else:
        _print(found, (one, other))


def _ranked(run: Run, split: str, device: str | None) -> Ranking:
    from allneg.cli.reports import note_if_unfinished
    from allneg.evaluation import PROTOCOLS
    from allneg.evaluation.ranks import rank
    from allneg.hardware import find_device, trouble_named

    place, block = find_device(device or "auto"), run.recipe.evaluation.block
    with trouble_named(place):
        tables = run.tables().to(place)
        note_if_unfinished(run)
        return rank(run.model, tables, run.graph, split, PROTOCOLS["allneg"], block)


def _print(found: Comparison, runs: tuple[Path, Path]) -> None:
    whole = found.difference
    for letter, run, mrr in zip("AB", runs, found.mrr, strict=True):
        print(f"{letter}: {run}, {found.split} MRR {mrr:.4f}")
    print(f"{whole.in_words('A', 'B')} ({counted(whole.triples, 'triple')}, both sides)")
    ordered = sorted(found.by_relation.items(), key=lambda each: -each[1].triples)
    table(
        "by relation",
        ("relation", "triples#", "A less B#", "95 %", "p#", "adjusted p#"),
        [
            (
                name,
                each.triples,
                f"{each.mean:+.4f}",
                f"{each.low:+.4f} to {each.high:+.4f}",
                each.p,
                found.adjusted[name],
            )
            for name, each in ordered[:_MOST_RELATIONS]
        ],
    )
    if len(ordered) > _MOST_RELATIONS:
        print(f"and {counted(len(ordered) - _MOST_RELATIONS, 'relation')} more (--json has all)")
    print("adjusted p: for having looked at so many relations (Benjamini and Hochberg)")
