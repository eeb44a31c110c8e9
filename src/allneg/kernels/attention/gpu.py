"""Attention to a table in Triton: a tile of scores lives in registers and is used up there.

`attend`: a program keeps a tile of queries and goes through a range of rows, with the sum of
exponentials and the mean of each query; the ranges of a query are merged afterwards. Exponentials
are relative to an anchor. It need not be the largest score: float32 and bfloat16 have exponents
enough for scores that differ by a factor of 2 ** 60 in their exponentials. So with `Tile.fixed` the
anchor is an early score, which saves the maximum and the rescaling of sums. A second run repairs
results whose sums left that range, which no batch of a usual training has.
`row_gradients`: a program keeps a tile of rows and goes through all queries. Neither uses atomic
adds.
`count_better`: as `attend`, with counts instead of sums. Queries that do not fit into shared memory
are loaded again for each tile, a chunk of columns at a time, so rows may have any width.
`pair_scores`: the diagonals of such tiles, by the same products in the same order.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from allneg.kernels import attention
from allneg.kernels.attention import programs_gpu

if TYPE_CHECKING:
    from allneg.kernels.attention import Negatives

_MOST_QUERIES = 128  # of a tile
_INTERPRETED = bool(triton.knobs.runtime.interpret)


@dataclass(frozen=True)
class Tile:
    """The work of one program, and how it is compiled."""

    queries: int
    rows: int
    warps: int
    stages: int  # tiles that are loaded ahead
    resident: int = 1  # programs that a multiprocessor holds
    held: bool = False  # the operand that stays is in registers, not in shared memory
    tma: bool = False  # the GPU's bulk copy engine loads the other operand
    fixed: bool = False  # of `attend`: the anchor of the exponentials does not change
    chunk: int = 0  # of `count_better`: columns that are multiplied at once; 0 for all


# The fastest on an H200 by benchmarks/bench_fused_softmax.py, for `_kind`.
ATTEND = {
    "slim": Tile(64, 128, 4, 3, resident=2, held=True, tma=True, fixed=True),
    "narrow": Tile(64, 64, 4, 3, resident=2, held=True, tma=True, fixed=True),
    "narrow, without bulk copies": Tile(64, 64, 4, 3, resident=2, fixed=True),
    "wide": Tile(128, 64, 8, 4, tma=True, fixed=True),
    "wide, without bulk copies": Tile(128, 64, 8, 3, fixed=True),
    "float32": Tile(128, 32, 8, 2),
}
GRADIENTS = {
    "slim": Tile(128, 64, 4, 3, held=True, tma=True),
    "narrow": Tile(64, 64, 4, 3, held=True, tma=True),
    "narrow, without bulk copies": Tile(64, 64, 4, 3),
    "wide": Tile(64, 128, 8, 3),
    "wide, without bulk copies": Tile(64, 128, 8, 3),
    "float32": Tile(32, 128, 8, 2),
}
# Of `count_better`, for bfloat16 rows of up to so many numbers; by benchmarks/bench_rank_large.py.
COUNT = {208: Tile(128, 64, 8, 2, resident=2), 256: Tile(128, 128, 8, 2)}
CHUNKED = {  # of other rows, by the bytes of a number
    2: Tile(128, 128, 8, 3, resident=2, chunk=64),
    4: Tile(128, 128, 8, 3, resident=2, chunk=32),
}
_ANSWERS = 2  # of a query in `count_better`; a query with more is repeated
_SLIM = 128
_NARROW = 208  # beyond it, the sums of 64 rows exceed the registers of 4 warps


def attend(
    query: Tensor, rows: Tensor, negatives: Negatives, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    (b, width), count = query.shape, negatives.count
    tile = tile or ATTEND[_kind(rows)]
    tiles, blocks = triton.cdiv(b, tile.queries), triton.cdiv(count, tile.rows)
    slots = _multiprocessors(rows.device) * tile.resident
    part, parts = _split(tiles, blocks, slots, max(1, attention.PARTIAL_ROWS // max(1, b)))
    log_sums, state, means, mean = (
        torch.empty(shape, dtype=torch.float32, device=rows.device)
        for shape in ((parts, b), (2, b), (parts, b, width), (b, width))
    )
    if b:
        own = torch.arange(b, device=rows.device) // tile.queries * (blocks + 1)
        hits = _hits(negatives, tile, own, tiles * (blocks + 1))
        repairs = hits.new_empty(tiles * parts, dtype=torch.int8)
        given = (
            query, rows, *_pointers(negatives), hits, log_sums, means, repairs,
            *_descriptors(rows[: max(1, count)], tile.rows, tile), b, count, part * tile.rows,
        )  # fmt: skip
        options = _options(rows, negatives, tile)
        programs_gpu.attend[(tiles, parts)](*given, **options, FIXED=tile.fixed, REPAIR=False)
        if tile.fixed:
            programs_gpu.attend[(tiles, parts)](*given, **options, FIXED=False, REPAIR=True)
        programs_gpu.merge[(b,)](
            query, rows, negatives.target, log_sums, means, state, mean, b, parts, count, W=width,
            BLOCK=triton.next_power_of_2(width), PARTS=8, num_warps=4,
        )  # fmt: skip
    return state, mean


def query_gradients(
    query: Tensor, rows: Tensor, negatives: Negatives, mean: Tensor, log_sum: Tensor,
    state: Tensor, weight: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    (b, width), d_query, d_answers = query.shape, torch.empty_like(mean), torch.empty_like(mean)
    # A thread of `row_gradients` needs the targets and shifts of many queries: packed, they are
    # half as many loads. Padding has no target and the weight 0.
    packed = negatives.target.new_empty(triton.cdiv(b, _MOST_QUERIES) * _MOST_QUERIES)
    if b:
        programs_gpu.query_gradients[(len(packed),)](
            query, rows, negatives.target, state, log_sum, mean, weight, d_query, d_answers,
            packed, b, negatives.count, W=width, BLOCK=triton.next_power_of_2(width), num_warps=1,
        )  # fmt: skip
    return d_query, d_answers, packed


def row_gradients(
    query: Tensor, rows: Tensor, negatives: Negatives, shift: Tensor, tile: Tile | None = None
) -> Tensor:
    (b, n), tile = (len(query), len(rows)), tile or GRADIENTS[_kind(rows)]
    out = torch.empty(rows.shape, dtype=torch.float32, device=rows.device)
    if not b:
        return out.zero_()
    blocks = triton.cdiv(n, tile.rows)
    programs_gpu.row_gradients[(blocks,)](
        query, rows, *_pointers(negatives)[1:], _hits(negatives, tile, 0, blocks), shift, out,
        *_descriptors(query, tile.queries, tile), b, n, negatives.count,
        **_options(rows, negatives, tile),
    )  # fmt: skip
    return out


def pair_scores(
    query: Tensor, rows: Tensor, of_query: Tensor, of_row: Tensor, tile: Tile | None = None
) -> Tensor:
    count, tile = len(of_row), tile or _count_tile(rows)
    out = torch.empty(count, dtype=torch.float32, device=rows.device)
    if count:
        pairs = min(tile.queries, tile.rows)
        programs_gpu.pair_scores[(triton.cdiv(count, pairs),)](
            query, rows, of_query.contiguous(), of_row.contiguous(), out, count, P=pairs,
            **_count_options(rows, tile),
        )  # fmt: skip
    return out


def count_better(
    query: Tensor, rows: Tensor, answer: Tensor, group: Tensor, tile: Tile | None = None
) -> Tensor:
    n, tile = len(rows), tile or _count_tile(rows)
    if not len(answer) or not n:
        return torch.zeros(len(answer), 2, dtype=torch.int64, device=rows.device)
    # A lane is a query with up to _ANSWERS answers.
    times = torch.bincount(group, minlength=len(query))
    position = torch.arange(len(group), device=rows.device) - (times.cumsum(0) - times)[group]
    lanes = (times + _ANSWERS - 1) // _ANSWERS
    place = position % _ANSWERS, (lanes.cumsum(0) - lanes)[group] + position // _ANSWERS
    own = query.repeat_interleave(lanes, dim=0)
    answers = answer.new_zeros(_ANSWERS, len(own))
    answers[place] = answer
    tiles, blocks = triton.cdiv(len(own), tile.queries), triton.cdiv(n, tile.rows)
    slots = _multiprocessors(rows.device) * tile.resident
    part, parts = _split(tiles, blocks, slots, blocks)
    out = torch.empty(parts, _ANSWERS, 2, len(own), dtype=torch.int32, device=rows.device)
    if tile.chunk:
        own = TensorDescriptor.from_tensor(own, [tile.queries, tile.chunk])
        described = (TensorDescriptor.from_tensor(rows, [tile.rows, tile.chunk]),) * 3
    else:
        described = _descriptors(rows, tile.rows, replace(tile, tma=True))
    programs_gpu.count_better[(tiles, parts)](
        own, answers, out, *described, answers.shape[1], n, part * tile.rows,
        **_count_options(rows, tile),
    )  # fmt: skip
    above, below = out.sum(0)[place[0], :, place[1]].unbind(1)
    # The rows that fill the last tile are zeros, and so are their scores.
    more = blocks * tile.rows - n
    above, below = above - more * (answer < 0), below - more * (answer > 0)
    return torch.stack([above, n - above - below], 1)


def _count_tile(rows: Tensor) -> Tile:
    (_, width), size = rows.shape, rows.element_size()
    held = COUNT.items() if size == 2 else ()
    return next((tile for most, tile in held if width <= most), CHUNKED[size])


def _count_options(rows: Tensor, tile: Tile) -> dict[str, Any]:
    width = rows.shape[1]
    first, second, third = (0, 0, 0) if tile.chunk else chunks(width)
    return {
        "W": width, "W0": first, "W1": second, "W2": third, "C": tile.chunk,
        "Q": tile.queries, "R": tile.rows, "PRECISION": _precision(),
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip


def _precision() -> str:
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    return "interpreted" if _INTERPRETED else precision


def _descriptors(rows: Tensor, height: int, tile: Tile) -> tuple[Any, Any, Any]:
    """The chunks of `height` rows, for the bulk copy engine; anything for other tiles."""
    if not tile.tma:
        return rows, rows, rows
    first, *more = (
        TensorDescriptor.from_tensor(rows, [height, chunk])
        for chunk in chunks(rows.shape[1])
        if chunk
    )
    second, third = (*more, first, first)[:2]
    return first, second, third


def _kind(rows: Tensor) -> str:
    """Which tiles suit these rows."""
    width = rows.shape[1]
    if rows.element_size() == 4:
        return "float32"
    kind = "narrow" if width <= _NARROW else "wide"
    # Bulk copies need rows that start at multiples of 16 bytes.
    if width % 8 or rows.data_ptr() % 16 or not rows.numel() or not _has_tma(rows.device):
        return f"{kind}, without bulk copies"
    return "slim" if width <= _SLIM else kind


@cache
def _has_tma(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)


def _pointers(negatives: Negatives) -> tuple[Tensor, Tensor, Tensor]:
    """Targets, offsets and bits; anything where there are none."""
    target, offset, bits = negatives.target, negatives.offset, negatives.bits
    return target, target if offset is None else offset, target if bits is None else bits


def _hits(negatives: Negatives, tile: Tile, own: Tensor | int, size: int) -> Tensor:
    """Which tiles have answers, one byte each: the others need no comparisons with targets."""
    target, count = negatives.target, negatives.count
    if negatives.bits is not None:
        return target  # not read
    # An answer elsewhere hits any tile, which does no harm.
    place = own + target.clamp(0, max(0, count - 1)) // tile.rows
    return torch.zeros(size, dtype=torch.int8, device=target.device).index_fill_(0, place, 1)


def _options(rows: Tensor, negatives: Negatives, tile: Tile) -> dict[str, Any]:
    width = rows.shape[1]
    first, second, third = chunks(width)
    return {
        "W": width, "W0": first, "W1": second, "W2": third, "Q": tile.queries, "R": tile.rows,
        "OFFSET": negatives.offset is not None, "BITS": negatives.bits is not None,
        "PRECISION": _precision(),
        "HELD": tile.held and not _INTERPRETED and rows.element_size() == 2, "TMA": tile.tma,
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
