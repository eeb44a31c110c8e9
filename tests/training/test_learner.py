"""What a learner builds before its first step."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Generator

from allneg.graph import Graph
from allneg.graph.questions import Questions
from allneg.recipe import Recipe
from allneg.training.learner import Learner, keeps_rounded

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
NARROW = "hardware.precision=bf16"


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


@pytest.mark.parametrize("device", [CPU, pytest.param(CUDA, marks=pytest.mark.gpu)])
def test_what_has_learnt_is_freed_at_once(
    device: torch.device, quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    # A collector would come late: it does not know how large a GPU's memory behind an object is.
    questions = Questions.of(torch.from_numpy(tiny_graph.train).to(device), "tail")
    learner = Learner(quick(f"training.batch_size={len(questions)}"), tiny_graph, device)
    chance = Generator(device)
    for _ in range(6):  # on a GPU, some of them captured
        learner.step(questions, chance)
    held = [weakref.ref(each) for each in (learner.tables, learner.tables.entities.grad)]
    gc.disable()
    try:
        del learner
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "setting",
    [
        "hardware.precision=tf32",
        "hardware.table=host",
        "optimizer.name=adam",
        "model.name=transe",
        "loss.negatives=shared",
    ],
)
def test_entities_are_kept_rounded_where_adagrad_and_narrow_products_share_them(
    setting: str,
) -> None:
    assert keeps_rounded(Recipe().with_settings([NARROW]), CUDA)
    assert not keeps_rounded(Recipe().with_settings([NARROW]), CPU)
    more = [setting, "loss.count=3"] if setting == "loss.negatives=shared" else [setting]
    assert not keeps_rounded(Recipe().with_settings([NARROW, *more]), CUDA)


@pytest.mark.gpu
def test_rounded_entities_are_those_of_the_tables_after_captured_steps_and_a_load(
    quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    learner = Learner(quick(NARROW, "hardware.device=cuda"), tiny_graph, CUDA)
    questions = Questions.of(torch.from_numpy(tiny_graph.train[:8]).cuda(), "tail")
    first = {name: each.clone() for name, each in learner.tables.weights().items()}
    for _ in range(6):  # the first of them plainly, the others from the graph
        learner.step(questions, Generator(CUDA))
    tables = learner.tables
    assert tables.rounded is not None
    assert tables.rounded.equal(tables.entities.bfloat16())
    values = []
    for _ in range(2):
        tables.load(first)
        values.append(learner.step(questions, Generator(CUDA)).item())
        assert tables.rounded.equal(tables.entities.bfloat16())
    # Both begin from the same rows, whatever was rounded before.
    assert values[0] == pytest.approx(values[1], rel=1e-5)
