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


@pytest.fixture
def little_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are padded to a multiple of what a tile of `tiles` has."""
    if not GPU:
        monkeypatch.setattr(gpu, "_MOST_QUERIES", 16)


def tiles(rows: Tensor) -> tuple[Any, Any]:
    """Those of `attend` and `row_gradients`; small ones for the interpreter."""
    if GPU:
        kind = gpu._kind(rows)
        return gpu.ATTEND[kind], gpu.GRADIENTS[kind]
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


def results(
    engine: Any, query: Tensor, rows: Tensor, negatives: Negatives, weight: Tensor, *tiles: Any
) -> dict[str, Tensor]:
    """What an engine finds; `tiles` are those of `attend` and `row_gradients`."""
    operands = query, rows, negatives
    state, mean = engine.attend(*operands, *tiles[:1])
    d_query, d_answers, shift = engine.query_gradients(*operands, mean, state[1], state, weight)
    d_rows = engine.row_gradients(*operands, shift, *tiles[1:])
    return {
        "answer": state[0], "log_sum": state[1], "mean": mean, "d_query": d_query,
        "d_answers": d_answers, "d_rows": d_rows,
    }  # fmt: skip


def check(
    query: Tensor, rows: Tensor, negatives: Negatives, factor: float = 2.0, **changes: bool
) -> None:
    """Errors against float64 are at most `factor` times those of the definition in float32.

    `changes` are of the tiles.
    """
    weight = torch.rand(len(query))
    weight[-1:] = 0.0
    operands = query.to(DEVICE), rows.to(DEVICE), there(negatives), weight.to(DEVICE)
    found = results(gpu, *operands, *(replace(tile, **changes) for tile in tiles(rows)))
    exact = results(reference, query.double(), rows.double(), negatives, weight.double())
    plain = results(reference, query, rows, negatives, weight)
    for name, truth in exact.items():
        ours, some = found[name].cpu(), truth > -torch.inf
        assert ours.isneginf().equal(~some)
        error = 1e-6 if name in ("answer", "log_sum") else ERROR[query.dtype]
        allowed = factor * distance(plain[name][some], truth[some]) + error
        assert distance(ours[some], truth[some]) <= allowed, name
    assert not found["d_rows"][negatives.count :].any()


@pytest.mark.usefixtures("little_padding")
@pytest.mark.parametrize("b, n, width", SIZES)
@pytest.mark.parametrize("way", ["plain", "offset", "masked"])
@pytest.mark.parametrize("dtype", ERROR, ids=str)
def test_no_less_exact_than_stored_scores(
    b: int, n: int, width: int, way: str, dtype: torch.dtype
) -> None:
    query, rows, negatives = operands(b, n, width, dtype)
    check(query, rows, ways(negatives, b, n)[way])


@pytest.mark.usefixtures("little_padding")
@pytest.mark.parametrize("way", ["plain", "offset", "masked"])
@pytest.mark.parametrize("tma", [False, True])
def test_a_fixed_anchor_is_no_less_exact(way: str, tma: bool) -> None:
    query, rows, negatives = operands(7, 200, 40, torch.bfloat16)
    check(query, rows, ways(negatives, 7, 200)[way], fixed=True, tma=tma)


@pytest.mark.usefixtures("little_padding")
@pytest.mark.parametrize("dtype", ERROR, ids=str)
@pytest.mark.parametrize("fixed", [False, True])
def test_large_scores_are_no_less_exact(dtype: torch.dtype, fixed: bool) -> None:
    """Scores up to about 3,000, where the largest one grows with every tile."""
    query, rows, negatives = operands(5, 400, 40, dtype)
    rows = (rows.float() * torch.linspace(1, 300, 400).unsqueeze(1)).to(dtype)
    # `row_gradients` takes log-sum-exp and weight of a query as one number, here about 4,300.
    check(query, rows, negatives, factor=4.0, fixed=fixed)


@pytest.mark.gpu
def test_the_same_maximum_in_many_tiles_fades_nothing() -> None:
    """A rounding error in the change of the maximum, which is 0, would add up over the tiles."""
    # TF32 represents 1.25 and its square exactly.
    query, rows = torch.full((1, 16), 1.25), torch.full((64 * 50_000, 16), 1.25)
    negatives = there(Negatives(torch.tensor([-1]), len(rows)))
    state, mean = gpu.attend(query.to(DEVICE), rows.to(DEVICE), negatives, tiles(rows)[0])
    truth = torch.tensor(len(rows)).double().log() + 16 * 1.25**2
    assert abs(state[1].item() - truth) < 1e-5
    torch.testing.assert_close(mean.cpu(), query, rtol=1e-5, atol=0)


@pytest.mark.parametrize("masked", [False, True])
def test_a_query_without_negatives_has_minus_infinity_and_zeros(masked: bool) -> None:
    query, rows = torch.randn(2, 20).to(DEVICE), torch.randn(70, 20).to(DEVICE)
    target = torch.tensor([0, -1], device=DEVICE)
    pairs = torch.arange(2).repeat_interleave(70), torch.arange(70).repeat(2)
    bits = bit_mask(pairs, 2, 70).to(DEVICE) if masked else None
    negatives = Negatives(target, 70 if masked else 0, bits=bits)
    weight = torch.ones(2, device=DEVICE)
    for engine in (gpu, reference):
        found = results(engine, query, rows, negatives, weight)
        assert found["log_sum"].isneginf().all()
        assert found["answer"].isfinite().tolist() == [masked, False]
        assert not any(found[name].any() for name in ("mean", "d_query", "d_answers", "d_rows"))


def test_no_queries_are_no_work() -> None:
    query, rows = torch.empty(0, 20, device=DEVICE), torch.randn(70, 20).to(DEVICE)
    none = torch.empty(0, dtype=torch.int64, device=DEVICE)
    found = results(gpu, query, rows, Negatives(none, 70), query[:, 0])
    assert (found["log_sum"].shape, found["d_query"].shape) == ((0,), (0, 20))
    assert not found["d_rows"].any()


def test_chunks_cover_every_width_with_little_more() -> None:
    assert gpu.chunks(200) == (128, 64, 16)
    assert gpu.chunks(128) == (128, 0, 0)
    assert gpu.chunks(1) == (16, 0, 0)
    for width in range(1, MOST_WIDTH + 1):
        parts = gpu.chunks(width)
        assert width <= sum(parts) < width + max(16, width * 0.34), width
        assert all(part in (0, 16, 32, 64, 128, 256) for part in parts)
        assert parts == tuple(sorted(parts, reverse=True))


def test_every_kind_of_rows_has_tiles_that_suit() -> None:
    kinds = {
        (width, dtype): gpu._kind(torch.zeros(5, width, dtype=dtype, device=DEVICE))
        for width in (64, 100, 200, 250, 256)
        for dtype in (torch.bfloat16, torch.float32)
    }
    assert set(kinds.values()) == set(gpu.ATTEND) == set(gpu.GRADIENTS)
    odd = torch.zeros(5 * 64 + 1, dtype=torch.bfloat16, device=DEVICE)[1:].view(5, 64)
    assert gpu._kind(odd) == kinds[100, torch.bfloat16]  # starts between multiples of 16 bytes
    for kind, tile in [*gpu.ATTEND.items(), *gpu.GRADIENTS.items()]:
        assert not (tile.tma and "without" in kind)
        assert not tile.held or tile.tma  # without bulk copies, held operands spill


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
    weight = torch.rand(1000)
    operands_there = query.to(DEVICE), rows.to(DEVICE), there(negatives), weight.to(DEVICE)
    found = results(gpu, *operands_there)
    exact = results(reference, query.double(), rows.double(), negatives, weight.double())
    for name, truth in exact.items():
        error = 3e-3 if dtype is torch.bfloat16 and name[:2] in ("d_", "me") else 1e-5
        some = truth > -torch.inf
        assert distance(found[name].cpu()[some], truth[some]) < error, name
    again = results(gpu, *operands_there)
    assert all(again[name].equal(found[name]) for name in found)  # no atomic adds
