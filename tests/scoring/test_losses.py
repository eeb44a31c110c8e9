"""Every loss, in value and gradient, against loops in float64 written from its formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from allneg.recipe import Loss as Settings
from allneg.scoring.losses import LOSSES, loss_class
from naive_losses import one_loss

SETTINGS = [
    Settings("softmax"),
    Settings("softmax", label_smoothing=0.2),
    Settings("margin", margin=0.7),
    Settings("logistic"),
    Settings("logistic", margin=2.0),
    Settings("self-adversarial", margin=2.0),
    Settings("self-adversarial", margin=2.0, temperature=0.5),
]
every_loss = pytest.mark.parametrize(
    "settings", SETTINGS, ids=lambda s: f"{s.name}-{s.margin}-{s.temperature}-{s.label_smoothing}"
)
B, N, COUNT = 6, 40, 37  # queries, columns, and columns that are no padding
TARGET = torch.tensor([0, 5, 12, 13, 36, 20])


def test_every_loss_of_a_recipe_is_here() -> None:
    assert {settings.name for settings in SETTINGS} == set(LOSSES)


@pytest.fixture
def scores() -> Tensor:
    """(B, N) with masked negatives; the second query has no negative at all."""
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(B, N, generator=generator)
    masked = torch.rand(B, N, generator=generator) < 0.3
    masked[1] = True
    masked[0, :16] = True  # a block without negatives
    masked[torch.arange(B), TARGET] = False
    return scores.masked_fill(masked, -torch.inf)


def naive(scores: Tensor, settings: Settings, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Losses, and gradients of their weighted sum, in float64."""
    exact = scores.double().requires_grad_()
    losses = []
    for row, column in zip(exact, TARGET.tolist(), strict=True):
        columns = [j for j in range(COUNT) if j != column and row[j] > -torch.inf]
        losses.append(one_loss(row[column], row[columns], settings))
    value = torch.stack(losses)
    (gradient,) = torch.autograd.grad(value, exact, weight.double())
    return value.detach(), gradient


@every_loss
@pytest.mark.parametrize("blocks", [[N], [16, 16, 8]], ids=["whole", "blocks"])
def test_value_and_gradients_are_those_of_the_formula(
    settings: Settings, blocks: list[int], scores: Tensor
) -> None:
    loss = loss_class(settings)(settings)
    weight = torch.linspace(0.1, 1.0, B)
    truth, true_gradient = naive(scores, settings, weight)
    starts = [sum(blocks[:i]) for i in range(len(blocks))]
    parts = list(zip(starts, scores.split(blocks, dim=1), strict=True))
    states = [loss.scan(part.clone(), TARGET - start, COUNT - start) for start, part in parts]
    state = states[0] if len(states) == 1 else loss.merge(torch.stack(states))
    torch.testing.assert_close(loss.value(state).double(), truth, rtol=1e-5, atol=1e-6)
    found = [
        loss.grad_scores(state, part.clone(), TARGET - start, COUNT - start, weight)
        for start, part in parts
    ]
    torch.testing.assert_close(torch.cat(found, 1).double(), true_gradient, rtol=1e-5, atol=1e-6)


@every_loss
def test_large_scores_and_queries_without_negatives_stay_finite(
    settings: Settings, scores: Tensor
) -> None:
    loss = loss_class(settings)(settings)
    scores = 1e4 * scores
    state = loss.scan(scores.clone(), TARGET, COUNT)
    assert loss.value(state).isfinite().all()
    assert loss.grad_scores(state, scores, TARGET, COUNT, torch.ones(B)).isfinite().all()


def test_bf16_gradients_are_those_of_the_softmax_rounded(scores: Tensor) -> None:
    settings, weight = Settings(), torch.ones(B)
    loss, rounded = loss_class(settings)(settings), loss_class(settings)(settings, bf16=True)
    state = loss.scan(scores.clone(), TARGET, COUNT)
    exact = loss.grad_scores(state, scores.clone(), TARGET, COUNT, weight)
    assert rounded.grad_scores(state, scores, TARGET, COUNT, weight).equal(exact.bfloat16())
