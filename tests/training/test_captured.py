"""Which steps may be recorded and played again: those that draw nothing."""

from __future__ import annotations

import pytest
import torch

from allneg.graph import read_graph
from allneg.graph.questions import Questions
from allneg.recipe import Recipe
from allneg.training.captured import is_captured
from allneg.training.learner import Learner

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["loss.negatives=shared", "loss.count=4"],
        ["loss.negatives=own", "loss.count=5"],
        ["model.entity_dropout=0.5"],
        ["model.relation_dropout=0.5"],
    ],
)
def test_a_step_is_captured_where_it_leaves_the_generator_alone(settings: list[str]) -> None:
    recipe = Recipe().with_settings(["model.dim=3", *settings])
    graph = read_graph("countries")
    questions = Questions.of(torch.from_numpy(graph.train[:20]), "tail")
    chance = torch.Generator().manual_seed(0)
    before = chance.get_state()
    Learner(recipe, graph, CPU).step(questions, chance)
    assert is_captured(recipe, CUDA) == chance.get_state().equal(before)


@pytest.mark.parametrize(
    "setting",
    ["training.micro_batch=10", "loss.mask_known=true", "hardware.deterministic=true"],
)
def test_a_step_that_waits_or_varies_is_not_captured(setting: str) -> None:
    assert is_captured(Recipe(), CUDA)
    assert not is_captured(Recipe().with_settings([setting]), CUDA)


def test_a_cpu_captures_nothing() -> None:
    assert not is_captured(Recipe(), CPU)
