"""The graph in a run's folder: names and triples, with checksums in run.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from allneg.errors import DataError, RunError, printable
from allneg.graph.graph import SPLITS, Graph, Vocabulary
from allneg.graph.mapped import MappedNames
from allneg.runs import files

_TRIPLES = "triples.safetensors"
_FILES = ("entities.txt", "relations.txt", _TRIPLES)
_LARGE = 1 << 25  # bytes; a larger file of names stays on the disk


def write_graph(folder: Path, graph: Graph) -> dict[str, Any]:
    """Write a graph's files; their checksums, which belong in run.json."""
    _check_writable(graph)
    for kind in ("entities", "relations"):
        names = getattr(graph.vocabulary, kind)
        files.write_text(folder / f"{kind}.txt", "".join(f"{name}\n" for name in names))
    splits = {name: torch.from_numpy(graph.split(name)) for name in SPLITS}
    if not isinstance(graph.train, np.memmap):
        # Half the bytes. The triples of a large graph are mapped, and stay 64 bits wide.
        splits = {name: triples.to(torch.int32) for name, triples in splits.items()}
    files.write_tensors(folder / _TRIPLES, splits)
    return {name: files.checksum(folder / name) for name in _FILES}


def read_graph(folder: Path) -> Graph:
    """The graph of a run, after checking that files have their checksums and ids have names."""
    about = files.read_json(folder / "run.json")
    recorded = about.get("files", {})  # the first runs have none
    if not files.are_checksums(recorded):
        raise RunError(f"{folder / 'run.json'}: does not list the run's files; damaged")
    files.check_files(folder, {name: recorded[name] for name in _FILES if name in recorded})
    names = Vocabulary(
        _read_names(folder / "entities.txt"), tuple(_read_names(folder / "relations.txt"))
    )
    splits = files.read_tensors(folder / _TRIPLES)
    missing = [name for name in SPLITS if name not in splits]
    if missing:
        raise RunError(f"{folder / _TRIPLES}: has no split {missing[0]}")
    # int64 triples are not copied: they stay on the disk until they are used.
    train, valid, test = (splits[name].numpy().astype(np.int64, copy=False) for name in SPLITS)
    graph = Graph(about["data"], names, train, valid, test)
    if not _has_valid_ids(graph):
        raise RunError(f"{folder / _TRIPLES}: has ids that the vocabulary does not have; damaged")
    return graph


def _check_writable(graph: Graph) -> None:
    """Raise a `DataError` if a graph made in Python could not be read again or trained on."""
    vocabulary = graph.vocabulary
    for kind, names in (("entities", vocabulary.entities), ("relations", vocabulary.relations)):
        if isinstance(names, MappedNames):
            continue  # checked when they were numbered
        if len(set(names)) != len(names):
            raise DataError(f"{graph.name}: two {kind} have the same name")
        if bad := next((name for name in names if "\n" in name), None):
            raise DataError(f"{graph.name}: {printable(bad)} has a line feed; rename it")
    if not _has_valid_ids(graph):
        raise DataError(f"{graph.name}: triples must be (n, 3) ids of its entities and relations")
    if not len(graph.train):
        raise DataError(f"{graph.name}: train is empty; add triples to it")


def _read_names(path: Path) -> Sequence[str]:
    # Many names are not read one by one; the checksum shows that they are unchanged.
    if path.is_file() and path.stat().st_size > _LARGE:
        return MappedNames.open(path)
    # Only a line feed ends a name: other characters that split lines may be part of one.
    try:
        names = path.read_bytes().decode().split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from None
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RunError(f"{path}: {printable(twice)} occurs twice; the file is damaged")
    return tuple(names)


def _has_valid_ids(graph: Graph) -> bool:
    sizes = (graph.n_entities, graph.n_relations, graph.n_entities)
    for triples in map(graph.split, SPLITS):
        if triples.ndim != 2 or triples.shape[1] != 3:
            return False
        if len(triples) and ((triples.min(0) < 0).any() or (triples.max(0) >= sizes).any()):
            return False
    return True
