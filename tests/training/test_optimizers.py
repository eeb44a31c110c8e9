from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator

from allneg.graph import Graph, Vocabulary
from allneg.graph.queries import Queries
from allneg.recipe import Optimizer, Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.scoring.negatives import NegativeSample
from allneg.training.optimizers import OPTIMIZERS, Adagrad, OptimizerKind, rate_at
from allneg.training.trainer import Trainer


def test_a_step_schedule_counts_epochs() -> None:
    settings = Optimizer(learning_rate=1.0, schedule="step", decay=0.5, every=3)
    rates = [rate_at(settings, State(epoch=epoch), 100) for epoch in range(7)]
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]


def test_a_plateau_schedule_counts_drops() -> None:
    settings = Optimizer(learning_rate=1.0, schedule="plateau", decay=0.5, every=3)
    assert [rate_at(settings, State(epoch=9, drops=n), 100) for n in range(3)] == [1, 0.5, 0.25]


def test_an_exponential_schedule_decays_a_little_every_epoch() -> None:
    settings = Optimizer(learning_rate=8, schedule="exponential", decay=0.25, every=2)
    rates = [rate_at(settings, State(epoch=epoch), 100) for epoch in range(4)]
    assert rates == pytest.approx([8, 4, 2, 1])


def test_a_cosine_ends_at_the_decayed_rate() -> None:
    settings = Optimizer(learning_rate=1, schedule="cosine", decay=0.2)
    rates = [rate_at(settings, State(epoch=epoch), 4) for epoch in range(5)]
    half = 0.8 * 0.5**0.5 / 2
    assert rates == pytest.approx([1, 0.6 + half, 0.6, 0.6 - half, 0.2])


@pytest.mark.parametrize("schedule, then", [("none", 4), ("step", 2), ("cosine", 2.2)])
def test_a_schedule_begins_after_the_warm_up(schedule: Any, then: float) -> None:
    settings = Optimizer("sgd", 4, schedule, decay=0.1 if schedule == "cosine" else 0.5, every=2)
    settings = replace(settings, warmup=3)
    rates = [rate_at(settings, State(epoch=epoch), 7) for epoch in range(6)]
    assert rates[:4] == pytest.approx([1, 2, 3, 4])
    assert rates[5] == pytest.approx(then)


def test_without_a_schedule_the_rate_stays() -> None:
    assert rate_at(Optimizer(learning_rate=0.3), State(epoch=500, drops=3), 999) == 0.3


def test_the_rate_of_every_epoch_is_in_the_metrics(trained: Callable[..., Run]) -> None:
    settings = ("optimizer.schedule=step", "optimizer.every=2", "optimizer.decay=0.5")
    run = trained("training.epochs=5", "optimizer.learning_rate=0.25", *settings)
    assert [entry["rate"] for entry in run.metrics()] == [0.25, 0.25, 0.125, 0.125, 0.0625]


def test_a_plateau_lowers_the_rate_of_a_run(trained: Callable[..., Run]) -> None:
    # At such a rate nothing changes, so every ranking after the first gains nothing.
    settings = ("optimizer.name=sgd", "optimizer.learning_rate=1e-30", "evaluation.every=1")
    run = trained(*settings, "optimizer.schedule=plateau", "optimizer.every=2")
    rates = [entry["rate"] for entry in run.metrics()]
    assert rates == pytest.approx([1e-30, 1e-30, 1e-30, 1e-31, 1e-31, 1e-32])


def test_the_first_step_of_adagrad_moves_by_the_rate(trained: Callable[..., Run]) -> None:
    """Published recipes count on an accumulator that starts at 0."""
    # All 40 queries are in one batch, so that an epoch is a step.
    settings = ("training.batch_size=100", "training.epochs=1", "model.scale=1")
    still = trained(*settings, "optimizer.name=sgd", "optimizer.learning_rate=1e-30")
    moved = trained(*settings, "optimizer.learning_rate=0.25")
    change = (moved.tables().relations - still.tables().relations).abs()
    assert torch.allclose(change, torch.tensor(0.25), atol=1e-4)


