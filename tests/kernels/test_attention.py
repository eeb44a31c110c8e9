"""Attention to a table: no less exact than products that store their scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from allneg.kernels.attention import MOST_WIDTH, Negatives, bit_mask, reference
from interpreter import DEVICE, GPU, interpreted, needs_triton

gpu: Any = interpreted("allneg.kernels.attention.gpu")
pytestmark = needs_triton
# No tile divides most of these. 3 multiprocessors of the interpreter split the rows of few queries.
SIZES = [(1, 1, 1), (7, 300, 33), (19, 130, 200), (3, 517, 256)]
# Weights of a softmax are rounded to bfloat16, by the interpreter towards 0. Its products are sums
# in a plain loop, with more rounding errors.
ERROR = {torch.float32: 1e-6, torch.bfloat16: 2**-8}
if not GPU:
    ERROR = {torch.float32: 4e-6, torch.bfloat16: 2**-7}


def tiles(rows: Tensor) -> tuple[Any, Any]:
    """Those of `attend` and `row_gradients`; small ones for the interpreter."""
    if GPU:
        key = gpu._key(rows)
        return gpu.ATTEND[key], gpu.GRADIENTS[key]
    return gpu.Tile(16, 64, 4, 2), gpu.Tile(16, 128, 4, 2)


def operands(b: int, n: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Negatives]:
    rows = torch.randn(n, width) * 3 / width**0.5  # scores have the standard deviation 3
    query, rows = torch.randn(b, width).to(dtype), rows.to(dtype)
    target = torch.randint(n, (b,))
    target[:1] = -1  # another process has the answer
    return query, rows, Negatives(target, n - n // 10)


def ways(negatives: Negatives, b: int, n: int) -> dict[str, Negatives]:
    offset = torch.randn(n)
    offset[n // 2 :: 3] = -torch.inf
    pairs = (torch.rand(b, n) < 0.2).nonzero(as_tuple=True)
    bits = bit_mask((pairs[0], pairs[1]), b, n)
    return {
        "plain": negatives,
        "offset": replace(negatives, offset=offset),
        "masked": replace(negatives, bits=bits),
    }


def there(negatives: Negatives) -> Negatives:
    tensors = {name: x.to(DEVICE) for name, x in vars(negatives).items() if isinstance(x, Tensor)}
    return replace(negatives, **tensors)


def distance(ours: Tensor, truth: Tensor) -> float:
    return float((ours.cpu().double() - truth).norm() / truth.norm().clamp(min=1e-30))


def check(query: Tensor, rows: Tensor, negatives: Negatives, factor: float = 2.0) -> None:
    """Errors against float64 are at most `factor` times those of the definition in float32."""
    weight, (first, second) = torch.rand(len(query)), tiles(rows)
    weight[-1:] = 0.0
    arguments = query.to(DEVICE), rows.to(DEVICE), there(negatives)
    exact = query.double(), rows.double(), negatives
    log_sum, mean = gpu.attend(*arguments, first)
    true_sum, true_mean = reference.attend(*exact)
    plain_sum, plain_mean = reference.attend(query, rows, negatives)
    some = true_sum > -torch.inf
    assert log_sum.cpu().isneginf().equal(~some)
    allowed = factor * distance(plain_sum[some], true_sum[some]) + 1e-6
    assert distance(log_sum.cpu()[some], true_sum[some]) <= allowed
    error = ERROR[query.dtype]
    assert distance(mean, true_mean) <= factor * distance(plain_mean, true_mean) + error
    total = true_sum.clamp(min=-1e30).float()
    found = gpu.row_gradients(*arguments, total.to(DEVICE), weight.to(DEVICE), second)
    truth = reference.row_gradients(*exact, total.double(), weight.double())
    plain = reference.row_gradients(query, rows, negatives, total, weight)
    assert distance(found, truth) <= factor * distance(plain, truth) + error
    assert not found[negatives.count :].any()


@pytest.mark.parametrize("b, n, width", SIZES)
@pytest.mark.parametrize("way", ["plain", "offset", "masked"])
@pytest.mark.parametrize("dtype", ERROR, ids=str)
def test_no_less_exact_than_stored_scores(
    b: int, n: int, width: int, way: str, dtype: torch.dtype
) -> None:
    query, rows, negatives = operands(b, n, width, dtype)
    check(query, rows, ways(negatives, b, n)[way])


@pytest.mark.parametrize("dtype", ERROR, ids=str)
def test_large_scores_are_no_less_exact(dtype: torch.dtype) -> None:
    """Scores up to about 3,000, where the largest one grows with every tile."""
    query, rows, negatives = operands(5, 400, 40, dtype)
    rows = (rows.float() * torch.linspace(1, 300, 400).unsqueeze(1)).to(dtype)
    check(query, rows, negatives)


@pytest.mark.gpu
def test_the_same_maximum_in_many_tiles_fades_nothing() -> None:
    """A rounding error in the change of the maximum, which is 0, would add up over the tiles."""
    # TF32 represents 1.25 and its square exactly.
    query, rows = torch.full((1, 16), 1.25), torch.full((64 * 50_000, 16), 1.25)
    negatives = there(Negatives(torch.tensor([-1]), len(rows)))
    log_sum, mean = gpu.attend(query.to(DEVICE), rows.to(DEVICE), negatives, tiles(rows)[0])
    truth = torch.tensor(len(rows)).double().log() + 16 * 1.25**2
    assert abs(log_sum.item() - truth) < 1e-5
    torch.testing.assert_close(mean.cpu(), query, rtol=1e-5, atol=0)


@pytest.mark.parametrize("masked", [False, True])
def test_a_query_without_negatives_has_minus_infinity_and_zeros(masked: bool) -> None:
    query, rows = torch.randn(2, 20).to(DEVICE), torch.randn(70, 20).to(DEVICE)
    target = torch.tensor([0, -1], device=DEVICE)
    pairs = torch.arange(2).repeat_interleave(70), torch.arange(70).repeat(2)
    bits = bit_mask(pairs, 2, 70).to(DEVICE) if masked else None
    negatives = Negatives(target, 70 if masked else 0, bits=bits)
    for engine in (gpu, reference):
        log_sum, mean = engine.attend(query, rows, negatives)
        assert log_sum.isneginf().all()
        assert not mean.any()
        weight = torch.ones(2, device=DEVICE)
        assert not engine.row_gradients(query, rows, negatives, weight, weight).any()


def test_no_queries_are_no_work() -> None:
    query, rows = torch.empty(0, 20, device=DEVICE), torch.randn(70, 20).to(DEVICE)
    none = torch.empty(0, dtype=torch.int64, device=DEVICE)
    log_sum, mean = gpu.attend(query, rows, Negatives(none, 70))
    assert (log_sum.shape, mean.shape) == ((0,), (0, 20))
    empty = query[:, 0]
    assert not gpu.row_gradients(query, rows, Negatives(none, 70), empty, empty).any()


def test_chunks_cover_every_width_with_little_more() -> None:
    assert gpu.chunks(200) == (128, 64, 16)
    assert gpu.chunks(128) == (128, 0, 0)
    assert gpu.chunks(1) == (16, 0, 0)
    for width in range(1, MOST_WIDTH + 1):
        parts = gpu.chunks(width)
        assert width <= sum(parts) < width + max(16, width * 0.34), width
        assert all(part in (0, 16, 32, 64, 128, 256) for part in parts)
        assert parts == tuple(sorted(parts, reverse=True))


def test_ranges_of_rows_fill_the_last_wave() -> None:
    blocks, parts = gpu._split(tiles=63, blocks=39063, slots=132, most=32)
    assert parts * blocks >= 39063 > (parts - 1) * blocks
    assert parts * 63 % 132 > 0.97 * 132
    assert gpu._split(tiles=8, blocks=228, slots=132, most=262)[1] * 8 in range(120, 133)
    assert gpu._split(tiles=1, blocks=0, slots=132, most=9) == (1, 1)
    assert gpu._split(tiles=500, blocks=10, slots=132, most=1) == (10, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ERROR, ids=str)
@pytest.mark.parametrize("width", [64, 100, 128, 200, 256])
def test_the_tiles_of_a_card_are_no_less_exact(width: int, dtype: torch.dtype) -> None:
    query, rows, negatives = operands(1000, 20_011, width, dtype)
    arguments = query.to(DEVICE), rows.to(DEVICE), there(negatives)
    log_sum, mean = gpu.attend(*arguments)
    true_sum, true_mean = reference.attend(query.double(), rows.double(), negatives)
    error = 1e-5 if dtype is torch.float32 else 3e-3
    assert distance(log_sum, true_sum) < 1e-5
    assert distance(mean, true_mean) < error
    weight = torch.rand(1000)
    found = gpu.row_gradients(*arguments, log_sum, weight.to(DEVICE))
    truth = reference.row_gradients(
        query.double(), rows.double(), negatives, true_sum, weight.double()
    )
    assert distance(found, truth) < error
    again = gpu.row_gradients(*arguments, log_sum, weight.to(DEVICE))
    assert found.equal(again)  # no atomic adds
    assert gpu.attend(*arguments)[1].equal(mean)
