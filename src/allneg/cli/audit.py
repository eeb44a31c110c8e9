"""`allneg audit`: the facts of a graph that look wrong, with reasons, and near-duplicates."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from allneg.cli import options
from allneg.cli.output import echo, json_document, table
from allneg.errors import counted

_SHOWN = 10  # rows of a printed table


@click.command()
@click.argument("data")
@options.model
@options.recipe
@options.settings
@click.option(
    "--folds", type=click.IntRange(2), default=4, show_default=True, help="Number of folds."
)
@options.top("facts", 1000)
@click.option(
    "--out", type=options.PATH, required=True, help="A .tsv, .csv, .jsonl or .parquet file."
)
@options.device_setting
@options.as_json
@options.quiet
def audit_command(
    data: str,
    model: str | None,
    recipe: str | None,
    settings: tuple[str, ...],
    folds: int,
    top: int,
    out: Path,
    device: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the facts of DATA that look wrong to a file, most suspicious first.

    The facts of each fold are scored by a model that was trained on the other folds. Columns:
    head, relation, tail, probability, head_rank, tail_rank, expected, reason. Near-duplicate
    entities and relations are written to another file, NAME-duplicates. Run the same command
    again to continue after an interruption.
    """
    from allneg.auditing.audit import SuspiciousFact, audit
    from allneg.auditing.duplicates import Duplicate
    from allneg.cli.reports import training_progress
    from allneg.predict.fact_files import check_new_file, write_rows

    other = out.with_name(f"{out.stem}-duplicates{out.suffix}")
    for path in (out, other):
        check_new_file(path)
    given = options.with_flags(settings, {"hardware.device": device})
    began, folder = time.monotonic(), out.with_name(out.name + ".folds")
    with training_progress(quiet) as (callbacks, stopped_by):
        found = audit(
            data, model=model, recipe=recipe, settings=given, folds=folds, top=top, out=folder,
            callbacks=callbacks, stopped_by=stopped_by,
        )  # fmt: skip
    write_rows(other, Duplicate, found.duplicates)
    write_rows(out, SuspiciousFact, found.facts)
    shutil.rmtree(folder)
    seconds = time.monotonic() - began
    if as_json:
        numbers = {"judged": found.n_facts, "facts": len(found.facts), "seconds": seconds}
        as_dicts = [dict(vars(pair)) for pair in found.duplicates]
        json_document({"data": data, "out": str(out), **numbers, "duplicates": as_dicts})
        return
    facts = [
        (fact.head, fact.relation, fact.tail, fact.probability, fact.expected)
        for fact in found.facts[:_SHOWN]
    ]
    table("most suspicious", ("head", "relation", "tail", "probability#", "expected"), facts)
    if found.duplicates:
        pairs = [(p.kind, p.first, p.second, p.similarity) for p in found.duplicates[:_SHOWN]]
        table("near-duplicates", ("", "first", "second", "similarity#"), pairs)
    counts = f"{counted(len(found.facts), 'fact')} of {found.n_facts:,}"
    echo(f"{counts}, {counted(len(found.duplicates), 'near-duplicate pair')}, in {seconds:.1f} s")
    echo(str(out))
