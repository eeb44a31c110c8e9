"""Attention to a table in Triton: a tile of scores lives in registers and is used up there.

`attend`: a program keeps a tile of queries and goes through a range of rows, with the running
maximum, sum and mean of each query; the ranges of a query are merged afterwards. `row_gradients`: a
program keeps a tile of rows and goes through all queries. Neither uses atomic adds.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"
from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from allneg.kernels import attention

if TYPE_CHECKING:
    from allneg.kernels.attention import Negatives

_INTERPRETED = bool(triton.knobs.runtime.interpret)
_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)
_LAZY = tl.constexpr(8.0)  # a sum may exceed its anchor by 2 to this power


@dataclass(frozen=True)
class Tile:
    """The work of one program, and how it is compiled."""

    queries: int
    rows: int
    warps: int
    stages: int  # tiles that are loaded ahead
    resident: int = 1  # programs that a multiprocessor holds
    lazy: bool = False  # rescale the sums only when the maximum has grown much


# Chosen by registers and shared memory on an H200, not yet by time; see
# benchmarks/bench_fused_softmax.py. Keys: bytes per number, and whether a row has more than 128.
ATTEND = {
    (2, False): Tile(128, 64, 8, 3),
    (2, True): Tile(128, 64, 8, 3),
    (4, False): Tile(64, 32, 4, 2),
    (4, True): Tile(64, 32, 4, 2),
}
GRADIENTS = {
    (2, False): Tile(64, 128, 8, 2),
    (2, True): Tile(64, 128, 8, 2),
    (4, False): Tile(32, 64, 4, 2),
    (4, True): Tile(32, 64, 4, 2),
}


def attend(
    query: Tensor, rows: Tensor, negatives: Negatives, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    b, width = query.shape
    tile = tile or ATTEND[_key(rows)]
    tiles, blocks = triton.cdiv(b, tile.queries), triton.cdiv(negatives.count, tile.rows)
    slots = _multiprocessors(rows.device) * tile.resident
    part, parts = _split(tiles, blocks, slots, max(1, attention.PARTIAL_ROWS // max(1, b)))
    log_sums = torch.empty(parts, b, dtype=torch.float32, device=rows.device)
    means = torch.empty(parts, b, width, dtype=torch.float32, device=rows.device)
    log_sum, mean = torch.empty_like(log_sums[0]), torch.empty_like(means[0])
    if b:
        _attend[(tiles, parts)](
            query, rows, *_pointers(negatives), log_sums, means, b, negatives.count,
            part * tile.rows, **_options(rows, negatives, tile), LAZY=tile.lazy,
        )  # fmt: skip
        block = triton.next_power_of_2(width)
        _merge[(b,)](log_sums, means, log_sum, mean, b, parts, W=width, BLOCK=block, num_warps=1)
    return log_sum, mean


def row_gradients(
    query: Tensor, rows: Tensor, negatives: Negatives, log_sum: Tensor, weight: Tensor,
    tile: Tile | None = None,
) -> Tensor:  # fmt: skip
    (b, n), tile = (len(query), len(rows)), tile or GRADIENTS[_key(rows)]
    out = torch.empty(rows.shape, dtype=torch.float32, device=rows.device)
    # weight · exp(score - log_sum) = 2 ** (score · log2 e - shift): exact enough for shares that
    # are rounded to bfloat16. For float32, the difference of score and log_sum comes first.
    log_weight = weight.log2()
    shift = log_sum if rows.dtype is torch.float32 else log_sum * _LOG2E.value - log_weight
    # A thread needs the targets and shifts of many queries: packed, they are half as many loads.
    packed = F.pad(shift, (0, -b % tile.queries), value=torch.inf).view(torch.int32)
    target = F.pad(negatives.target, (0, -b % tile.queries), value=-1)
    packed = (target << 32) | (packed.to(torch.int64) & 0xFFFFFFFF)
    _row_gradients[(triton.cdiv(n, tile.rows),)](
        query, rows, *_pointers(negatives)[1:], packed, log_weight, out, b, n, negatives.count,
        **_options(rows, negatives, tile),
    )  # fmt: skip
    return out


def _key(rows: Tensor) -> tuple[int, bool]:
    return rows.element_size(), rows.shape[1] > 128


def _pointers(negatives: Negatives) -> tuple[Tensor, Tensor, Tensor]:
    """Targets, offsets and bits; anything where there are none."""
    target, offset, bits = negatives.target, negatives.offset, negatives.bits
    return target, target if offset is None else offset, target if bits is None else bits


def _options(rows: Tensor, negatives: Negatives, tile: Tile) -> dict[str, Any]:
    width = rows.shape[1]
    first, second, third = chunks(width)
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    return {
        "W": width, "W0": first, "W1": second, "W2": third, "Q": tile.queries, "R": tile.rows,
        "OFFSET": negatives.offset is not None, "BITS": negatives.bits is not None,
        "PRECISION": "interpreted" if _INTERPRETED else precision,
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip


@cache
def chunks(width: int) -> tuple[int, int, int]:
    """Up to three powers of 2, from 16 on, that cover a row: 128 + 64 + 16 for 200 numbers.

    Triton's tiles are powers of 2, and a tile of 256 would waste a fifth of the products.
    """
    powers = [256, 128, 64, 32, 16, 0]
    covers = [
        (first, second, third)
        for first, second, third in itertools.combinations_with_replacement(powers, 3)
        if width <= first + second + third <= attention.MOST_WIDTH
    ]
    # Each chunk costs a few instructions.
    return min(covers, key=lambda some: sum(some) + 8 * sum(chunk > 0 for chunk in some))


@cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 3  # of the interpreter: some queries are split
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def _split(tiles: int, blocks: int, slots: int, most: int) -> tuple[int, int]:
    """Blocks of rows in a range, and the number of ranges, for the shortest time.

    All programs take equally long, so the last wave should fill the GPU. A program starts and ends
    in about the time of two blocks.
    """

    def time(parts: int) -> Any:
        return triton.cdiv(tiles * parts, slots) * (triton.cdiv(blocks, parts) + 2)

    best = min(range(1, min(most, blocks, slots) + 1), key=time, default=1)
    part = max(1, triton.cdiv(blocks, best))
    return part, max(1, triton.cdiv(blocks, part))


@triton.jit
def _load(pointer, lane, left, W: tl.constexpr, FIRST: tl.constexpr, CHUNK: tl.constexpr):
    """Columns from FIRST on of the rows at `pointer`, of which `left` exist: (lanes, CHUNK)."""
    column = FIRST + tl.arange(0, CHUNK)
    inside = (lane < left)[:, None]
    if FIRST + CHUNK > W:
        inside = inside & (column < W)[None, :]
    return tl.load(pointer + (lane[:, None] * W + column[None, :]), mask=inside, other=0.0)


@triton.jit
def _store(pointer, values, lane, left, W: tl.constexpr, FIRST: tl.constexpr, CHUNK: tl.constexpr):
    column = FIRST + tl.arange(0, CHUNK)
    inside = (lane < left)[:, None] & (column < W)[None, :]
    tl.store(pointer + (lane[:, None] * W + column[None, :]), values, mask=inside)


@triton.jit
def _dot(a, b, plus, PRECISION: tl.constexpr):
    if PRECISION == "interpreted":  # Triton's interpreter multiplies the bits of bfloat16
        a, b = a.to(tl.float32), b.to(tl.float32)
        return tl.dot(a, b, plus, input_precision="ieee")
    else:  # noqa: RET505
        return tl.dot(a, b, plus, input_precision=PRECISION)


@triton.jit
def _masked(bits, query, inside, first, lane, b, R: tl.constexpr):
    """Bits of a tile of rows from `first` on; `query` and `lane` are along different axes."""
    word = bits + tl.cast(first // 64, tl.int64) * b + query
    words = tl.load(word, mask=inside, other=0)
    if R > 64:  # a tile of 128 rows has two words
        words = tl.where(lane < 64, words, tl.load(word + b, mask=inside, other=0))
    return ((words >> ((first + lane) % 64).to(tl.int64)) & 1) != 0


@triton.jit(do_not_specialize=["b", "count", "part"])
def _attend(
    query, rows, target, offset, bits, log_sums, means, b, count, part,
    W: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr,
    Q: tl.constexpr, R: tl.constexpr, OFFSET: tl.constexpr, BITS: tl.constexpr,
    PRECISION: tl.constexpr, LAZY: tl.constexpr,
):  # fmt: skip
    q0, lane, row_lane = tl.program_id(0) * Q, tl.arange(0, Q), tl.arange(0, R)
    left = b - q0
    own = tl.load(target + q0 + lane, mask=lane < left, other=-1).to(tl.int32)
    base = query + q0.to(tl.int64) * W
    a0 = _load(base, lane, left, W, 0, W0)
    sum0 = tl.zeros([Q, W0], tl.float32)
    if W1:
        a1 = _load(base, lane, left, W, W0, W1)
        sum1 = tl.zeros([Q, W1], tl.float32)
    if W2:
        a2 = _load(base, lane, left, W, W0 + W1, W2)
        sum2 = tl.zeros([Q, W2], tl.float32)
    # Sums are multiples of 2 ** anchor, where anchor is the largest score so far, times log2 e.
    anchor = tl.full([Q], float("-inf"), tl.float32)
    total = tl.zeros([Q], tl.float32)
    start = tl.program_id(1) * part
    stop = tl.minimum(start + part, count)
    for first in tl.range(start, stop, R):
        row = first + row_lane
        base = rows + tl.cast(first, tl.int64) * W
        e0 = _load(base, row_lane, stop - first, W, 0, W0)
        scores = _dot(a0, tl.trans(e0), None, PRECISION)
        if W1:
            e1 = _load(base, row_lane, stop - first, W, W0, W1)
            scores = _dot(a1, tl.trans(e1), scores, PRECISION)
        if W2:
            e2 = _load(base, row_lane, stop - first, W, W0 + W1, W2)
            scores = _dot(a2, tl.trans(e2), scores, PRECISION)
        if OFFSET:
            scores += tl.load(offset + row, mask=row < stop, other=0.0)[None, :]
        counts = (row[None, :] != own[:, None]) & (row < stop)[None, :]
        if BITS:
            inside = (lane < left)[:, None]
            hidden = _masked(bits, (q0 + lane)[:, None], inside, first, row_lane[None, :], b, R)
            counts = counts & (hidden == 0)
        scores = tl.where(counts, scores, float("-inf"))
        # `tl.maximum` keeps the multiplication away from the difference of two anchors: fused into
        # it, the difference of equal ones would not be 0.
        largest = tl.maximum(anchor, tl.max(scores, 1) * _LOG2E)
        if LAZY:
            largest = tl.where(largest > anchor + _LAZY, largest, anchor)
        finite = tl.where(largest == float("-inf"), 0.0, largest)
        shares = tl.exp2(scores * _LOG2E - finite[:, None])
        fade = tl.exp2(anchor - finite)
        anchor = largest
        total = total * fade + tl.sum(shares, 1)
        if LAZY:
            if tl.min(fade, 0) < 1.0:
                sum0 *= fade[:, None]
                if W1:
                    sum1 *= fade[:, None]
                if W2:
                    sum2 *= fade[:, None]
        else:
            sum0 *= fade[:, None]
            if W1:
                sum1 *= fade[:, None]
            if W2:
                sum2 *= fade[:, None]
        shares = shares.to(e0.dtype)
        sum0 = _dot(shares, e0, sum0, PRECISION)
        if W1:
            sum1 = _dot(shares, e1, sum1, PRECISION)
        if W2:
            sum2 = _dot(shares, e2, sum2, PRECISION)
    place = tl.program_id(1).to(tl.int64) * b + q0
    tl.store(log_sums + place + lane, anchor + tl.log2(total), mask=lane < left)
    share = 1.0 / tl.where(total > 0, total, 1.0)[:, None]
    base = means + place * W
    _store(base, sum0 * share, lane, left, W, 0, W0)
    if W1:
        _store(base, sum1 * share, lane, left, W, W0, W1)
    if W2:
        _store(base, sum2 * share, lane, left, W, W0 + W1, W2)


@triton.jit(do_not_specialize=["b", "parts"])
def _merge(log_sums, means, log_sum, mean, b, parts, W: tl.constexpr, BLOCK: tl.constexpr):
    """The means of a query's ranges, weighted by their sums; log_sums are to the base 2."""
    q = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < W
    anchor, total = float("-inf"), 0.0
    result = tl.zeros([BLOCK], tl.float32)
    for part in range(parts):
        place = part * b.to(tl.int64) + q
        of_part = tl.load(log_sums + place)
        largest = tl.maximum(anchor, of_part)
        finite = tl.where(largest == float("-inf"), 0.0, largest)
        fade, share = tl.exp2(anchor - finite), tl.exp2(of_part - finite)
        values = tl.load(means + place * W + column, mask=inside, other=0.0)
        result = result * fade + values * share
        total = total * fade + share
        anchor = largest
    tl.store(log_sum + q, (anchor + tl.log2(total)) * _LN2)
    tl.store(mean + q * W + column, result / tl.where(total > 0, total, 1.0), mask=inside)


