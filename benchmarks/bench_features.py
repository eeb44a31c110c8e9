"""MRR of rare and of other entities, with and without features hashed from their labels.

python benchmarks/bench_features.py DATA LABELS [--model complex] [--seeds 0,1,2] [--device cuda]
    [--set training.epochs=50] [--minutes 5] [--out benchmarks/results/NAME.json]

LABELS has lines of name, tab, text, and may be compressed (.xz). Words and parts of three
characters are hashed into vectors of 256 numbers; nothing is downloaded. A test triple is rare if
one of its entities has at most 5 facts in train. What is in --out is not measured again.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from measure import benchmark_parser, machine, write_rows

import allneg
from allneg.evaluation import evaluate
from allneg.hardware import find_device
from allneg.runs import Run

WIDTH = 256
FEW = 5  # facts in train


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("data")
    parser.add_argument("labels", type=Path)
    parser.add_argument("--model", default="complex")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--minutes", type=float, help="begin nothing after this time")
    args = parser.parse_args()
    done = []
    if args.out is not None and args.out.exists():
        done = json.loads(args.out.read_text())["rows"]
    about = {"features": True, **machine(find_device(args.device))}
    with tempfile.TemporaryDirectory() as folder:
        write_rows(about, measured(args, Path(folder), done), args.out, done)


def measured(
    args: argparse.Namespace, work: Path, done: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    write_vectors(args.labels, work / "features.csv")
    end = time.monotonic() + 60 * (args.minutes or 1e6)
    for seed in map(int, args.seeds.split(",")):
        for has_features in (False, True):
            name = Path(args.data).name
            about = {"data": name, "model": args.model, "seed": seed, "features": has_features}
            if time.monotonic() > end:
                return
            if any(about.items() <= row.items() for row in done):
                continue
            settings = [*args.settings, f"training.seed={seed}", f"hardware.device={args.device}"]
            settings += [f"model.features={work / 'features.csv'}"] if has_features else []
            out = work / f"{seed}-{has_features}"
            run = allneg.train(args.data, model=args.model, settings=settings, out=out)
            is_rare = rare(run)
            yield {
                **about, "dim": run.recipe.model.dim,
                "rare": mrr(run, is_rare), "n_rare": int(is_rare.sum()),
                "others": mrr(run, ~is_rare), "all": run.report.mrr,
                "seconds": run.metrics()[-1]["seconds"],
            }  # fmt: skip


def write_vectors(labels: Path, out: Path) -> None:
    """Hash the text of each name: every word and part of three characters adds 1 or -1."""
    with (lzma.open if labels.suffix == ".xz" else open)(labels, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *range(WIDTH)])
        for name, text, *_ in lines:
            word_marks = f" {text.lower().strip()} "
            parts = [*word_marks.split(), *(word_marks[i : i + 3] for i in range(len(text)))]
            vector = np.zeros(WIDTH, dtype=np.int64)
            for part in parts:
                number = int.from_bytes(blake2b(part.encode(), digest_size=8).digest(), "little")
                vector[number % WIDTH] += 1 if number >> 63 else -1
            writer.writerow([name, *vector.tolist()])


def rare(run: Run) -> npt.NDArray[np.bool_]:
    """Which triples of test have an entity with few facts: (n,)."""
    graph = run.graph
    count = np.bincount(graph.train[:, [0, 2]].reshape(-1), minlength=graph.n_entities)
    few: npt.NDArray[np.bool_] = (count[graph.test[:, [0, 2]]] <= FEW).any(1)
    return few


def mrr(run: Run, part: npt.NDArray[np.bool_]) -> float | None:
    """The MRR of some triples of test, filtered by all facts; None without triples."""
    if not part.any():
        return None
    graph, device = run.graph, find_device(run.recipe.hardware.device)
    valid = np.concatenate([graph.valid, graph.test])
    asked = replace(graph, valid=valid, test=graph.test[part])
    return evaluate(run.model, run.tables().to(device), asked, "test").mrr


if __name__ == "__main__":
    main()
