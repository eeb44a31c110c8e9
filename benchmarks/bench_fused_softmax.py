"""The softmax loss by attention to the rows: checked, then timed for several tiles and sizes.

python benchmarks/bench_fused_softmax.py --out FILE.json

Beside each size: the present path, which stores scores, and the floor of three or four products of
bfloat16 numbers at the measured rate (three if scores are stored, four if they are computed twice).
A step is loss, both gradients and AdaGrad. The table at the end is short; the JSON has every tile.

An H200 multiprocessor has 64k registers (255 per thread) and 227 KB of shared memory for programs.
With W = 200, as chunks of 128 + 64 + 16, two programs of 64 × 64 and 4 warps fit: while one waits
for its exponentials, the other multiplies. Their sums need 252 registers per thread, so wider rows
need 8 warps and one program. What bounds a tile is the number of instructions beside the products:
`attend` starts 492 per thread for 64 × 64 scores, 330 with a fixed anchor, and 307 if the bulk copy
engine loads the rows, too. `row_gradients` starts 340, 318 with bulk copies, and 289 if the rows
also stay in registers. For products of 832 clocks, each of two programs may start 832.
Rescaling the sums only when the maximum has grown by a factor of 256 was 2 to 9 % slower on large
tables. Triton 3.6 ignores `warp_specialize` on this GPU and does not load TF32 operands ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from measure import benchmark_parser, machine, measure, write_rows
from torch import Tensor

from allneg.hardware import prepare
from allneg.kernels import dot
from allneg.kernels.attention import Negatives, gpu
from allneg.kernels.engines import using
from allneg.kernels.fused import adagrad
from allneg.recipe import Hardware, Loss
from allneg.scoring import attention
from allneg.scoring.contrast import contrast
from allneg.scoring.losses import Softmax
from allneg.scoring.negatives import Candidates
from allneg.training.execution import block_rows

Size = tuple[int, int, int, str]  # queries, rows, their width, precision
SIZES: list[Size] = [
    (8000, 2_500_000, 200, "bf16"),
    (1000, 2_500_000, 200, "bf16"),
    (8000, 5_000_000, 256, "bf16"),
    (8000, 2_500_000, 128, "bf16"),
    (1000, 14_592, 64, "bf16"),
    (1000, 14_592, 128, "bf16"),
    (1000, 14_592, 200, "bf16"),
    (1000, 14_592, 256, "bf16"),
    (1000, 40_960, 200, "bf16"),
    (1000, 123_200, 200, "bf16"),
    (1000, 2_500_000, 200, "tf32"),
]
TOY_SIZES: list[Size] = [(3, 70, 4, "bf16"), (3, 70, 4, "tf32")]
SMALL = 100_000  # rows; steps of smaller graphs are captured, as in training
# For rows of up to so many numbers. No tile of these spills.
_BEST = {"held": True, "tma": True}
ATTEND = {
    200: [
        gpu.Tile(64, 64, 4, 3, resident=2),
        gpu.Tile(128, 64, 8, 3),
        gpu.Tile(64, 64, 4, 3, resident=2, fixed=True),
        gpu.Tile(64, 64, 4, 3, resident=2, tma=True),
        gpu.Tile(64, 64, 4, 3, resident=2, tma=True, fixed=True),
        gpu.Tile(64, 64, 4, 3, resident=2, **_BEST, fixed=True),
        gpu.Tile(64, 64, 4, 4, resident=2, **_BEST, fixed=True),
        gpu.Tile(128, 64, 8, 5, **_BEST, fixed=True),
    ],
    256: [
        gpu.Tile(128, 64, 8, 3),
        gpu.Tile(128, 64, 8, 3, fixed=True),
        gpu.Tile(128, 64, 8, 4, tma=True, fixed=True),
    ],
    128: [
        gpu.Tile(64, 64, 4, 3, resident=2),
        gpu.Tile(64, 64, 4, 3, resident=3),
        gpu.Tile(64, 64, 4, 4, resident=2, **_BEST, fixed=True),
        gpu.Tile(64, 128, 4, 3, resident=2, **_BEST, fixed=True),
        gpu.Tile(128, 128, 8, 3, **_BEST, fixed=True),
    ],
}
GRADIENTS = {
    200: [
        gpu.Tile(64, 64, 4, 3),
        gpu.Tile(64, 64, 4, 3, tma=True),
        gpu.Tile(64, 64, 4, 3, **_BEST),
        gpu.Tile(64, 64, 4, 4, **_BEST),
        gpu.Tile(64, 128, 8, 5, **_BEST),
    ],
    256: [gpu.Tile(64, 128, 8, 3), gpu.Tile(64, 128, 8, 4, tma=True)],
    128: [
        gpu.Tile(64, 64, 4, 3),
        gpu.Tile(64, 64, 4, 4, **_BEST),
        gpu.Tile(128, 64, 4, 3, **_BEST),
        gpu.Tile(128, 128, 8, 3, **_BEST),
    ],
}
TF32_ATTEND = [gpu.Tile(64, 32, 4, 2), gpu.Tile(128, 32, 8, 2)]
TF32_GRADIENTS = [gpu.Tile(32, 64, 4, 2), gpu.Tile(32, 128, 8, 2)]
TOY_TILES = [gpu.Tile(16, 64, 4, 2)]


@dataclass(frozen=True)
class Data:
    """Queries, the table that AdaGrad updates, and its copy in bfloat16, if any."""

    query: Tensor
    table: Tensor
    copy: Tensor | None
    squares: Tensor
    target: Tensor
    weight: Tensor

    @classmethod
    def random(cls, size: Size, device: torch.device) -> Data:
        """Scores have the standard deviation 3."""
        b, n, width, precision = size
        generator = torch.Generator(device).manual_seed(b + n + width)
        query = torch.randn(b, width, device=device, generator=generator)
        table = torch.randn(n, width, device=device, generator=generator).mul_(3 / width**0.5)
        target = torch.randint(n, (b,), device=device, generator=generator)
        weight = torch.full((b,), 1 / b, device=device)
        copy = table.bfloat16() if precision == "bf16" else None
        return cls(query, table, copy, torch.ones_like(table), target, weight)

    @property
    def operands(self) -> tuple[Tensor, Tensor, Negatives]:
        rows = self.table if self.copy is None else self.copy
        return self.query.to(rows.dtype), rows, Negatives(self.target, len(rows))

    def step(self, by_attention: bool) -> None:
        """The loss, both gradients and the optimizer."""
        n, bf16 = len(self.table), self.copy is not None
        candidates, loss = Candidates(self.table, self.target, n), Softmax(Loss(), bf16)
        rate = torch.zeros((), device=self.table.device)  # so that every step does the same
        given = self.query, candidates, loss, self.weight
        if by_attention:
            _, _, d_rows = attention.contrast(*given, self.copy)
        else:
            block = block_rows(len(self.query), n, Loss().block)
            _, _, d_rows = contrast(dot, *given, block, self.copy)
        adagrad(self.table, d_rows, self.squares, rate, 1e-10, self.copy)


def errors(data: Data, state: Tensor, mean: Tensor, d_rows: Tensor) -> dict[str, float]:
    """Relative errors of a few queries and rows against float64, and whether all are finite."""
    (query, rows, _), log_sum = data.operands, state[1]
    log_total = torch.logaddexp(log_sum, state[0]).double()
    some, n = slice(0, 16), len(rows)
    scores = torch.cat([query[some].double() @ part.double().T for part in rows.split(1 << 18)], 1)
    scores.scatter_(1, data.target[some].unsqueeze(1), -torch.inf)
    true_sum = scores.logsumexp(1)
    share = (scores - true_sum.unsqueeze(1)).exp_()
    parts = zip(share.split(1 << 18, dim=1), rows.split(1 << 18), strict=True)
    true_mean = sum(part @ few.double() for part, few in parts)
    few = torch.cat([data.target[:8], torch.arange(n - 8, n, device=rows.device)])
    pairs = query.double() @ rows[few].double().T
    pairs = (pairs - log_total.unsqueeze(1)).exp_() * data.weight.double().unsqueeze(1)
    pairs.masked_fill_(few == data.target.unsqueeze(1), 0.0)
    return {
        "log_sum_error": _distance(log_sum[some], true_sum),
        "mean_error": _distance(mean[some], true_mean),
        "d_rows_error": _distance(d_rows[few], pairs.T @ query.double()),
        "finite": float(all(bool(x.isfinite().all()) for x in (log_sum, mean, d_rows))),
    }


def _distance(ours: Tensor, truth: Any) -> float:
    return float((ours.double() - truth).norm() / truth.norm())


def poison(data: Data) -> None:
    """Fill the memory that the next results get with NaN."""
    torch.full_like(data.table, torch.nan)


def rates(device: torch.device, toy: bool) -> dict[str, float]:
    """TFLOP/s of a large product of bfloat16 numbers, and TB/s of a copy."""
    n = 64 if toy else 8192
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    a, b = torch.randn(2, n, n, device=device).to(dtype).unbind()
    took = measure(lambda: a @ b, device, 0.3).milliseconds
    source = torch.randn(1024 if toy else 1 << 29, device=device)
    target = torch.empty_like(source)
    copied = measure(lambda: target.copy_(source), device, 0.2).milliseconds
    moved = 2 * source.numel() * source.element_size()
    return {"bf16_tflops": 2e-9 * n**3 / took, "copy_tb_s": moved / copied / 1e9}


def captured(work: Callable[[], object]) -> Callable[[], object]:
    """The same work as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def fastest(
    tiles: list[gpu.Tile],
    work: Callable[[gpu.Tile], object],
    device: torch.device,
    seconds: float,
    small: bool,
) -> tuple[gpu.Tile, float, list[dict[str, Any]]]:
    """The fastest tile and its milliseconds, and what every tile took."""
    found = []
    for tile in tiles:
        row: dict[str, Any] = {"tile": asdict(tile)}
        began = time.perf_counter()
        try:
            work(tile)
            row["first_seconds"] = round(time.perf_counter() - began, 2)
            once = captured(partial(work, tile)) if small else partial(work, tile)
            row["milliseconds"] = measure(once, device, seconds).milliseconds
        except Exception as error:  # such as too little shared memory
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        print(
            "   ", *vars(tile).values(), {k: v for k, v in row.items() if k != "tile"}, flush=True
        )
        found.append(row)
    best = min(found, key=lambda row: row.get("milliseconds", torch.inf))
    return gpu.Tile(**best["tile"]), best.get("milliseconds", torch.nan), found


