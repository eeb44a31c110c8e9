"""The graph in a run's folder: a large one stays on the disk, and is the same."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from allneg.graph import SPLITS, Graph, read_graph
from allneg.graph.mapped import MappedNames
from allneg.recipe import Data, Recipe
from allneg.run import Run, stored
from allneg.training import fit


@pytest.fixture
def large(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Graph, Graph]:
    """The tiny graph in memory, and as if it were a large one."""
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(stored, "_LARGE", 1)
    return read_graph(tiny_folder), read_graph(tiny_folder, Data(store="disk"))


def _is_mapped(array: np.ndarray) -> bool:
    base = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return isinstance(base, mmap.mmap)


def test_a_large_graph_is_not_copied_into_memory(
    large: tuple[Graph, Graph], quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    plain, mapped = large
    assert _is_mapped(mapped.train)
    graph = Run.create(tmp_path / "run", quick(), mapped).graph
    assert isinstance(graph.vocabulary.entities, MappedNames)
    assert tuple(graph.vocabulary.entities) == plain.vocabulary.entities
    assert graph.vocabulary.relations == plain.vocabulary.relations
    for split in SPLITS:
        assert graph.split(split).tolist() == plain.split(split).tolist()
        assert not graph.split(split).flags.owndata


def test_training_is_the_same_from_memory_and_from_the_disk(
    large: tuple[Graph, Graph], quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    weights = []
    for number, graph in enumerate(large):
        run = Run.create(tmp_path / str(number), quick(), graph)
        with run.held():
            fit(run)
        weights.append(run.tables().weights())
    for name in weights[0]:
        assert weights[0][name].equal(weights[1][name])
