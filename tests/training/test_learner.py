"""What a learner builds before its first step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Generator

from allneg.graph import Graph
from allneg.graph.questions import Questions
from allneg.recipe import Recipe
from allneg.training.learner import Learner

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "settings, needed",
    [
        ([], False),
        (["loss.negatives=own", "loss.count=3"], False),
        (["loss.mask_known=true"], True),
        (["loss.subsampling=true"], True),
        (["loss.mask_known=true", "loss.negatives=shared", "loss.count=3"], True),
    ],
)
def test_the_answers_of_train_are_sorted_only_for_a_loss_that_asks_for_them(
    settings: list[str], needed: bool, quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    learner = Learner(quick(*settings), tiny_graph, CPU)
    assert (learner.objective.known is not None) is needed
    questions = Questions.of(torch.from_numpy(tiny_graph.train), "tail")
    assert learner.step(questions, Generator()).isfinite()