def test_a_step_of_sgd_grows_with_the_rate(trained: Callable[..., Run]) -> None:
    settings = ("training.batch_size=100", "training.epochs=1", "optimizer.name=sgd")
    first, one, two = (
        trained(*settings, "model.scale=1", f"optimizer.learning_rate={rate}").tables().relations
        for rate in (1e-30, 1e-4, 2e-4)
    )
    assert (one - first).abs().max() > 1e-6
    assert torch.allclose(two - first, 2 * (one - first), rtol=0.02, atol=1e-6)


@pytest.mark.parametrize("block", [64, 1 << 20], ids=["streamed", "whole"])
def test_a_kept_bfloat16_copy_trains_as_rounding_in_every_step(
    block: int, bf16_operands: None
) -> None:
    triples = torch.tensor([[0, 0, 1], [99, 1, 64], [3, 0, 3]])
    names = Vocabulary(tuple(f"e{i}" for i in range(100)), ("r", "s"))
    graph = Graph("toy", names, triples.numpy(), triples[:0].numpy(), triples[:0].numpy())
    settings = [
        "model.dim=3",
        "model.scale=0.5",
        "hardware.precision=bf16",
        "training.batch_size=3",
    ]
    recipe = Recipe().with_settings([*settings, f"loss.block={block}"])
    trained = []
    for is_kept in (False, True):
        trainer = Trainer(recipe, graph, torch.device("cpu"))
        tables = trainer.tables = trainer.tables.padded(64)
        if is_kept:
            tables.keep_bf16_copy()
        trainer.optimizer = Adagrad(tables, torch.tensor(0.1))
        for _ in range(3):
            trainer._step(Queries.of(triples, "tail"), NegativeSample())
        trained.append(tables)
    rounded, kept = trained
    assert rounded.entities.equal(kept.entities)
    assert rounded.relations.equal(kept.relations)
    assert kept.bf16_copy is not None
    assert kept.bf16_copy.equal(kept.entities.bfloat16())
    assert not kept.bf16_copy[100:].any()


def test_every_optimizer_keeps_as_many_tables_as_a_plan_counts(
    trained: Callable[..., Run],
) -> None:
    for name, kind in OPTIMIZERS.items():
        last = trained(f"optimizer.name={name}", "training.epochs=1").last()
        assert last is not None
        large = [key for key, value in last.optimizer.items() if value.dim() and "entities" in key]
        assert len(large) == kind.state_tables, name


class RowwiseAdagrad(torch.optim.Optimizer):
    """One number of state per row."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for table in group["params"]:
                state = self.state[table]
                squares = state.setdefault("sum", torch.zeros(len(table)))
                squares += table.grad.square().mean(1)
                table -= group["lr"] * table.grad / (squares.sqrt().unsqueeze(1) + 1e-10)


def test_state_of_one_number_per_row_is_saved_and_restored(
    monkeypatch: pytest.MonkeyPatch, quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    kind = OptimizerKind(
        lambda tables, rate: RowwiseAdagrad(tables.parameters(), float(rate)), state_tables=1
    )
    monkeypatch.setitem(OPTIMIZERS, "rowwise", kind)
    recipe, cpu = quick("optimizer.name=rowwise"), torch.device("cpu")
    trainers = [Trainer(recipe, tiny_graph, cpu) for _ in range(2)]
    queries = Queries.of(torch.from_numpy(tiny_graph.train), "tail")
    for _ in range(3):
        trainers[0].step(queries, Generator())
    saved = trainers[0].checkpoint(State(epoch=1))
    state = {name: tensor.clone() for name, tensor in saved.optimizer.items()}
    trainers[1].restore(replace(saved, optimizer=state))
    for trainer in trainers:
        trainer.step(queries, Generator())
    one, other = (trainer.tables.weights() for trainer in trainers)
    assert all(one[name].equal(other[name]) for name in one)
