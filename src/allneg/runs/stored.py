"""The graph in a run's folder: names, triples, and the proof that they are the ones trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from allneg.errors import DataError, RunError, printable
from allneg.graph.graph import SPLITS, Graph, Triples
from allneg.graph.mapped import MappedNames
from allneg.graph.vocabulary import Vocabulary
from allneg.runs.files import (
    check_proof,
    is_proof,
    proof,
    read_json,
    read_tensors,
    write_tensors,
    write_text,
)

_TRIPLES = "triples.safetensors"
_LARGE = 1 << 25  # bytes of names, which then stay on the disk
_FILES = ("entities.txt", "relations.txt", _TRIPLES)


def write_graph(folder: Path, graph: Graph) -> dict[str, Any]:
    """Write a graph's files; the size and SHA-256 of each, which `read_graph` finds in run.json."""
    _refuse_if_odd(graph)
    write_text(folder / "entities.txt", _lines(graph.vocabulary.entities))
    write_text(folder / "relations.txt", _lines(graph.vocabulary.relations))
    splits = {name: torch.from_numpy(graph.split(name)) for name in SPLITS}
    if not isinstance(graph.train, np.memmap):
        # Half the bytes. Those of a large graph are mapped, and so stay what they are.
        splits = {name: each.to(torch.int32) for name, each in splits.items()}
    write_tensors(folder / _TRIPLES, splits)
    return {name: proof(folder / name) for name in _FILES}


def read_graph(folder: Path) -> Graph:
    """The graph of a run, checked: its ids fit its names, and its files are those written."""
    _check_proofs(folder)
    names = Vocabulary(_entities(folder / "entities.txt"), _names(folder / "relations.txt"))
    splits = read_tensors(folder / _TRIPLES)
    missing = [name for name in SPLITS if name not in splits]
    if missing:
        raise RunError(f"{folder / _TRIPLES}: no {missing[0]} in it")
    # Wide ones are not copied: they stay on the disk until somebody looks at them.
    train, valid, test = (splits[name].numpy().astype(np.int64, copy=False) for name in SPLITS)
    graph = Graph(read_json(folder / "run.json")["data"], names, train, valid, test)
    if not all(_in_vocabulary(graph.split(each), graph) for each in SPLITS):
        raise RunError(f"{folder / _TRIPLES}: ids that the vocabulary does not have; damaged")
    return graph


def _check_proofs(folder: Path) -> None:
    # Runs of the first days have no proofs.
    proofs = read_json(folder / "run.json").get("files", {})
    if not isinstance(proofs, dict) or not all(map(is_proof, proofs.values())):
        raise RunError(f"{folder / 'run.json'}: does not list the run's files; damaged")
    for name in _FILES:
        if name in proofs:
            check_proof(folder / name, proofs[name])


def _refuse_if_odd(graph: Graph) -> None:
    """A graph may be made by hand: what could not be read again, or trained on, is bad data."""
    vocabulary = graph.vocabulary
    for kind, names in (("entities", vocabulary.entities), ("relations", vocabulary.relations)):
        if isinstance(names, MappedNames):
            continue  # checked when they were numbered, and many
        if len(set(names)) != len(names):
            raise DataError(f"{graph.name}: among its {kind} a name stands twice")
        if odd := next((name for name in names if "\n" in name), None):
            raise DataError(f"{graph.name}: {printable(odd)} has a line feed, which no name may have")
    if not all(_in_vocabulary(graph.split(each), graph) for each in SPLITS):
        raise DataError(f"{graph.name}: triples are no (n, 3) ids of its entities and relations")
    if not len(graph.train):
        raise DataError(f"{graph.name}: train is empty; there is nothing to learn")


def _lines(names: Iterable[str]) -> str:
    return "".join(name + "\n" for name in names)


def _entities(path: Path) -> Sequence[str]:
    # So many are not gone through: they were different when they were written, which is proved.
    if path.is_file() and path.stat().st_size > _LARGE:
        return MappedNames.open(path)
    return _names(path)


def _names(path: Path) -> tuple[str, ...]:
    # Only a line feed ends a name: other characters that split lines may be part of one.
    try:
        names = path.read_bytes().decode().split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from None
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RunError(f"{path}: {printable(twice)} stands there twice; the file is damaged")
    return tuple(names)


def _in_vocabulary(triples: Triples, graph: Graph) -> bool:
    if triples.ndim != 2 or triples.shape[1] != 3:
        return False
    if not len(triples):
        return True
    sizes = (graph.n_entities, graph.n_relations, graph.n_entities)
    return bool((triples.min(0) >= 0).all() and (triples.max(0) < sizes).all())
