"""Losses and gradients of queries against rows: whole, in blocks, with padding, and rounded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from allneg.kernels import Kernel, SquaredL2, dot, l1, l2, modulus
from allneg.recipe import Loss as Settings
from allneg.scoring import contrast as module
from allneg.scoring import streaming
from allneg.scoring.contrast import contrast
from allneg.scoring.losses import LOSSES, loss_class
from allneg.scoring.negatives import Candidates

N, B, W = 200, 6, 4
KERNELS = {"dot": dot, "l1": l1, "modulus": modulus, "l2": l2, "squared": SquaredL2(bias=True)}
SETTINGS = {name: Settings(name, margin=0.0 if name == "softmax" else 1.5) for name in LOSSES}
SETTINGS["smoothed softmax"] = Settings(label_smoothing=0.2)
every_loss = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def operands(generator: torch.Generator) -> tuple[Tensor, Candidates, Tensor]:
    """Queries, candidates with masked columns and offsets, and weights."""
    query = torch.randn(B, W, generator=generator)
    rows = torch.randn(N, W, generator=generator)
    target = torch.tensor([0, 63, 64, 127, 150, 199])
    masked = torch.randint(B, (300,), generator=generator), torch.arange(300) % N
    offset = 0.1 * torch.randn(N, generator=generator)
    weight = torch.rand(B, generator=generator)
    return query, Candidates(rows, target, N, masked, offset), weight


def naive(
    kernel: Kernel, query: Tensor, candidates: Candidates, settings: Settings, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by the loss of all scores at once, and autograd of the kernel in float64."""
    q, rows = query.double().requires_grad_(), candidates.rows.double().requires_grad_()
    scores = kernel(q, rows)
    answer = torch.arange(N) == candidates.target.unsqueeze(1)
    used = scores + torch.where(answer, 0.0, candidates.offset)
    hidden = torch.zeros(B, N, dtype=torch.bool)
    hidden[candidates.masked] = True
    used = used.masked_fill(hidden & ~answer, -torch.inf)
    loss = loss_class(settings)(settings)
    state = loss.scan(used.detach().clone(), candidates.target, N)
    grad = loss.grad_scores(
        state, used.detach().clone(), candidates.target, N, weight.double()
    )  # tested in test_losses
    return loss.value(state), *torch.autograd.grad(scores, (q, rows), grad)


@every_loss
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("block", [None, 64])
def test_whole_and_blocks_give_the_losses_and_gradients_of_autograd(
    settings: Settings, name: str, block: int | None, generator: torch.Generator
) -> None:
    kernel = KERNELS[name]
    query, candidates, weight = operands(generator)
    loss = loss_class(settings)(settings)
    found = contrast(kernel, query, candidates, loss, weight, block)
    truth = naive(kernel, query, candidates, settings, weight)
    for ours, true in zip(found, truth, strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=1e-4, atol=1e-5)


@every_loss
def test_a_querys_own_rows_are_as_a_table_of_them(
    settings: Settings, generator: torch.Generator
) -> None:
    query, own = torch.randn(B, W, generator=generator), torch.randn(B, 7, W, generator=generator)
    offset = torch.zeros(B, 7).masked_fill(torch.rand(B, 7, generator=generator) < 0.3, -torch.inf)
    target, weight = torch.zeros(B, dtype=torch.int64), torch.rand(B, generator=generator)
    loss = loss_class(settings)(settings)
    for kernel in (dot, l1, l2):
        candidates = Candidates(own, target, 7, offset=offset)
        found = contrast(kernel, query, candidates, loss, weight)
        for i in range(B):
            one = slice(i, i + 1)
            alone = Candidates(own[i], target[one], 7, offset=offset[one])
            true = contrast(kernel, query[one], alone, loss, weight[one])
            ours = found[0][one], found[1][one], found[2][i]
            torch.testing.assert_close(ours, true, rtol=1e-4, atol=1e-5)


@every_loss
@pytest.mark.parametrize("block", [None, 64, 128])
def test_padding_changes_nothing_and_has_the_gradient_0(
    settings: Settings, block: int | None, generator: torch.Generator
) -> None:
    query, candidates, weight = operands(generator)
    candidates = replace(candidates, offset=None)
    padding = torch.full((56, W), 3.0)  # of any value
    padded = replace(candidates, rows=torch.cat([candidates.rows, padding]))
    loss = loss_class(settings)(settings)
    plain = contrast(dot, query, candidates, loss, weight)
    losses, d_query, d_rows = contrast(dot, query, padded, loss, weight, block)
    torch.testing.assert_close((losses, d_query, d_rows[:N]), plain, rtol=1e-4, atol=1e-6)
    assert not d_rows[N:].any()


@every_loss
@pytest.mark.parametrize("block", [None, 128, 64])
def test_no_more_scores_are_held_than_a_block(
    settings: Settings, block: int | None, generator: torch.Generator
) -> None:
    held: list[int] = []

    class Counting(type(dot)):  # type: ignore[misc]
        def scores(self, query: Tensor, rows: Tensor) -> Tensor:
            held.append(len(query) * len(rows))
            return super().scores(query, rows)

    query, candidates, weight = operands(generator)
    contrast(Counting(), query, candidates, loss_class(settings)(settings), weight, block)
    assert max(held) == B * (block or N)
    # A whole table is compared once; blocks are compared again for the gradients.
    assert sum(held) == B * N * (1 if block is None else 2)


@pytest.mark.parametrize("block", [None, 64])
def test_bfloat16_products_are_close_and_take_the_copy_of_the_rows(
    block: int | None, generator: torch.Generator
) -> None:
    settings = Settings()
    query, candidates, weight = operands(generator)
    exact = contrast(dot, query, candidates, loss_class(settings)(settings), weight, block)
    loss = loss_class(settings)(settings, bf16=True)
    found = contrast(dot, query, candidates, loss, weight, block)
    for ours, true in zip(found, exact, strict=True):
        assert ours.dtype == torch.float32
        assert 0 < (ours - true).norm() < 0.02 * true.norm()
    # The copy serves instead of the rows, whose numbers no longer matter.
    copy = candidates.rows.bfloat16()
    other = replace(candidates, rows=torch.full_like(candidates.rows, torch.nan))
    again = contrast(dot, query, other, loss, weight, block, copy)
    assert all(torch.equal(*pair) for pair in zip(again, found, strict=True))


def test_rows_of_another_device_are_streamed_to_the_same_result(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, candidates, weight = operands(generator)
    loss = loss_class(Settings())(Settings())
    near = contrast(dot, query, candidates, loss, weight, 64)

    def blocks(rows: Tensor, size: int, query: Tensor):  # type: ignore[no-untyped-def]
        yield from streaming.stream(rows, size, query.device)

    monkeypatch.setattr(module, "_blocks", blocks)
    far = contrast(dot, query, candidates, loss, weight, 64)
    assert all(torch.equal(*pair) for pair in zip(far, near, strict=True))
