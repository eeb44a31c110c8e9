"""Distances in float32 against packed numbers of 16 or 8 bits, forward and backward, on a GPU.

python benchmarks/bench_half_distances.py --out FILE.json

`float32` is the engine of this package with several tiles, the others are of half_distances.py.
Packed operands are prepared before the time is taken. Errors are relative, in the L2 norm, against
float64. In benchmarks/results, `library` is the engine before it loaded four numbers at once.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import half_distances
import torch
import torch.nn.functional as F
import triton
from distance import Work, _recorded, our_step
from measure import machine, measure, write_rows
from torch import Tensor

from allneg.kernels.distances import Distance, gpu, reference
from allneg.kernels.distances.gpu import Shape

SIZES = [(1000, 14541, 1000), (1024, 14592, 1024)]
TOY_SIZES = [(64, 256, 64)]
CHECKED = (190, 650)  # queries and rows whose results are compared with float64
WARPS, LANES = 4, 32
NAMES = {1: "l1", 2: "modulus"}

FORWARD = {
    1: [
        Shape(8, 8, 4, 4, 128),
        Shape(16, 8, 4, 4),
        Shape(8, 8, 4, 8, 128),
        Shape(8, 8, 4, 2),
        Shape(8, 8, 4, 4, 168),
    ],
    2: [
        Shape(16, 4, 4, 4),
        Shape(8, 8, 4, 4),
        Shape(8, 8, 4, 2, 168),
        Shape(8, 4, 4, 4, 128),
    ],
}
BACKWARD = {
    1: [
        Shape(16, 2, 4, 2, 128, lanes=16),
        Shape(16, 2, 4, 2, 128, lanes=32),
        Shape(16, 2, 4, 4, lanes=32),
        Shape(16, 2, 4, 4, lanes=16),
        Shape(32, 1, 4, 2, 128, lanes=32),
    ],
    2: [
        Shape(16, 1, 4, 2, lanes=16),
        Shape(16, 1, 4, 2, 128, lanes=16),
        Shape(16, 1, 4, 4, lanes=32),
        Shape(8, 2, 4, 2, lanes=16),
        Shape(8, 1, 4, 4, 128, lanes=16),
    ],
}


@dataclass(frozen=True)
class Packed:
    """A way to compute with packed numbers, and its tile; see half_distances.py."""

    kind: str  # f16, bf16 or u8
    rows: int  # per thread; in forward programs, queries
    others: int  # words per thread; in forward programs, rows
    span: int  # words or queries whose sums are kept in 16 bits
    root: str = "mufu"
    sign: str = "sat"
    registers: int | None = None


PACKED_FORWARD = {
    1: [
        Packed("f16", 8, 4, 8),
        Packed("f16", 8, 8, 8),
        Packed("f16", 8, 4, 4, registers=128),
        Packed("bf16", 8, 4, 8),
        Packed("u8", 8, 8, 2),
        Packed("u8", 8, 8, 4, registers=128),
        Packed("u8", 16, 8, 2),
    ],
    2: [
        Packed("f16", 8, 4, 4, "mufu"),
        Packed("f16", 8, 4, 4, "mufu", registers=128),
        Packed("f16", 8, 4, 4, "mixed"),
        Packed("f16", 8, 4, 4, "mixed", registers=128),
        Packed("f16", 8, 4, 4, "newton", registers=128),
    ],
}
PACKED_BACKWARD = {
    1: [
        Packed("f16", 16, 1, 8, sign="sat"),
        Packed("f16", 16, 1, 8, sign="sat", registers=128),
        Packed("f16", 16, 1, 8, sign="xor"),
        Packed("f16", 8, 1, 8, sign="sat", registers=128),
        Packed("bf16", 16, 1, 8, sign="xor"),
    ],
    2: [
        Packed("f16", 16, 1, 4, "mufu"),
        Packed("f16", 8, 1, 4, "mufu", registers=128),
        Packed("f16", 16, 1, 4, "mixed"),
        Packed("f16", 8, 1, 4, "mixed", registers=128),
    ],
}


def packed(x: Tensor, kind: str, parts: int, low: float, scale: float, width: int) -> Tensor:
    """Rows as words: (n, parts · dim) -> int32 (n, parts · words), `width` words per part.

    The numbers are (x - low) · scale, rounded; padding is 0 in all rows.
    """
    x = ((x - low) * scale).view(len(x), parts, -1)
    per_word = 4 if kind == "u8" else 2
    x = F.pad(x, (0, width * per_word - x.shape[2]))
    types = {"f16": torch.float16, "bf16": torch.bfloat16, "u8": torch.uint8}
    x = (x.round() if kind == "u8" else x).to(types[kind])
    return x.view(torch.int32).view(len(x), parts * width)


def _columns(words: Tensor, tile: int) -> Tensor:
    return F.pad(words, (0, 0, 0, -len(words) % tile)).T.contiguous()


def forward(way: Packed, query: Tensor, table: Tensor, parts: int) -> Callable[[], Tensor]:
    """Scores by packed numbers."""
    (b, width), n = query.shape, len(table)
    low = float(min(query.min(), table.min())) if way.kind == "u8" else 0.0
    high = float(max(query.max(), table.max(), -query.min(), -table.min()))
    # Squares of differences of float16 numbers must stay below 65504.
    scale = 255 / (high - low) if way.kind == "u8" else 1.0 if parts == 1 else 80 / high
    words = triton.cdiv(width // parts, (4 if way.kind == "u8" else 2) * way.span) * way.span
    a, e = (packed(x, way.kind, parts, low, scale, words) for x in (query, table))
    a, e = _columns(a, way.rows * WARPS), _columns(e, way.others * LANES)
    out = query.new_empty(b, n)

    def work() -> Tensor:
        grid = (a.shape[1] // (way.rows * WARPS), e.shape[1] // (way.others * LANES))
        half_distances.scores[grid](
            a, e, out, b, n, a.shape[1], e.shape[1], words, n, 1 / scale, PARTS=parts,
            KIND=way.kind, ROOT=way.root, SPAN=way.span, M1=way.rows, M2=WARPS, N1=way.others,
            N2=LANES, num_warps=WARPS, num_stages=1, maxnreg=way.registers,
        )  # fmt: skip
        return out

    return work


def backward(
    way: Packed, grad: Tensor, query: Tensor, table: Tensor, parts: int
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Both gradients by packed numbers."""
    (b, width), n, dim = query.shape, len(table), query.shape[1] // parts
    words, tile = triton.cdiv(dim, 2 * LANES) * LANES, way.rows * WARPS
    scale = 80 / float(max(query.abs().max(), table.abs().max()))
    steep = 2.0**9 / float(grad.abs().max())
    queries = triton.cdiv(b, 8 * way.span) * 8 * way.span
    a, e = (packed(x, way.kind, parts, 0.0, scale, words) for x in (query, table))
    a, e = F.pad(a, (0, 0, 0, queries - b)), F.pad(e, (0, 0, 0, -n % tile))
    twice = F.pad(grad * steep, (0, len(e) - n, 0, queries - b))
    slope = packed(twice.repeat_interleave(2, 1), way.kind, 1, 0.0, 1.0, len(e))
    half = way.sign == "sat" and parts == 1
    d_query, d_table = (torch.zeros(len(x), parts * words * 2, device=x.device) for x in (a, e))
    splits = 8 if queries % (8 * way.span) == 0 else 1

    def work() -> tuple[Tensor, Tensor]:
        d_query.zero_()
        d_table.zero_()
        half_distances.both_gradients[(words // LANES, len(e) // tile, splits)](
            slope, a, e, d_query, d_table, words, slope.shape[1], queries // splits, PARTS=parts,
            KIND=way.kind, SIGN=way.sign, ROOT=way.root, SPAN=way.span, M1=way.rows, M2=WARPS,
            D2=LANES, num_warps=WARPS, num_stages=1, maxnreg=way.registers,
        )  # fmt: skip
        return d_query, d_table

    def result() -> tuple[Tensor, Tensor]:
        """The gradients as the library gives them."""
        outs = []
        for out, rows, total, sign in ((d_query, b, grad.sum(1), 1), (d_table, n, grad.sum(0), -1)):
            out = out[:rows].view(rows, parts, -1)[..., :dim].reshape(rows, width) / steep
            outs.append(sign * (2 * out - total.unsqueeze(1) if half else out))
        return outs[0], outs[1]

    work.result = result  # type: ignore[attr-defined]
    return work


def data(size: tuple[int, int, int], parts: int, device: torch.device) -> tuple[Tensor, ...]:
    """Gradients of a softmax, queries and rows."""
    b, n, dim = size
    generator = torch.Generator(device).manual_seed(0)
    query, table = (torch.randn(r, parts * dim, device=device, generator=generator) for r in (b, n))
    grad = torch.randn(b, n, device=device, generator=generator).mul_(3).softmax(1)
    grad[torch.arange(b), torch.arange(b) % n] -= 1
    return grad / b, query, table


def ways(
    direction: str, parts: int, operands: tuple[Tensor, ...]
) -> Iterator[tuple[str, dict[str, Any], Callable[[], Any]]]:
    grad, query, table = operands
    if direction == "forward":
        for shape in FORWARD[parts]:
            yield "float32", asdict(shape), partial(gpu.scores, query, table, parts, shape)
        for way in PACKED_FORWARD[parts]:
            yield way.kind, asdict(way), lambda way=way: forward(way, query, table, parts)
    else:
        for shape in BACKWARD[parts]:
            yield (
                "float32",
                asdict(shape),
                partial(gpu.both_at_once, grad, query, table, parts, shape),
            )
        for way in PACKED_BACKWARD[parts]:
            yield way.kind, asdict(way), lambda way=way: backward(way, grad, query, table, parts)


def errors(name: str, work: Callable[[], Any], truth: tuple[Tensor, ...]) -> dict[str, float]:
    out = work()
    if name != "float32":
        out = out() if not hasattr(out, "result") else (out(), out.result())[1]
    outs = out if isinstance(out, tuple) else (out,)
    found = [float((x.double() - y).norm() / y.norm()) for x, y in zip(outs, truth, strict=True)]
    return dict(zip(["error", "d_table_error"], found, strict=False))


def measured(
    parts: int, direction: str, size: tuple[int, int, int], seconds: float, device: torch.device
) -> Iterator[dict[str, Any]]:
    small = data((*CHECKED, size[2]), parts, device)
    exact = [x.double() for x in small]
    truth: tuple[Tensor, ...] = (reference.scores(exact[1], exact[2], parts),)
    if direction == "backward":
        truth = reference.gradients(exact[0], exact[1], exact[2], parts)
    operands = data(size, parts, device)
    pairs = zip(ways(direction, parts, operands), ways(direction, parts, small), strict=True)
    for (name, tile, work), (_, _, checked) in pairs:
        row: dict[str, Any] = {"kernel": NAMES[parts], "direction": direction, "way": name}
        row |= dict(zip("bnd", size, strict=True)) | {"tile": tile}
        try:
            row |= errors(name, checked, truth)
            if name != "float32":
                work = work()
            took = measure(work, device, seconds).milliseconds
            row |= {"milliseconds": took, "t_elements": 1e-9 * math.prod(size) / took}
        except Exception as error:  # such as a tile that the compiler refuses
            row["problem"] = f"{type(error).__name__}: {error}"[:300]
        yield row


def step(
    parts: int, size: tuple[int, int, int], seconds: float, device: torch.device
) -> dict[str, Any]:
    """A whole captured step of the library."""
    once = partial(our_step, Distance(NAMES[parts], parts, gpu))
    work = _recorded(Work(once, *size, parts).ready(device))
    row: dict[str, Any] = {"kernel": NAMES[parts], "direction": "step", "way": "float32"}
    row |= dict(zip("bnd", size, strict=True))
    return row | {"milliseconds": measure(work, device, seconds).milliseconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--seconds", type=float, default=0.15, help="for each way")
    parser.add_argument("--only", help="such as 'l1 forward', to compile in several processes")
    parser.add_argument("--toy", action="store_true", help="a tiny size")
    args = parser.parse_args()
    device = torch.device("cuda")

    def rows() -> Iterator[dict[str, Any]]:
        for size in TOY_SIZES if args.toy else SIZES:
            for parts, kernel in NAMES.items():
                for direction in ("forward", "backward"):
                    if not args.only or args.only == f"{kernel} {direction}":
                        yield from measured(parts, direction, size, args.seconds, device)
                if not args.only:
                    yield step(parts, size, 3 * args.seconds, device)

    write_rows({"half_distances": "forward and backward", **machine(device)}, rows(), args.out)


if __name__ == "__main__":
    main()
