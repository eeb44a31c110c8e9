"""AdaGrad inside the product that gives the gradient of the table, against a product and AdaGrad.

python benchmarks/bench_product_adagrad.py --out FILE.json

The gradient (N, W) is Pᵀ · Q, with gradients of scores P (B, N) and queries Q (B, W) in bfloat16,
plus the rows that heads, answers and the regularizer add: a dense row for each entity of the batch.
`separate` is cuBLAS, the rows added, then AdaGrad, as in training. `fused` never stores the
gradient: it reads sums and weights, and writes them and the bfloat16 copy, behind each tile of the
product. `overlapped` is `separate` in parts, with AdaGrad in a second stream. `product` and
`triton` are the products alone. Each is a CUDA graph.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"
from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from bench_fused_softmax import captured
from measure import benchmark_parser, machine, measure, write_rows
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from allneg.kernels.fused import adagrad, scatter_add

SIZE = (1000, 14592, 2000)  # B, N, W: FB15k-237 at rank 1000
TOY_SIZE = (64, 256, 128)
RATE, EPS = 0.1, 1e-10


@dataclass(frozen=True)
class Tile:
    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    registers: int | None = None  # limit per thread, so that two programs fit


TILES = [
    Tile(128, 128, 64, 4, 3),
    Tile(128, 128, 64, 8, 3, 128),
    Tile(128, 128, 64, 8, 3),
    Tile(128, 256, 64, 8, 3),
    Tile(128, 256, 64, 8, 4),
    Tile(256, 128, 64, 8, 3),
]


@triton.jit
def _halves(x, M: tl.constexpr, N: tl.constexpr):
    """The left and the right half of the columns."""
    return tl.split(tl.permute(tl.reshape(x, (M, 2, N // 2)), (0, 2, 1)))


@triton.jit
def _use(
    total, table, squares, bf16_copy, places, more, rate, out, eps, first, column0, n,
    W: tl.constexpr, M: tl.constexpr, N: tl.constexpr, UPDATE: tl.constexpr,
):  # fmt: skip
    row, column = first + tl.arange(0, M), column0 + tl.arange(0, N)
    inside = (row < n)[:, None] & (column < W)[None, :]
    index = row[:, None].to(tl.int64) * W + column[None, :]
    if UPDATE:
        place = tl.load(places + row, mask=row < n, other=-1)
        own = inside & (place >= 0)[:, None]
        total += tl.load(more + place[:, None] * W + column[None, :], mask=own, other=0.0)
        s = tl.load(squares + index, mask=inside, other=0.0) + total * total
        tl.store(squares + index, s, mask=inside)
        step = tl.load(rate) * total / (tl.sqrt(s) + eps)
        new = tl.load(table + index, mask=inside, other=0.0) - step
        tl.store(table + index, new, mask=inside)
        tl.store(bf16_copy + index, new.to(tl.bfloat16), mask=inside)
    else:
        tl.store(out + index, total, mask=inside)


@triton.jit(do_not_specialize=["b"])
def product(
    scores, query, table, squares, bf16_copy, places, more, rate, out, eps, b, n,
    W: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, UPDATE: tl.constexpr,
):  # fmt: skip
    """A tile (M, N) of the gradient, stored or used by AdaGrad at once, a quarter at a time."""
    across: tl.constexpr = (W + N - 1) // N
    first, column0 = tl.program_id(0) // across * M, tl.program_id(0) % across * N
    total = tl.zeros([M, N], tl.float32)
    for k in tl.range(0, b, K):
        total = tl.dot(tl.trans(scores.load([k, first])), query.load([k, column0]), total)
    left, right = _halves(total, M, N)
    c0, c1 = _halves(left, M, N // 2)
    c2, c3 = _halves(right, M, N // 2)
    Q: tl.constexpr = N // 4
    _use(c0, table, squares, bf16_copy, places, more, rate, out, eps, first, column0, n,
         W, M, Q, UPDATE)  # fmt: skip
    _use(c1, table, squares, bf16_copy, places, more, rate, out, eps, first, column0 + Q, n,
         W, M, Q, UPDATE)  # fmt: skip
    _use(c2, table, squares, bf16_copy, places, more, rate, out, eps, first, column0 + 2 * Q, n,
         W, M, Q, UPDATE)  # fmt: skip
    _use(c3, table, squares, bf16_copy, places, more, rate, out, eps, first, column0 + 3 * Q, n,
         W, M, Q, UPDATE)  # fmt: skip


@dataclass
class Data:
    scores: Tensor
    query: Tensor
    table: Tensor
    squares: Tensor
    copy: Tensor
    ids: Tensor  # entities that the batch touches, each once
    more: Tensor  # their gradients from elsewhere
    places: Tensor  # of each entity in `ids`, or -1
    rate: Tensor

    @classmethod
    def random(cls, size: tuple[int, int, int], device: torch.device) -> Data:
        b, n, width = size
        g = torch.Generator(device).manual_seed(0)
        scores = torch.randn(b, n, device=device, generator=g).softmax(1).div_(b).bfloat16()
        query = torch.randn(b, width, device=device, generator=g).bfloat16()
        table = torch.randn(n, width, device=device, generator=g)
        ids = torch.randperm(n, device=device, generator=g)[: min(n, 2 * b)]
        more = torch.randn(len(ids), width, device=device, generator=g) / b
        places = torch.full((n,), -1, dtype=torch.int64, device=device)
        places[ids] = torch.arange(len(ids), device=device)
        squares, rate = torch.full_like(table, 1e-6), torch.tensor(RATE, device=device)
        return cls(scores, query, table, squares, table.bfloat16(), ids, more, places, rate)

    def separate(self) -> None:
        grad = torch.mm(self.scores.T, self.query, out_dtype=torch.float32)
        scatter_add(grad, self.ids, self.more)
        adagrad(self.table, grad, self.squares, self.rate, EPS, self.copy)

    def overlapped(self, parts: int) -> None:
        """As `separate`, a part of the rows at a time: AdaGrad runs beside the next product."""
        main, other = torch.cuda.current_stream(), torch.cuda.Stream()
        n, kept = len(self.table), []
        size = triton.cdiv(n, parts * 128) * 128
        for start in range(0, n, size):
            some = slice(start, min(start + size, n))
            grad = torch.mm(self.scores[:, some].T, self.query, out_dtype=torch.float32)
            kept.append(grad)  # until the other stream is done
            other.wait_stream(main)
            with torch.cuda.stream(other):
                # Rows of other parts: training would pass each part its own.
                some_ids = self.ids[: len(self.ids) // parts] % len(grad)
                scatter_add(grad, some_ids, self.more[: len(some_ids)])
                table, squares = self.table[some], self.squares[some]
                adagrad(table, grad, squares, self.rate, EPS, self.copy[some])
        main.wait_stream(other)

    def own(self, tile: Tile, out: Tensor | None) -> None:
        (b, n), width = self.scores.shape, self.query.shape[1]
        grid = triton.cdiv(n, tile.rows) * triton.cdiv(width, tile.columns)
        product[(grid,)](
            TensorDescriptor.from_tensor(self.scores, [tile.depth, tile.rows]),
            TensorDescriptor.from_tensor(self.query, [tile.depth, tile.columns]),
            self.table, self.squares, self.copy, self.places, self.more, self.rate,
            self.table if out is None else out, EPS, b, n, W=width, M=tile.rows, N=tile.columns,
            K=tile.depth, UPDATE=out is None, num_warps=tile.warps, num_stages=tile.stages,
            maxnreg=tile.registers,
        )  # fmt: skip


def error(tile: Tile, size: tuple[int, int, int], device: torch.device) -> dict[str, float]:
    """Of sums and of changed weights, against float64."""
    data = Data.random(size, device)
    grad = data.scores.double().T @ data.query.double()
    grad[data.ids] += data.more.double()
    squares = data.squares.double() + grad**2
    step = RATE * grad / (squares.sqrt() + EPS)
    before = data.table.double()
    data.own(tile, None)
    found = {"squares_error": (data.squares.double() - squares).norm() / squares.norm()}
    found["step_error"] = (before - data.table.double() - step).norm() / step.norm()
    found["copy_error"] = (data.copy.float() - data.table.bfloat16().float()).abs().max()
    return {name: float(value) for name, value in found.items()}


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each way")
    parser.add_argument("--toy", action="store_true", help="a tiny size")
    args = parser.parse_args()
    device, size = torch.device(args.device), TOY_SIZE if args.toy else SIZE
    data = Data.random(size, device)
    out = torch.empty_like(data.table)
    ways: list[tuple[str, Tile | None, Any]] = [
        ("product", None, lambda: torch.mm(data.scores.T, data.query, out_dtype=torch.float32)),
        (
            "adagrad",
            None,
            lambda: adagrad(data.table, out, data.squares, data.rate, EPS, data.copy),
        ),
        ("separate", None, data.separate),
    ]
    for parts in (2, 4, 8):
        ways.append((f"overlapped {parts}", None, partial(data.overlapped, parts)))
    for tile in TILES:
        ways.append(("triton", tile, partial(data.own, tile, out)))
        ways.append(("fused", tile, partial(data.own, tile, None)))

    def timed(name: str, tile: Tile | None, work: Any) -> dict[str, Any]:
        row: dict[str, Any] = {"way": name, "tile": asdict(tile) if tile else None}
        try:
            if name == "fused" and tile:
                row |= error(tile, size, device)
            once = captured(work) if device.type == "cuda" else work
            row["milliseconds"] = measure(once, device, args.seconds).milliseconds
        except Exception as problem:  # such as too little shared memory
            row["problem"] = f"{type(problem).__name__}: {problem}"[:200]
        return row

    about = {"product_adagrad": list(size), **machine(device)}
    write_rows(about, (timed(*way) for way in ways), args.out)


if __name__ == "__main__":
    main()
