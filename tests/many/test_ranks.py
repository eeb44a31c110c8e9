"""Many processes rank as one does: the same counts of better and of equal rivals."""

from __future__ import annotations

import numpy as np
import pytest
from crew import Crew
from works import diverged, ranked

from allneg.graph import Graph
from allneg.models import MODELS
from allneg.scoring.shard import World

MESHES = ["rows=2", "rows=3", "batch=2", "rows=2,batch=2"]


def check_alike(
    crew: Crew, graph: Graph, mesh: str, settings: tuple[str, ...], rules: str = "allneg"
) -> int:
    """The number of equal rivals, once all is found to be alike."""
    better, equal, candidates = ranked(World(), graph, settings, rules)
    for found in crew(mesh, ranked, graph, settings, rules):
        assert np.array_equal(found[0], better)
        assert np.array_equal(found[1], equal)
        assert found[2] == candidates
    return int(equal.sum())


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_ranks_the_same_in_every_mesh(
    crew: Crew, graph: Graph, name: str, mesh: str
) -> None:
    check_alike(crew, graph, mesh, (f"model.name={name}",))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("rules", ["allneg", "kbc", "libkge", "pykeen"])
def test_ties_are_counted_across_processes(crew: Crew, graph: Graph, rules: str, mesh: str) -> None:
    settings = ("model.name=distmult", "model.scale=0.9")
    assert check_alike(crew, graph, mesh, settings, rules) > 100


@pytest.mark.parametrize("mesh", ["rows=3", "rows=2,batch=2"])
def test_a_score_that_is_not_finite_is_known_to_all(crew: Crew, graph: Graph, mesh: str) -> None:
    assert all("diverged" in said for said in crew(mesh, diverged, graph))
