"""What a trainer builds before its first step."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Generator

from allneg.graph import Graph
from allneg.graph.queries import Queries
from allneg.recipe import Recipe
from allneg.training.trainer import Trainer, keeps_rounded

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
NARROW = "hardware.precision=bf16"


@pytest.mark.parametrize(
    "settings, needed",
    [
        ([], False),
        (["loss.negatives=per_query", "loss.n_negatives=3"], False),
        (["loss.mask_known=true"], True),
        (["loss.subsampling=true"], True),
        (["loss.mask_known=true", "loss.negatives=shared", "loss.n_negatives=3"], True),
    ],
)
def test_the_answers_of_train_are_sorted_only_for_a_loss_that_asks_for_them(
    settings: list[str], needed: bool, quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    trainer = Trainer(quick(*settings), tiny_graph, CPU)
    assert (trainer.objective.known is not None) is needed
    queries = Queries.of(torch.from_numpy(tiny_graph.train), "tail")
    assert trainer.step(queries, Generator()).isfinite()


@pytest.mark.parametrize("device", [CPU, pytest.param(CUDA, marks=pytest.mark.gpu)])
def test_what_has_learnt_is_freed_at_once(
    device: torch.device, quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    # A collector would come late: it does not know how large a GPU's memory behind an object is.
    queries = Queries.of(torch.from_numpy(tiny_graph.train).to(device), "tail")
    trainer = Trainer(quick(f"training.batch_size={len(queries)}"), tiny_graph, device)
    chance = Generator(device)
    for _ in range(6):  # on a GPU, some of them captured
        trainer.step(queries, chance)
    held = [weakref.ref(each) for each in (trainer.tables, trainer.tables.entities.grad)]
    gc.disable()
    try:
        del trainer
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
    more = [setting, "loss.n_negatives=3"] if setting == "loss.negatives=shared" else [setting]
    assert not keeps_rounded(Recipe().with_settings([NARROW, *more]), CUDA)


@pytest.mark.gpu
def test_rounded_entities_are_those_of_the_tables_after_captured_steps_and_a_load(
    quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    trainer = Trainer(quick(NARROW, "hardware.device=cuda"), tiny_graph, CUDA)
    queries = Queries.of(torch.from_numpy(tiny_graph.train[:8]).cuda(), "tail")
    first = {name: each.clone() for name, each in trainer.tables.weights().items()}
    for _ in range(6):  # the first of them plainly, the others from the graph
        trainer.step(queries, Generator(CUDA))
    tables = trainer.tables
    assert tables.rounded is not None
    assert tables.rounded.equal(tables.entities.bfloat16())
    values = []
    for _ in range(2):
        tables.load(first)
        values.append(trainer.step(queries, Generator(CUDA)).item())
        assert tables.rounded.equal(tables.entities.bfloat16())
    # Both begin from the same rows, whatever was rounded before.
    assert values[0] == pytest.approx(values[1], rel=1e-5)
