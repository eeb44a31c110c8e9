"""`allneg data`: list, download, check and split knowledge graphs."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allneg.cli import options
from allneg.cli.output import json_document, table
from allneg.errors import DataError, UsageError, close_names, counted
from allneg.terminal import note

if TYPE_CHECKING:
    from allneg.graph.check import Check


@click.group()
def data_command() -> None:
    """List, download, check and split knowledge graphs."""


@data_command.command("list")
@options.as_json
def list_command(as_json: bool) -> None:
    """List the known datasets and where they are stored."""
    from allneg.graph.datasets import KNOWN_NAMES

    sets = [_described(name) for name in KNOWN_NAMES]
    if as_json:
        json_document({"sets": sets})
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

    if (known := DATASETS.get(name)) is not None:
        counts = {"entities": known.n_entities, "relations": known.n_relations}
        counts |= {split: content.lines for split, content in known.files.items()}
        about = known.about
    else:
        graph = read_graph(name)
        counts = {"entities": graph.n_entities, "relations": graph.n_relations}
        counts |= {split: len(graph.split(split)) for split in SPLITS}
        about = "countries, their cities, languages, currencies and neighbours"
    return {"name": name, **counts, "where": dataset_location(name), "about": about}


@data_command.command("get")
@click.argument("name")
@options.as_json
def get_command(name: str, as_json: bool) -> None:
    """Download the dataset NAME if it is missing, check it, and print where it is."""
    from allneg.graph import datasets
    from allneg.paths import is_offline

    known = datasets.KNOWN_NAMES
    if name not in known:
        close = close_names(name, known)
        raise DataError(f"no known dataset is called {name!r}{close}; known: {', '.join(known)}")
    where = datasets.dataset_location(name)
    if name not in datasets.PACKAGED:
        if where is None and not is_offline():
            note(f"downloading {name}")
        path, notes = datasets.find_dataset(name)
        where = str(path)
        note("\n".join(notes))
    if as_json:
        json_document({"name": name, "where": where})
    else:
        click.echo(f"{name}: {where}")


@data_command.command("check")
@click.argument("source", metavar="PATH_OR_NAME")
@click.option("--strict", is_flag=True, help="Exit with code 3 if splits share triples.")
@options.keep
@options.weight
@options.settings
@options.as_json
def check_command(
    source: str,
    strict: bool,
    keep: str | None,
    weight: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Count the triples of PATH_OR_NAME, and report leaks and overlaps between splits."""
    from allneg.graph.check import check
    from allneg.graph.clean import duplicates_note
    from allneg.graph.read import read_graph
    from allneg.recipe import Recipe

    flags = {"data.keep_relations": keep, "data.weight": weight}
    given = options.with_flags(settings, flags)
    data = Recipe().with_settings(given).data
    # Duplicates are kept here to count them. The notes describe training.
    graph = read_graph(source, replace(data, keep_duplicates=True))
    found = check(graph)
    for text in graph.notes:
        for split, count in found.duplicates.items() if not data.keep_duplicates else ():
            kept, removed = (duplicates_note(count, split, kept) for kept in (True, False))
            text = text.replace(kept, removed)
        note(text)
    if as_json:
        json_document(found.to_json())
    else:
        _print(found)
    if strict and any(found.overlaps.values()):
        shared = ", ".join(f"{pair} {count:,}" for pair, count in found.overlaps.items() if count)
        raise DataError(
            f"{source}: splits share triples ({shared}); remove them from one of the splits"
        )


def _print(found: Check) -> None:
    graph = found.graph
    by_split = [found.triples, found.duplicates, found.self_loops]
    by_split += [found.unseen_triples, found.leaked]
    table(
        f"{graph.name}: {counted(graph.n_entities, 'entity')}, "
        f"{counted(graph.n_relations, 'relation')}",
        ("split", "triples#", "duplicates#", "head = tail#", "not in train#", "leaked by train#"),
        [(split, *(counts.get(split) for counts in by_split)) for split in found.triples],
    )
    click.echo(
        f"not in train: triples with one of the {counted(found.unseen_entities, 'entity')} or "
        f"{counted(found.unseen_relations, 'relation')} that are missing from train\n"
        "leaked by train: train connects the same entities by one of the relations below\n"
    )
    table("Triples in two splits", ("splits", "triples#"), found.overlaps.items())
    kinds = dict(zip(graph.vocabulary.relations, graph.categories, strict=True))
    rows = [
        (graph.shown(name), kinds[name], *counts.values())
        for name, counts in found.by_relation.items()
    ]
    columns = ("relation", "heads-tails", *(f"{split}#" for split in found.triples))
    table("Triples by relation", columns, rows, most=20)
    categories = found.category_counts().items()
    table("Relations by category", ("heads-tails", "relations#"), categories)
    for title, overlaps in (
        ("Inverse relations", found.inverse),
        ("Symmetric relations", found.symmetric),
        ("Duplicate relations", found.duplicate_relations),
    ):
        if overlaps:
            rows = [astuple(overlap) for overlap in overlaps]
            table(title, ("relation", "other", "triples#", "share#"), rows, most=10)
        else:
            click.echo(f"{title}: none")


@data_command.command("split")
@click.argument("file", type=options.PATH)
@click.option("--out", type=options.PATH, required=True, help="The folder; it must not exist.")
@click.option("--valid", "valid_share", type=float, help="Share of valid. Default: 0.1")
@click.option("--test", "test_share", type=float, help="Share of test. Default: 0.1")
@click.option("--seed", type=int, help="Seed of the split.")
@click.option(
    "--share",
    "shares",
    multiple=True,
    metavar="RELATION=VALID,TEST",
    help="Other shares for one relation; 0,0 keeps it in train. May be repeated.",
)
@options.settings
@options.as_json
def split_command(
    file: Path,
    out: Path,
    valid_share: float | None,
    test_share: float | None,
    seed: int | None,
    shares: tuple[str, ...],
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Split FILE into train, valid and test.

    A hash of each triple decides its split. If you append lines to FILE and split it again, the
    earlier triples stay in their splits. Every entity and relation occurs in train.
    """
    from allneg.graph.graph import SPLITS
    from allneg.graph.split_file import split_file
    from allneg.recipe import Recipe

    flags = {
        "data.valid_share": valid_share, "data.test_share": test_share, "data.split_seed": seed,
    }  # fmt: skip
    data = Recipe().with_settings(options.with_flags(settings, flags)).data
    graph = split_file(file, out, data, dict(map(_relation_share, shares)))
    for text in graph.notes:
        note(text)
    counts = {split: len(graph.split(split)) for split in SPLITS}
    if as_json:
        json_document({"folder": str(out), "triples": counts, "notes": list(graph.notes)})
        return
    total = sum(counts.values())
    rows = [(split, count, count / total) for split, count in counts.items()]
    table(str(out), ("split", "triples#", "share#"), rows)


def _relation_share(text: str) -> tuple[str, tuple[float, float]]:
    # A name may contain an equals sign.
    relation, _, numbers = text.rpartition("=")
    try:
        valid, test = map(float, numbers.split(","))
    except ValueError:
        valid = test = -1.0
    if not relation or not (min(valid, test) >= 0 and valid + test < 1):
        raise UsageError(
            f"--share {text}: write RELATION=VALID,TEST, such as borders=0.1,0.2; "
            "shares are at least 0, and less than 1 together"
        )
    return relation, (valid, test)