def measure_size(
    size: Size, device: torch.device, toy: bool, seconds: float, tflops: float
) -> dict[str, Any]:
    b, n, width, precision = size
    print(f"{b:,} queries × {n:,} rows × {width}, {precision}", flush=True)
    data = Data.random(size, device)
    operands, kind = data.operands, gpu._kind(data.operands[1])
    like = min(known for known in ATTEND if known >= width)
    attends, gradients = ATTEND[like], GRADIENTS[like]
    if precision == "tf32":
        attends, gradients = TF32_ATTEND, TF32_GRADIENTS
    small = device.type == "cuda" and n <= SMALL
    if toy:
        attends = gradients = TOY_TILES
    first, attend_ms, attend_rows = fastest(
        attends, lambda tile: gpu.attend(*operands, tile), device, seconds, small
    )
    state, mean = gpu.attend(*operands, first)
    _, _, shift = gpu.query_gradients(*operands, mean, state[1], state, data.weight)
    second, gradients_ms, gradient_rows = fastest(
        gradients,
        lambda tile: gpu.row_gradients(*operands, shift, tile),
        device,
        seconds,
        small,
    )
    poison(data)
    d_rows = gpu.row_gradients(*operands, shift, second)
    checked = errors(data, state, mean, d_rows)
    print("   ", checked, flush=True)
    del d_rows
    gpu.ATTEND[kind], gpu.GRADIENTS[kind] = first, second
    row: dict[str, Any] = {
        "b": b, "n": n, "width": width, "precision": precision, **checked, "attend_ms": attend_ms,
        "row_gradients_ms": gradients_ms, "attend_tile": asdict(first),
        "gradients_tile": asdict(second), "attend": attend_rows, "row_gradients": gradient_rows,
        "floor_3_ms": 6e-9 * b * n * width / tflops, "floor_4_ms": 8e-9 * b * n * width / tflops,
    }  # fmt: skip
    for name, by_attention in (("step", True), ("stored", False)):
        step: Callable[[], object] = partial(data.step, by_attention)
        try:
            taken = measure(captured(step) if small else step, device, seconds)
            row |= {f"{name}_ms": taken.milliseconds, f"{name}_extra_mib": taken.extra_mib}
        except torch.OutOfMemoryError:
            row |= {f"{name}_ms": torch.nan, f"{name}_extra_mib": torch.nan}
    rate = torch.zeros((), device=device)
    update = measure(
        lambda: adagrad(data.table, data.table, data.squares, rate, 1e-10, data.copy),
        device,
        seconds,
    )
    row["adagrad_ms"] = update.milliseconds
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """One line per size; s/M is seconds per million queries."""
    lines = [
        "B N W | attend ms, tile | row_gradients ms, tile | step ms, s/M | stored ms, s/M | "
        "floor 3, 4 products ms | AdaGrad ms | extra MiB | errors log_sum, mean, d_rows"
    ]
    for row in rows:
        tiles = (row["attend_tile"], row["gradients_tile"])
        first, second = ("/".join(str(int(v)) for v in tile.values()) for tile in tiles)
        steps = (row["step_ms"], row["stored_ms"])
        step, stored = (f"{ms:.3f} {1000 * ms / row['b']:.2f}" for ms in steps)
        size = " ".join(str(row[name]) for name in ("b", "n", "width", "precision"))
        lines.append(
            f"{size} | {row['attend_ms']:.3f} {first} | "
            f"{row['row_gradients_ms']:.3f} {second} | {step} | {stored} | "
            f"{row['floor_3_ms']:.3f} {row['floor_4_ms']:.3f} | {row['adagrad_ms']:.3f} | "
            f"{row['step_extra_mib']:.0f} {row['stored_extra_mib']:.0f} | "
            f"{row['log_sum_error']:.1e} {row['mean_error']:.1e} {row['d_rows_error']:.1e}"
            f"{'' if row['finite'] else ' NOT FINITE'}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each tile and step")
    parser.add_argument("--most", type=float, default=330, help="seconds; then no new size starts")
    parser.add_argument("--toy", action="store_true", help="a tiny size, in Triton's interpreter")
    parser.add_argument("--sizes", help="B,N,W,precision of some, with blanks between")
    args = parser.parse_args()
    sizes = TOY_SIZES if args.toy else SIZES
    if args.sizes:
        parts = [text.split(",") for text in args.sizes.split()]
        sizes = [(int(b), int(n), int(width), kind) for b, n, width, kind in parts]
    began, device, found = time.perf_counter(), prepare(Hardware(device=args.device)), []
    about: dict[str, Any] = {"attention": "softmax", **machine(device), **rates(device, args.toy)}

    def rows() -> Iterator[dict[str, Any]]:
        for size in sizes:
            if time.perf_counter() - began < args.most:
                tflops = about["bf16_tflops"]
                found.append(measure_size(size, device, args.toy, args.seconds, tflops))
                yield found[-1]

    with using("gpu"):
        write_rows(about, rows(), args.out)
    print(f"{about['bf16_tflops']:.0f} TFLOP/s of bfloat16, copy {about['copy_tb_s']:.2f} TB/s")
    print(table(found))


if __name__ == "__main__":
    main()
