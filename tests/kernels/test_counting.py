"""Counts of higher and equal scores that are not stored: those of brute force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from allneg.kernels import attention
from allneg.kernels.attention import reference
from interpreter import DEVICE, GPU, interpreted, needs_triton

gpu: Any = interpreted("allneg.kernels.attention.gpu")
pytestmark = needs_triton
# No tile divides most of these. 3 multiprocessors of the interpreter split the rows of few queries.
SIZES = [(1, 1, 8), (7, 300, 40), (19, 130, 200), (40, 517, 264), (33, 64, 128)]
DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """TF32, and small tiles for the interpreter."""
    if not GPU:
        small = gpu.Tile(16, 32, 4, 2)
        monkeypatch.setattr(gpu, "COUNT", {256: small})
        chunked = replace(small, chunk=32)
        monkeypatch.setattr(gpu, "CHUNKED", dict.fromkeys((2, 4), chunked))
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def whole_numbers(b: int, n: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Queries and rows whose scores are exact in every precision, with many ties."""
    query, rows = (torch.randint(-1, 2, (size, width)).to(dtype) for size in (b, n))
    rows[n // 2 :: 7] = rows[0].clone()
    rows[1::9] = 0
    return query.to(DEVICE), rows.to(DEVICE)


def answers(b: int, n: int) -> tuple[Tensor, Tensor]:
    """Up to six answers of each query, and none of some: queries and rows."""
    group = torch.arange(b).repeat_interleave(torch.randint(0, 7, (b,)))
    return group.to(DEVICE), torch.randint(n, (len(group),)).to(DEVICE)


def by_force(query: Tensor, rows: Tensor, pairs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The scores of pairs, and what `count_better` counts, in float64."""
    scores = query.double() @ rows.double().T
    own = scores[pairs]
    of_group = scores[pairs[0]]
    counts = [(of_group > own[:, None]).sum(1), (of_group == own[:, None]).sum(1)]
    return own, torch.stack(counts, 1)


@pytest.mark.parametrize("b, n, width", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("engine", ["gpu", "reference"])
def test_counts_with_ties_are_those_of_brute_force(
    b: int, n: int, width: int, dtype: torch.dtype, engine: str
) -> None:
    chosen: Any = gpu if engine == "gpu" else reference
    query, rows = whole_numbers(b, n, width, dtype)
    pairs = answers(b, n)
    found = chosen.pair_scores(query, rows, *pairs)
    own, counts = by_force(query, rows, pairs)
    assert found.double().equal(own)
    assert chosen.count_better(query, rows, found, pairs[0]).equal(counts)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_copy_of_the_answers_row_ties_wherever_it_is(dtype: torch.dtype) -> None:
    query, rows = torch.randn(30, 200).to(DEVICE, dtype), torch.randn(331, 200).to(DEVICE, dtype)
    rows[[3, 40, 128, 250, 330]] = rows[77].clone()
    group = torch.arange(30, device=DEVICE).repeat_interleave(3)
    column = torch.tensor([3, 330, 77], device=DEVICE).repeat(30)
    found = gpu.pair_scores(query, rows, group, column)
    assert found.view(30, 3).eq(found[::3, None]).all()
    counts = gpu.count_better(query, rows, found, group)
    assert counts[:, 1].eq(6).all()
    near = (query.double() @ rows.double().T > found[::3, None] + 0.1).sum(1)
    assert (counts[::3, 0] >= near).all()


def test_a_row_that_is_not_here_scores_minus_infinity() -> None:
    query, rows = whole_numbers(2, 50, 16, torch.float32)
    pairs = torch.tensor([0, 1, 1], device=DEVICE), torch.tensor([-1, 4, -1], device=DEVICE)
    for engine in (gpu, reference):
        found = engine.pair_scores(query, rows, *pairs)
        assert found.isneginf().tolist() == [True, False, True]


def test_no_answers_are_no_work() -> None:
    query, rows = whole_numbers(3, 50, 16, torch.float32)
    none = torch.empty(0, dtype=torch.int64, device=DEVICE)
    for engine in (gpu, reference):
        found = engine.pair_scores(query, rows, none, none)
        assert engine.count_better(query, rows, found, none).shape == (0, 2)


def test_only_a_gpu_counts_and_only_rounded_products() -> None:
    assert not attention.can_count(torch.zeros(8, 8))
    if GPU:
        rows = torch.zeros(8, 20, device=DEVICE)
        has_tma = torch.cuda.get_device_capability() >= (9, 0)
        assert attention.can_count(rows) == has_tma
        assert not attention.can_count(rows[:, :10].contiguous())
        torch.backends.cuda.matmul.allow_tf32 = False
        assert not attention.can_count(rows)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [64, 200, 256, 2000])
def test_the_tiles_of_a_gpu_count_exactly(width: int, dtype: torch.dtype) -> None:
    query, rows = whole_numbers(700, 20_011, width, dtype)
    pairs = answers(700, 20_011)
    found = gpu.pair_scores(query, rows, *pairs)
    own, counts = by_force(query, rows, pairs)
    assert found.double().equal(own)
    assert gpu.count_better(query, rows, found, pairs[0]).equal(counts)
    tile = replace(gpu.CHUNKED[rows.element_size()], queries=64, warps=4)
    assert gpu.count_better(query, rows, found, pairs[0], tile).equal(counts)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scores_of_pairs_are_those_of_tiles(dtype: torch.dtype) -> None:
    """Each answer equals itself, wherever its row is, though no score is a whole number."""
    query = torch.randn(500, 200, device=DEVICE).to(dtype)
    rows = torch.randn(30_011, 200, device=DEVICE).to(dtype)
    group, column = (torch.randint(n, (9000,), device=DEVICE) for n in (500, 30_011))
    group = group.sort().values
    found = gpu.pair_scores(query, rows, group, column)
    counts = gpu.count_better(query, rows, found, group)
    assert (counts[:, 1] >= 1).all()
    assert counts[:, 1].double().mean() < 1.1
    true = by_force(query, rows, (group, column))[1]
    assert (counts[:, 0] - true[:, 0]).abs().double().mean() < 30_011 * 1e-3
