"""Ranks of many entities: counted while scores are computed, against scores in memory.

python benchmarks/bench_rank_large.py --out FILE.json

`counted` stores no score. `stored` is ranking with the default `evaluation.block`, `large` with 2³¹
scores, as far as memory allows. `differ` is how many ranks differ between `counted` and `stored`,
whose products add in another order, and `most` the largest difference. On tables of -1, 0 and 1,
where every product is exact, all counts must be the same (`exact`). No count may be negative
(`consistent`): then an answer has the same score in a tile and among the known answers, which are
subtracted. The first size tries several tiles.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from measure import benchmark_parser, machine, measure, write_rows
from torch import Tensor

from allneg.evaluation.counting import count_without_scores
from allneg.evaluation.ranks import PROTOCOLS, count_candidates
from allneg.graph.queries import KnownAnswers, Queries
from allneg.hardware import prepare
from allneg.kernels.attention import gpu, pair_scores
from allneg.kernels.dot import dot
from allneg.kernels.engines import using
from allneg.recipe import Evaluation, Hardware
from allneg.scoring import Shard

Size = tuple[int, int, int]  # queries, rows, their width
SIZES: list[Size] = [(4096, 2_500_000, 200), (4096, 14_541, 2000), (4096, 5_000_000, 256)]
TOY_SIZES: list[Size] = [(20, 70, 8)]
DTYPES = {"bf16": torch.bfloat16, "tf32": torch.float32}
TILES = {
    "bf16": [
        gpu.Tile(128, 64, 8, 2, resident=2),
        gpu.Tile(128, 64, 8, 4),
        gpu.Tile(128, 128, 8, 3),
        gpu.Tile(256, 64, 8, 3),
        gpu.Tile(64, 64, 4, 3, resident=2),
        gpu.Tile(128, 128, 8, 3, resident=2, chunk=64),
        gpu.Tile(128, 256, 8, 3, chunk=64),
    ],
    "tf32": [
        gpu.Tile(128, 64, 8, 2),
        gpu.Tile(128, 32, 8, 3),
        gpu.Tile(64, 64, 4, 3),
        gpu.Tile(128, 128, 8, 3, resident=2, chunk=32),
        gpu.Tile(128, 256, 8, 3, chunk=32),
        gpu.Tile(256, 128, 8, 3, chunk=32),
    ],
}
TOY_TILES = {name: [gpu.Tile(16, 32, 4, 2), gpu.Tile(32, 16, 4, 2, chunk=32)] for name in TILES}
ANSWERS, KNOWN = 2, 50  # of each query: the most that are ranked, and facts beside them
LARGE = 1 << 31  # scores


@dataclass(frozen=True)
class Data:
    query: Tensor  # (B, W)
    rows: Tensor  # (N, W)
    queries: Queries
    known: KnownAnswers

    @classmethod
    def random(cls, size: Size, dtype: torch.dtype, device: torch.device) -> Data:
        b, n, width = size
        random = torch.Generator(device).manual_seed(b + n + width)
        given = {"device": device, "generator": random}
        query = torch.randn(b, width, **given).to(dtype)  # type: ignore[call-overload]
        rows = torch.randn(n, width, **given).to(dtype)  # type: ignore[call-overload]
        times = torch.randint(1, ANSWERS + 1, (b,), **given)  # type: ignore[call-overload]
        every, none = torch.arange(b, device=device), torch.zeros(b, dtype=torch.int64)
        group, none = every.repeat_interleave(times), none.to(device)
        heads = torch.cat([group, every.repeat_interleave(KNOWN)])
        tails = torch.randint(n, heads.shape, **given)  # type: ignore[call-overload]
        facts = torch.stack([heads, torch.zeros_like(heads), tails], 1).cpu().numpy()
        known = KnownAnswers.of([facts], max(b, n), 1, device)
        queries = Queries(none, every, none, tails[: len(group)], group=group)
        return cls(query, rows, queries, known)

    def whole_numbers(self) -> Data:
        """A few of the queries, with numbers of -1, 0 and 1 in all vectors."""
        query = self.query[:64].float().clamp(-1, 1).round().to(self.query.dtype)
        rows = self.rows.clamp(-1, 1).round_()
        return Data(query, rows, self.queries[:64], self.known)

    @property
    def shard(self) -> Shard:
        return Shard.whole(len(self.rows))

    def counted(self) -> Tensor:
        return count_without_scores(self.query, self.rows, self.queries, self.known, self.shard)

    def stored(self, block: int = Evaluation.block) -> Tensor:
        """As `rank` does it."""
        size, found = max(1, block // len(self.rows)), []
        for start in range(0, len(self.query), size):
            part = slice(start, min(start + size, len(self.query)))
            values = dot.scores(self.query[part], self.rows)
            finite = values.amin(1).isfinite() & values.amax(1).isfinite()
            given = values, self.queries[part], self.known, PROTOCOLS["allneg"], self.shard
            found.append(count_candidates(*given) * finite.all())
            del values, given
        return torch.cat(found)


def ranks(counts: Tensor) -> Tensor:
    return 1 + counts[:, 0] + counts[:, 1] / 2


def try_tiles(
    data: Data, tiles: list[gpu.Tile], device: torch.device, seconds: float
) -> Iterator[dict[str, Any]]:
    """What `count_better` alone takes with each tile, and whether it counts the same.

    A tensor core adds in the same order in all tiles; Triton's interpreter does not.
    """
    group = data.queries.group
    assert group is not None
    answer = pair_scores(data.query, data.rows, (group, data.queries.answer))
    usual = gpu.count_better(data.query, data.rows, answer, group)
    for tile in tiles:
        row: dict[str, Any] = {"tile": asdict(tile)}
        once = partial(gpu.count_better, data.query, data.rows, answer, group, tile)
        try:
            row["same"] = bool(once().equal(usual))
            row["milliseconds"] = measure(once, device, seconds).milliseconds
        except Exception as error:  # such as too little shared memory
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        print("   ", *vars(tile).values(), row.get("milliseconds", row), flush=True)
        yield row


def measure_size(
    size: Size, precision: str, device: torch.device, seconds: float, tiles: list[gpu.Tile]
) -> dict[str, Any]:
    b, n, width = size
    data = Data.random(size, DTYPES[precision], device)
    exact = data.whole_numbers()
    row: dict[str, Any] = {
        "b": b, "n": n, "width": width, "precision": precision, "answers": len(data.queries.answer),
        "exact": bool(exact.counted().equal(exact.stored())),
    }  # fmt: skip
    del exact
    counted = data.counted()
    apart = (ranks(counted) - ranks(data.stored())).abs()
    row |= {
        "consistent": bool((counted >= 0).all()),
        "differ": int((apart > 0).sum()),
        "most": float(apart.max()),
    }
    ways = {"counted": data.counted, "stored": data.stored, "large": partial(data.stored, LARGE)}
    for name, work in ways.items():
        try:
            taken = measure(work, device, seconds)
            row |= {f"{name}_s": taken.milliseconds / b, f"{name}_extra_mib": taken.extra_mib}
        except torch.OutOfMemoryError:
            row |= {f"{name}_s": torch.nan, f"{name}_extra_mib": torch.nan}
    row["tiles"] = list(try_tiles(data, tiles, device, seconds))
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each size and precision."""
    lines = [
        "N W | seconds per 1,000 queries: counted, stored, large | extra MiB of each | exact | "
        "ranks that differ, most | count_better ms by tile"
    ]
    for row in rows:
        ways = ("counted", "stored", "large")
        times = " ".join(f"{row[f'{way}_s']:.5f}" for way in ways)
        memory = " ".join(f"{row[f'{way}_extra_mib']:.0f}" for way in ways)
        tiles = "; ".join(map(_tile, row["tiles"]))
        lines.append(
            f"{row['n']} {row['width']} {row['precision']} | {times} | {memory} | "
            f"{'yes' if row['exact'] and row['consistent'] else 'NO'} | "
            f"{row['differ']} of {row['answers']}, {row['most']:g} | {tiles}"
        )
    return "\n".join(lines)


