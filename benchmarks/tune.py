"""Try many tile shapes of the GPU engines and print the fastest: how the shapes were chosen.

python benchmarks/tune.py --out tune.json        on a machine with a GPU, in minutes
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import torch
from measure import machine, measure

from allneg.kernels.distances import gpu
from allneg.kernels.distances.gpu import Shape

SIZES = [(1000, 14541, 100), (1000, 14541, 1000)]
TOY = [(256, 256, 8)]


def shapes(kernel: str, parts: int) -> list[Shape]:
    """The shapes worth trying: up to 128 sums a thread, and what the registers allow."""
    lanes = [32]
    if kernel == "scores":
        tiles, warps, steps, registers = [(8, 8), (16, 4), (8, 4)], [4], [2, 4], [None, 128]
    elif kernel == "both":
        tiles = [(16, 2), (8, 4), (8, 2)] if parts == 1 else [(16, 1), (8, 2), (8, 1)]
        warps, steps, registers, lanes = [4], [2, 4], [None, 128], [32, 16, 8]
    else:
        tiles = [(8, 8), (8, 4)] if parts == 1 else [(8, 4), (4, 4)]
        warps, steps, registers = [1], [2, 4], [None, 168]
    choices = itertools.product(tiles, warps, steps, registers, lanes)
    return [Shape(*tile, warp, step, most, lane) for tile, warp, step, most, lane in choices]


def work(
    kernel: str, parts: int, shape: Shape, size: tuple[int, int, int], device: torch.device
) -> Callable[[], object]:
    b, n, dim = size
    query = torch.randn(b, parts * dim, device=device)
    table = torch.randn(n, parts * dim, device=device)
    if kernel == "scores":
        return lambda: gpu.scores(query, table, parts, shape)
    grad = torch.randn(b, n, device=device)
    if kernel == "both":
        return lambda: gpu.both_at_once(grad, query, table, parts, shape)
    if kernel == "to_query":
        turned = grad.T.contiguous()
        return lambda: gpu.rows_gradient(turned, query, table, parts, shape)
    return lambda: gpu.rows_gradient(grad, table, query, parts, shape)


def compile_one(kernel: str, parts: int, shape: Shape) -> None:
    work(kernel, parts, shape, (512, 512, 64), torch.device("cuda"))()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--toy", action="store_true", help="a few shapes at a tiny size")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    jobs = [
        (kernel, parts, shape)
        for kernel in ("scores", "both", "to_query", "to_table")
        for parts in (1, 2)
        for shape in (shapes(kernel, parts)[::100] if args.toy else shapes(kernel, parts))
    ]
    if not args.toy:
        with ProcessPoolExecutor(14, mp_context=get_context("spawn")) as pool:
            new = [job for job in jobs if job[0] != "to_table"]  # the same program as to_query
            list(pool.map(compile_one, *zip(*new, strict=True), chunksize=4))
    rows = []
    for kernel, parts, shape in jobs:
        for size in TOY if args.toy else SIZES:
            took = measure(work(kernel, parts, shape, size, device), device, 0.02)
            rows.append(
                {"kernel": kernel, "parts": parts, "dim": size[2], **asdict(shape), **asdict(took)}
            )
    rows.sort(key=lambda row: (row["kernel"], row["parts"], row["dim"], row["milliseconds"]))
    for _, group in itertools.groupby(rows, lambda row: (row["kernel"], row["parts"], row["dim"])):
        for row in list(group)[:6]:
            print(*row.values())
    if args.out:
        args.out.write_text(json.dumps({**machine(device), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
