"""`allneg data`: list, get and check knowledge graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from allneg.cli.options import json_option, set_option
from allneg.cli.output import SCHEMA_VERSION, json_document, note, table
from allneg.errors import DataError, close_names, counted

if TYPE_CHECKING:
    from allneg.graph.check import Check
    from allneg.graph.mirrors import Echo

_MOST_ROWS = 10


@click.group()
def command() -> None:
    """List, get and check knowledge graphs."""


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """Say which sets are known by name, and where each is."""
    from allneg.graph.datasets import KNOWN_NAMES

    sets = [_described(name) for name in KNOWN_NAMES]
    if as_json:
        json_document({"schema_version": SCHEMA_VERSION, "sets": sets})
        return
    columns = ("entities", "relations", "train", "valid", "test")
    table(
        "Known by name",
        ("name", *(f"{column}#" for column in columns), "where"),
        [
            (each["name"], *(each[column] for column in columns), each["where"] or "to be fetched")
            for each in sets
        ],
    )


def _described(name: str) -> dict[str, Any]:
    from allneg.graph.benchmarks import DATASETS
    from allneg.graph.datasets import place
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
    return {"name": name, **counts, "where": place(name), "about": about}


@command.command("get")
@click.argument("name")
@json_option
def get_command(name: str, as_json: bool) -> None:
    """Make sure that the set NAME is on this machine, whole, and say where."""
    from allneg.graph.datasets import EMBEDDED, KNOWN_NAMES, find_dataset, place
    from allneg.graph.fetch import is_offline

    if name not in KNOWN_NAMES:
        known = ", ".join(KNOWN_NAMES)
        raise DataError(
            f"no known set is called {name!r}{close_names(name, KNOWN_NAMES)}; known: {known}"
        )
    where = place(name)
    if name not in EMBEDDED:
        if where is None and not is_offline():
            note(f"{name} is not here yet: fetching it")
        path, notes = find_dataset(name)
        where = str(path)
        for each in notes:
            note(each)
    if as_json:
        json_document({"schema_version": SCHEMA_VERSION, "name": name, "where": where})
    else:
        click.echo(f"{name}: {where}")


@command.command("check")
@click.argument("source", metavar="PATH_OR_NAME")
@click.option("--strict", is_flag=True, help="Exit with 3 when splits share triples.")
@set_option
@json_option
def check_command(source: str, strict: bool, settings: tuple[str, ...], as_json: bool) -> None:
    """Count what PATH_OR_NAME holds, and point out what would spoil a result."""
    from allneg.graph.check import check
    from allneg.graph.read import read_graph
    from allneg.recipe import Recipe

    data = Recipe().with_settings(settings).data
    # Duplicates are kept so that they can be counted here; training leaves them out.
    graph = read_graph(source, replace(data, keep_duplicates=True))
    found = check(graph)
    instead = {} if data.keep_duplicates else _as_in_training(found)
    for each in graph.notes:
        note(instead.get(each, each))
    if as_json:
        json_document({"schema_version": SCHEMA_VERSION, **found.to_json()})
    else:
        _print(found)
    if strict and found.overlapping:
        shared = ", ".join(f"{pair} {count:,}" for pair, count in found.overlaps.items() if count)
        raise DataError(
            f"{source}: splits share triples ({shared}); take them out of one of the two"
        )


def _as_in_training(found: Check) -> dict[str, str]:
    """The notes of duplicates that are kept here, and what training does with them."""
    from allneg.graph.read import duplicates_note

    return {
        duplicates_note(found.graph.name, count, split, kept=True): duplicates_note(
            found.graph.name, count, split, kept=False
        )
        for split, count in found.duplicates.items()
    }


def _print(found: Check) -> None:
    graph = found.graph
    table(
        f"{graph.name}: {counted(graph.n_entities, 'entity')}, "
        f"{counted(graph.n_relations, 'relation')}",
        ("split", "triples#", "duplicates#", "head = tail#", "not in train#", "told by train#"),
        [
            (
                split,
                count,
                found.duplicates[split],
                found.self_loops[split],
                found.unseen_triples.get(split),
                found.echoes.told.get(split),
            )
            for split, count in found.triples.items()
        ],
    )
    click.echo(
        f"not in train: triples with one of the {counted(found.unseen_entities, 'entity')} or "
        f"{counted(found.unseen_relations, 'relation')} that train does not have\n"
        "told by train: the same pair stands in train under one of the relations below\n"
    )
    table("Triples in two splits", ("splits", "triples#"), list(found.overlaps.items()))
    table(
        "Relations by category",
        ("heads-tails", "relations#"),
        list(found.category_counts().items()),
    )
    echoes, names = found.echoes, graph.vocabulary.relations
    columns = ("relation", "other", "triples#", "share#")
    _cut_table("Relations that mirror each other", columns, _rows(echoes.inverse, names))
    _cut_table(
        "Relations that mirror themselves",
        ("relation", *columns[2:]),
        [(first, *rest) for first, _, *rest in _rows(echoes.symmetric, names)],
    )
    _cut_table("Relations that repeat each other", columns, _rows(echoes.duplicate, names))


def _rows(echoes: Sequence[Echo], names: tuple[str, ...]) -> list[tuple[object, ...]]:
    return [(names[echo.first], names[echo.second], echo.triples, echo.share) for echo in echoes]


def _cut_table(title: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    """A table of the first rows, and a line that says how many more there are."""
    if not rows:
        click.echo(f"{title}: none")
        return
    table(title, columns, rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        click.echo(f"… and {len(rows) - _MOST_ROWS:,} more; --json lists them all")