def _tile(row: dict[str, Any]) -> str:
    tile = gpu.Tile(**row["tile"])
    shape = f"{tile.queries}/{tile.rows}/{tile.warps}/{tile.stages}/{tile.resident}/{tile.chunk}"
    same = "" if row.get("same") else " NOT THE SAME"
    return f"{shape} {row.get('milliseconds', torch.nan):.2f}{same}"


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each way and tile")
    parser.add_argument("--most", type=float, default=50, help="seconds; then no new size starts")
    parser.add_argument("--toy", action="store_true", help="a tiny size, in Triton's interpreter")
    args = parser.parse_args()
    began, device, found = time.perf_counter(), prepare(Hardware(device=args.device)), []
    sizes, tiles = (TOY_SIZES, TOY_TILES) if args.toy else (SIZES, TILES)

    def rows() -> Iterator[dict[str, Any]]:
        for size in sizes:
            for precision in DTYPES:
                if time.perf_counter() - began < args.most:
                    some = tiles[precision] if size is sizes[0] else []
                    found.append(measure_size(size, precision, device, args.seconds, some))
                    yield found[-1]

    with using("gpu"):
        write_rows({"rank_large": "counts", **machine(device)}, rows(), args.out)
    print(f"{time.perf_counter() - began:.0f} seconds")
    print(table(found))


if __name__ == "__main__":
    main()
