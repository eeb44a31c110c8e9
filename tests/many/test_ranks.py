"""Several processes rank as one does: the same counts of higher and of equal scores."""

from __future__ import annotations

import numpy as np
import pytest
from tasks import diverged, ranked
from workers import Workers

from allneg.graph import Graph
from allneg.models import MODELS
from allneg.scoring.distributed import World

MESHES = ["rows=3", "batch=2", "rows=2,batch=2"]


def check_same(
    workers: Workers, graph: Graph, mesh: str, settings: tuple[str, ...], rules: str = "allneg"
) -> int:
    """Compare with one process; returns the number of equal scores."""
    better, equal, candidates = ranked(World(), graph, settings, rules)
    for found in workers(mesh, ranked, graph, settings, rules):
        assert np.array_equal(found[0], better)
        assert np.array_equal(found[1], equal)
        assert found[2] == candidates
    return int(equal.sum())


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_ranks_the_same_in_every_mesh(
    workers: Workers, graph: Graph, name: str, mesh: str
) -> None:
    check_same(workers, graph, mesh, (f"model.name={name}",))


@pytest.mark.parametrize("mesh", ["rows=3", "rows=2,batch=2"])
@pytest.mark.parametrize("rules", ["allneg", "kbc", "libkge", "pykeen"])
def test_ties_are_counted_across_processes(
    workers: Workers, graph: Graph, rules: str, mesh: str
) -> None:
    settings = ("model.name=distmult", "model.scale=0.9")
    assert check_same(workers, graph, mesh, settings, rules) > 100


@pytest.mark.parametrize("mesh", ["rows=3", "rows=2,batch=2"])
def test_all_processes_raise_for_a_score_that_is_not_finite(
    workers: Workers, graph: Graph, mesh: str
) -> None:
    assert all("diverged" in message for message in workers(mesh, diverged, graph))
