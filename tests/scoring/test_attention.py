"""Losses and gradients without scores in memory are those of stored scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from allneg.kernels import dot
from allneg.kernels.engines import using
from allneg.recipe import Loss as Settings
from allneg.scoring import attention
from allneg.scoring.contrast import contrast
from allneg.scoring.losses import loss_class
from allneg.scoring.negatives import Answers, Candidates
from interpreter import DEVICE, GPU, interpreted, needs_triton

B, N, W, COUNT = 5, 130, 24, 121
SETTINGS = {
    "plain": Settings(),
    "smoothed": Settings(label_smoothing=0.3),
    "grouped": Settings(grouped=True),
    "grouped, smoothed": Settings(grouped=True, label_smoothing=0.3),
}
CASES = [*SETTINGS, "masked", "offset", "large", "certain"]
interpreted("allneg.kernels.attention.gpu")


@pytest.fixture(params=["reference", pytest.param("gpu", marks=needs_triton)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where an engine of attention runs: the definition on a CPU, Triton's on a GPU if any."""
    with ExitStack() as stack:
        if request.param == "gpu" and not GPU:
            monkeypatch.setenv("TRITON_INTERPRET", "1")
        elif request.param == "reference":
            monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        stack.enter_context(using(request.param))
        yield DEVICE if request.param == "gpu" else "cpu"


def operands(case: str) -> tuple[Tensor, Candidates, Tensor]:
    """Queries, candidates with padding, of any value, and weights."""
    generator = torch.Generator().manual_seed(0)
    query, rows = (torch.randn(n, W, generator=generator) for n in (B, N))
    target = torch.tensor([0, 63, 64, 120, 7])
    candidates = Candidates(rows, target, COUNT)
    if case.startswith("grouped"):
        column = torch.tensor([3, 120, 64, -1, 7, 9, 0, 5])  # another process has one of them
        of_query = torch.tensor([0, 0, 1, 1, 2, 3, 4, 4])
        answers = Answers(of_query, column, torch.rand(8, generator=generator))
        candidates = replace(candidates, target=torch.full((B,), -1), answers=answers)
    if case == "masked":
        pairs = (torch.rand(B, COUNT, generator=generator) < 0.3).nonzero(as_tuple=True)
        candidates = replace(candidates, masked=(pairs[0], pairs[1]))
    if case == "offset":
        offset = torch.randn(N, generator=generator)
        offset[::5] = -torch.inf
        candidates = replace(candidates, offset=offset)
    if case == "large":
        query *= 60
    if case == "certain":  # the loss is tiny, and so are all gradients
        query = 5 * rows[target]
    weight = torch.rand(B, generator=generator)
    weight[2] = 0.0
    return query, candidates, weight


def error(ours: Tensor, truth: Tensor) -> float:
    return float((ours.cpu().double() - truth).norm() / truth.norm())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("bf16", [False, True])
def test_attention_is_no_less_exact_than_stored_scores(case: str, bf16: bool, device: str) -> None:
    settings = SETTINGS.get(case, Settings())
    query, candidates, weight = operands(case)
    if bf16:
        query, rows = query.bfloat16().float(), candidates.rows.bfloat16().float()
        candidates = replace(candidates, rows=rows)
    kind = loss_class(settings)
    exact = replace(candidates, rows=candidates.rows.double())
    if exact.answers is not None:
        of_scores = exact.answers.weight.double()
        exact = replace(exact, answers=replace(exact.answers, weight=of_scores))
    truth = contrast(dot, query.double(), exact, kind(settings), weight.double())
    loss = kind(settings, bf16)
    with using("reference"):
        plain = contrast(dot, query, candidates, loss, weight)
    moved = {name: x.to(device) for name, x in vars(candidates).items() if isinstance(x, Tensor)}
    if candidates.answers is not None:
        moved["answers"] = Answers(*(x.to(device) for x in vars(candidates.answers).values()))
    if candidates.masked is not None:
        moved["masked"] = tuple(x.to(device) for x in candidates.masked)
    there = replace(candidates, **moved)
    found = attention.contrast(query.to(device), there, loss, weight.to(device))
    # The interpreter rounds to bfloat16 towards 0, and sums products in a plain loop.
    allowed = (2**-7 if bf16 else 1e-5) if device == "cpu" else (2**-9 if bf16 else 1e-6)
    names = ("losses", "d_query", "d_rows")
    for name, ours, theirs, true in zip(names, found, plain, truth, strict=True):
        assert ours.dtype == torch.float32
        assert error(ours, true) <= 2 * error(theirs, true) + (
            1e-6 if name == "losses" else allowed
        )
    assert not found[2][COUNT:].any()


def test_a_copy_replaces_the_rows() -> None:
    query, candidates, weight = operands("plain")
    loss = loss_class(Settings())(Settings(), bf16=True)
    found = attention.contrast(query, candidates, loss, weight)
    copy = candidates.rows.bfloat16()
    other = replace(candidates, rows=torch.full_like(candidates.rows, torch.nan))
    again = attention.contrast(query, other, loss, weight, bf16_copy=copy)
    assert all(torch.equal(*pair) for pair in zip(again, found, strict=True))
