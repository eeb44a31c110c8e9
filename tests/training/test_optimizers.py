from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from allneg.graph.queries import Queries
from allneg.models import ComplEx
from allneg.recipe import Loss, Optimizer, Regularizer
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.scoring import Objective, Shard, Tables
from allneg.training.optimizer import OnePassAdagrad, rate_at


def test_a_step_schedule_counts_epochs() -> None:
    settings = Optimizer(learning_rate=1.0, schedule="step", decay=0.5, every=3)
    rates = [rate_at(settings, State(epoch=epoch)) for epoch in range(7)]
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]


def test_a_plateau_schedule_counts_drops() -> None:
    settings = Optimizer(learning_rate=1.0, schedule="plateau", decay=0.5, every=3)
    assert [rate_at(settings, State(epoch=9, drops=n)) for n in range(3)] == [1, 0.5, 0.25]


def test_without_a_schedule_the_rate_stays() -> None:
    assert rate_at(Optimizer(learning_rate=0.3), State(epoch=500, drops=3)) == 0.3


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
def test_entities_that_are_kept_rounded_learn_what_those_rounded_anew_do(block: int) -> None:
    model = ComplEx(dim=3, scale=0.5)
    queries = Queries.of(torch.tensor([[0, 0, 1], [99, 1, 64], [3, 0, 3]]), "tail")
    objective = Objective(model, Loss(block=block), Regularizer("n3", 0.1), None, narrow=True)
    learnt = []
    for is_kept in (False, True):
        tables = Tables.start(model, 2, Shard.whole(100), True, seed=0).padded(64)
        if is_kept:
            tables.keep_rounded()
        optimizer = OnePassAdagrad(tables, torch.tensor(0.1))
        for _ in range(3):
            optimizer.zero_grad()
            objective.value(tables, queries, torch.Generator()).backward()
            optimizer.step()
        learnt.append(tables)
    assert learnt[0].entities.equal(learnt[1].entities)
    assert learnt[0].relations.equal(learnt[1].relations)
    assert learnt[1].rounded is not None
    assert learnt[1].rounded.equal(learnt[1].entities.bfloat16())
    assert not learnt[1].rounded[100:].any()
