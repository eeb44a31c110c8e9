"""Commands that rank a split: evaluate a run, compare two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from allneg.cli import options
from allneg.cli.output import echo, json_document, table
from allneg.errors import counted

if TYPE_CHECKING:
    from allneg.runs import Run


@click.command()
@options.any_run
@options.split
@click.option(
    "--protocol",
    type=click.Choice(["allneg", "kbc", "libkge", "pykeen"], case_sensitive=False),
    default="allneg",
    show_default=True,
    help="Rules for ties, filters and unseen entities.",
)
@options.within
@click.option("--relations", is_flag=True, help="Rank the relations of (head, ?, tail).")
@click.option("--queries", type=options.PATH, help="Rank the answers to the questions in a file.")
@options.search
@options.device
@options.as_json
def evaluate_command(
    run: Path,
    split: str,
    protocol: str,
    within: str | None,
    relations: bool,
    queries: Path | None,
    device: str,
    as_json: bool,
    **how: Any,
) -> None:
    """Rank a split with the best weights of RUN and print the report.

    --beam, --norm, --scores and --facts are for --queries; the facts are those of the splits
    before --split.
    """
    kinds = (protocol != "allneg", relations, within is not None, queries is not None)
    if sum(kinds) > 1:
        raise click.UsageError("--protocol, --within, --relations and --queries exclude each other")
    source = click.get_current_context().get_parameter_source
    if queries is None and any(source(name) == ParameterSource.COMMANDLINE for name in how):
        raise click.UsageError("--beam, --norm, --scores and --facts need --queries")
    if how["facts"] and split == "train":
        raise click.UsageError("no split comes before train; give --split valid or test to --facts")
    if queries is not None:
        from allneg.cli.ask import evaluate_sets

        evaluate_sets(run, queries, split, device, as_json, **how)
        return
    from allneg.cli.reports import note_if_unfinished, print_report
    from allneg.runs import Run
    from allneg.runs.ranking import evaluate

    opened = Run.open(run)
    if relations:
        _evaluate_relations(opened, split, device, as_json)
        return
    report = evaluate(opened, split, protocol, device, within)
    note_if_unfinished(opened)
    print_report(report, opened, as_json)


@click.command()
@click.argument("one", type=options.PATH, metavar="RUN")
@click.argument("other", type=options.PATH, metavar="RUN")
@options.split
@options.device
@options.as_json
def compare_command(one: Path, other: Path, split: str, device: str, as_json: bool) -> None:
    """Test whether one RUN ranks better than the other.

    Both answer the same queries. The interval is a bootstrap over triples, and p comes from a
    permutation test that flips signs; both use 10,000 samples.
    """
    from allneg.cli.reports import note_if_unfinished
    from allneg.runs import Run
    from allneg.runs.ranking import compare

    runs = Run.open(one), Run.open(other)
    found = compare(*runs, split, device)
    for run in runs:
        note_if_unfinished(run)
    if as_json:
        json_document({"runs": [str(one), str(other)], **found.to_json()})
        return
    for letter, folder, mrr in zip("AB", (one, other), found.mrr, strict=True):
        echo(f"{letter}: {folder}, {found.split} MRR {mrr:.4f}")
    whole = found.difference
    print(f"{whole.in_words('A', 'B')} ({counted(whole.triples, 'triple')}, both sides)")
    rows = []
    for relation, at in sorted(found.by_relation.items(), key=lambda item: -item[1].triples):
        interval = f"{at.low:+.4f} to {at.high:+.4f}"
        adjusted = found.adjusted[relation]
        rows.append((relation, at.triples, f"{at.mean:+.4f}", interval, at.p, adjusted))
    columns = ("relation", "triples#", "A - B#", "95 %", "p#?", "adjusted p#")
    table("by relation", columns, rows, most=20)
    print("adjusted p: corrected for the number of relations (Benjamini and Hochberg)")


def _evaluate_relations(run: Run, split: str, device: str, as_json: bool) -> None:
    from allneg.cli.reports import cells, note_if_unfinished
    from allneg.evaluation import evaluate_relations
    from allneg.evaluation.report import by_heading
    from allneg.hardware import device_errors, find_device

    chosen = find_device(device)
    with device_errors(chosen):
        tables = run.tables().to(chosen)
        note_if_unfinished(run)
        block = run.recipe.evaluation.block
        found = evaluate_relations(run.model, tables, run.graph, split, block)
    if as_json:
        json_document({"run": str(run.folder), **found})
        return
    by_relation = sorted(found["by_relation"].items(), key=lambda item: -item[1]["count"])
    rows = [("all", *cells(found)), *((name, *cells(metrics)) for name, metrics in by_relation)]
    columns = ["", *(f"{name}#" for name in by_heading(found)), "queries#"]
    table(f"{run.graph.name}, {split}: {run.recipe.model.name}", columns, rows, most=40)
    rules = found["protocol"]
    echo(f"protocol {rules['name']}: {rules['in_words']}; {found['candidates']:,} candidates")
