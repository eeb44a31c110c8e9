"""`allneg data`: list, download and check knowledge graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

import click

from allneg.cli.options import json_option, set_option
from allneg.cli.output import SCHEMA_VERSION, json_document, note, table
from allneg.errors import DataError, close_names, counted

if TYPE_CHECKING:
    from allneg.graph.check import Check

_MOST_ROWS = 10


@click.group()
def command() -> None:
    """List, download and check knowledge graphs."""


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the datasets with known names, and where they are."""
    from allneg.graph.datasets import KNOWN_NAMES

    sets = [_described(name) for name in KNOWN_NAMES]
    if as_json:
        json_document({"schema_version": SCHEMA_VERSION, "sets": sets})
        return
    columns = ("entities", "relations", "train", "valid", "test")
    rows = [
        (data["name"], *(data[column] for column in columns), data["where"] or "to be downloaded")
        for data in sets
    ]
    table("Known datasets", ("name", *(f"{column}#" for column in columns), "where"), rows)


def _described(name: str) -> dict[str, Any]:
    from allneg.graph.datasets import DATASETS, dataset_location
    from allneg.graph.graph import SPLITS
    from allneg.graph.read import read_graph

    if name in DATASETS:
        known = DATASETS[name]
        entities, relations, about = known.n_entities, known.n_relations, known.about
        triples = {split: content.lines for split, content in known.files.items()}
    else:
        graph = read_graph(name)
        entities, relations = graph.n_entities, graph.n_relations
        about = "countries, their cities, languages, currencies and neighbours"
        triples = {split: len(graph.split(split)) for split in SPLITS}
    counts = {"entities": entities, "relations": relations, **triples}
    return {"name": name, **counts, "where": dataset_location(name), "about": about}


@command.command("get")
@click.argument("name")
@json_option
def get_command(name: str, as_json: bool) -> None:
    """Download the dataset NAME if it is missing, check it, and print where it is."""
    from allneg.graph.datasets import (
        KNOWN_NAMES,
        PACKAGED,
        dataset_location,
        find_dataset,
        is_offline,
    )

    if name not in KNOWN_NAMES:
        known = ", ".join(KNOWN_NAMES)
        raise DataError(
            f"no known dataset is called {name!r}{close_names(name, KNOWN_NAMES)}; known: {known}"
        )
    where = dataset_location(name)
    if name not in PACKAGED:
        if where is None and not is_offline():
            note(f"downloading {name}")
        path, notes = find_dataset(name)
        where = str(path)
        for text in notes:
            note(text)
    if as_json:
        json_document({"schema_version": SCHEMA_VERSION, "name": name, "where": where})
    else:
        click.echo(f"{name}: {where}")


@command.command("check")
@click.argument("source", metavar="PATH_OR_NAME")
@click.option("--strict", is_flag=True, help="Exit with 3 if splits share triples.")
@set_option
@json_option
def check_command(source: str, strict: bool, settings: tuple[str, ...], as_json: bool) -> None:
    """Count what PATH_OR_NAME contains, and report what could distort results."""
    from allneg.graph.check import check
    from allneg.graph.clean import duplicates_note
    from allneg.graph.read import read_graph
    from allneg.recipe import Recipe

    data = Recipe().with_settings(settings).data
    # Duplicates are kept here in order to count them. The notes describe training.
    graph = read_graph(source, replace(data, keep_duplicates=True))
    found = check(graph)
    for text in graph.notes:
        for split, count in found.duplicates.items() if not data.keep_duplicates else ():
            kept, removed = (duplicates_note(count, split, kept) for kept in (True, False))
            text = text.replace(kept, removed)
        note(text)
    if as_json:
        json_document({"schema_version": SCHEMA_VERSION, **found.to_json()})
    else:
        _print(found)
    if strict and any(found.overlaps.values()):
        shared = ", ".join(f"{pair} {count:,}" for pair, count in found.overlaps.items() if count)
        raise DataError(
            f"{source}: splits share triples ({shared}); remove them from one of the splits"
        )


def _print(found: Check) -> None:
    graph = found.graph
    table(
        f"{graph.name}: {counted(graph.n_entities, 'entity')}, "
        f"{counted(graph.n_relations, 'relation')}",
        ("split", "triples#", "duplicates#", "head = tail#", "not in train#", "leaked by train#"),
        [
            (
                split,
                count,
                found.duplicates[split],
                found.self_loops[split],
                found.unseen_triples.get(split),
                found.leaked.get(split),
            )
            for split, count in found.triples.items()
        ],
    )
    click.echo(
        f"not in train: triples with one of the {counted(found.unseen_entities, 'entity')} or "
        f"{counted(found.unseen_relations, 'relation')} that are missing from train\n"
        "leaked by train: train connects the same entities by one of the relations below\n"
    )
    table("Triples in two splits", ("splits", "triples#"), list(found.overlaps.items()))
    categories = list(found.category_counts().items())
    table("Relations by category", ("heads-tails", "relations#"), categories)
    columns = ("relation", "other", "triples#", "share#")
    _cut_table("Inverse relations", columns, [astuple(overlap) for overlap in found.inverse])
    symmetric = [astuple(overlap)[1:] for overlap in found.symmetric]
    _cut_table("Symmetric relations", ("relation", *columns[2:]), symmetric)
    duplicate = [astuple(overlap) for overlap in found.duplicate_relations]
    _cut_table("Duplicate relations", columns, duplicate)


def _cut_table(title: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    """Print the first rows of a table, and how many more there are."""
    if not rows:
        click.echo(f"{title}: none")
        return
    table(title, columns, rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        click.echo(f"… and {len(rows) - _MOST_ROWS:,} more; --json lists them all")