@triton.jit(do_not_specialize=["b", "n", "count"])
def _row_gradients(
    query, rows, offset, bits, packed, log_weight, out, b, n, count,
    W: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr,
    Q: tl.constexpr, R: tl.constexpr, OFFSET: tl.constexpr, BITS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    r0, lane, query_lane = tl.program_id(0) * R, tl.arange(0, R), tl.arange(0, Q)
    row, left = r0 + lane, count - r0
    base = rows + r0.to(tl.int64) * W
    e0 = _load(base, lane, left, W, 0, W0)
    sum0 = tl.zeros([R, W0], tl.float32)
    if W1:
        e1 = _load(base, lane, left, W, W0, W1)
        sum1 = tl.zeros([R, W1], tl.float32)
    if W2:
        e2 = _load(base, lane, left, W, W0 + W1, W2)
        sum2 = tl.zeros([R, W2], tl.float32)
    if OFFSET:
        offsets = tl.load(offset + row, mask=lane < left, other=0.0)
    for first in tl.range(0, b, Q):
        q = first + query_lane
        base = query + tl.cast(first, tl.int64) * W
        a0 = _load(base, query_lane, b - first, W, 0, W0)
        scores = _dot(e0, tl.trans(a0), None, PRECISION)
        if W1:
            a1 = _load(base, query_lane, b - first, W, W0, W1)
            scores = _dot(e1, tl.trans(a1), scores, PRECISION)
        if W2:
            a2 = _load(base, query_lane, b - first, W, W0 + W1, W2)
            scores = _dot(e2, tl.trans(a2), scores, PRECISION)
        if OFFSET:
            scores += offsets[:, None]
        both = tl.load(packed + q)
        own, less = (both >> 32).to(tl.int32), both.to(tl.int32).to(tl.float32, bitcast=True)
        if e0.dtype == tl.float32:
            plus = tl.load(log_weight + q, mask=q < b, other=float("-inf"))
            shares = tl.exp2((scores - less[None, :]) * _LOG2E + plus[None, :])
        else:
            shares = tl.exp2(scores * _LOG2E - less[None, :])
        counts = row[:, None] != own[None, :]
        if BITS:
            hidden = _masked(bits, q[None, :], (q < b)[None, :], r0, lane[:, None], b, R)
            counts = counts & (hidden == 0)
        shares = tl.where(counts, shares, 0.0).to(e0.dtype)
        sum0 = _dot(shares, a0, sum0, PRECISION)
        if W1:
            sum1 = _dot(shares, a1, sum1, PRECISION)
        if W2:
            sum2 = _dot(shares, a2, sum2, PRECISION)
    counts = (lane < left)[:, None]
    base = out + r0.to(tl.int64) * W
    _store(base, tl.where(counts, sum0, 0.0), lane, n - r0, W, 0, W0)
    if W1:
        _store(base, tl.where(counts, sum1, 0.0), lane, n - r0, W, W0, W1)
    if W2:
        _store(base, tl.where(counts, sum2, 0.0), lane, n - r0, W, W0 + W1, W2)
