"""Losses a block of scores at a time: the same numbers, and no more scores than were allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from allneg.scoring.loss import LOSSES
from allneg.scoring.streamed import Rivals, losses
from torch import Generator, Tensor

from allneg.graph.queries import KnownAnswers, Queries
from allneg.models import MODELS, DistMult
from allneg.recipe import Loss, Regularizer
from allneg.scoring import Objective, Shard, Tables

N, B = 200, 6  # three blocks of 64 rows and a rest of 8

EVERY = [
    Loss("softmax"),
    Loss("softmax", smoothing=0.2, mask_known=True),
    Loss("softmax", negatives="shared", count=150, correction=True),
    Loss("margin", margin=1.5, mask_known=True),
    Loss("logistic", margin=1.0),
    Loss("self-adversarial", margin=1.0, temperature=0.7),
    Loss("self-adversarial", margin=1.0, mask_known=True, subsampling=True),
]


@pytest.fixture(scope="module")
def train() -> Tensor:
    """(0, 0, ?) has the answers 1 to 69, which fill the first block and a bit of the second."""
    many = [[0, 0, tail] for tail in range(70)]
    return torch.tensor([*many, [5, 1, 199], [6, 1, 64], [7, 1, 63], [8, 0, 8]])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("settings", EVERY, ids=lambda each: f"{each.name}-{each.negatives}")
def test_a_block_at_a_time_gives_the_same_losses_and_gradients(
    name: str, settings: Loss, train: Tensor
) -> None:
    model = MODELS[name](dim=3, scale=0.8)
    known = KnownAnswers.of([train.numpy()], N, 2)
    queries = Queries.of(train[[3, 68, 70, 71, 72, 73]], "tail")

    def value_and_gradients(block: int) -> tuple[Tensor, ...]:
        tables = Tables.start(model, 2, Shard.whole(N), False, seed=1)
        objective = Objective(model, replace(settings, block=block), Regularizer("none"), known)
        value = objective.value(tables, queries, Generator().manual_seed(0))
        value.backward()
        assert tables.entities.grad is not None
        assert tables.relations.grad is not None
        return value.detach(), tables.entities.grad, tables.relations.grad

    for found, true in zip(value_and_gradients(1), value_and_gradients(B * N), strict=True):
        torch.testing.assert_close(found, true, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("block, most", [(B * N, B * N), (B * 128, B * 128), (B * 100, B * 64)])
def test_no_more_scores_are_held_than_were_allowed(name: str, block: int, most: int) -> None:
    chance = Generator().manual_seed(0)
    query = torch.randn(B, 4, generator=chance, requires_grad=True)
    rows = torch.randn(N, 4, generator=chance, requires_grad=True)
    held: list[int] = []

    def compare(query: Tensor, rows: Tensor) -> Tensor:
        scores = query @ rows.T
        held.append(scores.numel())
        return scores

    loss = LOSSES[name](Loss(name, margin=1.0))  # type: ignore[arg-type]
    losses(compare, query, rows, loss, Rivals(torch.arange(B), N), block).sum().backward()
    assert max(held) == most
    # All at once, they are compared once; else, once more on the way back.
    assert sum(held) == B * N * (1 if block == B * N else 2)


@pytest.mark.parametrize("settings", EVERY, ids=lambda each: f"{each.name}-{each.negatives}")
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_padding_changes_nothing_and_stays_zero(settings: Loss, block: int, train: Tensor) -> None:
    model = DistMult(dim=3, scale=0.8)
    known = KnownAnswers.of([train.numpy()], N, 2)
    objective = Objective(model, replace(settings, block=block), Regularizer("n3", 0.1), known)
    plain = Tables.start(model, 2, Shard.whole(N), False, seed=1)
    padded = plain.padded(64)
    assert len(padded.entities) == 256
    values = []
    for tables in (plain, padded):
        queries = Queries.of(train, "tail")
        value = objective.value(tables, queries, Generator().manual_seed(0))
        value.backward()
        values.append(value.detach())
    torch.testing.assert_close(*values)
    assert plain.entities.grad is not None
    assert padded.entities.grad is not None
    torch.testing.assert_close(padded.entities.grad[:N], plain.entities.grad, rtol=1e-4, atol=1e-6)
    assert not padded.entities.grad[N:].any()
