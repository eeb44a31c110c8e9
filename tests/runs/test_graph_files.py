"""The graph in a run's folder; a large graph stays on the disk."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allneg.errors import DataError
from allneg.graph import SPLITS, Graph, Vocabulary, read_graph
from allneg.graph.mapped import MappedNames
from allneg.recipe import Data, Recipe
from allneg.runs import Run, folder


@pytest.fixture
def large(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Graph, Graph]:
    """The tiny graph in memory, and stored as a large one would be."""
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(folder, "_LARGE", 1)
    return read_graph(tiny_folder), read_graph(tiny_folder, Data(store="disk"))


def _is_mapped(array: np.ndarray) -> bool:
    base = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return isinstance(base, mmap.mmap)


def test_a_large_graph_is_not_copied_into_memory(
    large: tuple[Graph, Graph], made: Callable[..., Run]
) -> None:
    plain, mapped = large
    assert _is_mapped(mapped.train)
    graph = made(graph=mapped).graph
    assert isinstance(graph.vocabulary.entities, MappedNames)
    assert tuple(graph.vocabulary.entities) == plain.vocabulary.entities
    assert graph.vocabulary.relations == plain.vocabulary.relations
    for split in SPLITS:
        assert graph.split(split).tolist() == plain.split(split).tolist()
        assert not graph.split(split).flags.owndata


def test_training_from_disk_equals_training_from_memory(
    large: tuple[Graph, Graph], trained: Callable[..., Run]
) -> None:
    one, other = (trained(graph=graph).tables().weights() for graph in large)
    for name in one:
        assert one[name].equal(other[name])


@pytest.mark.parametrize(
    "entities, train, message",
    [
        (("a\nx", "b"), [[0, 0, 1]], "a line feed"),
        (("a", "a"), [[0, 0, 1]], "have the same name"),
        (("a", "b"), [[0, 0, 2]], "ids of its entities"),
        (("a", "b"), [[0, -1, 1]], "ids of its entities"),
        (("a", "b"), [[0, 1]], "ids of its entities"),
        (("a", "b"), np.empty((0, 3), dtype=np.int64), "train is empty"),
    ],
)
def test_a_graph_that_could_not_be_read_again_is_refused(
    entities: tuple[str, ...], train: Any, message: str, tmp_path: Path
) -> None:
    none = np.empty((0, 3), dtype=np.int64)
    graph = Graph("odd", Vocabulary(entities, ("r",)), np.array(train), none, none)
    with pytest.raises(DataError, match=message):
        Run.create(tmp_path / "run", Recipe(), graph)
    assert not (tmp_path / "run").exists()
