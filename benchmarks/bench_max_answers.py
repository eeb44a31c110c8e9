"""Valid MRR of grouped trainings by `loss.max_answers`, beside a training without groups.

python benchmarks/bench_max_answers.py GRAPH … [--answers 128,16] [--seeds 0,1,2] [--out FILE]

GRAPH is a folder or what `allneg train` takes. A batch has as many answers in each training. The
best valid MRR of all epochs counts, and of several seeds the mean; test is not ranked.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from measure import benchmark_parser, machine, write_rows

from allneg import read_graph, train
from allneg.graph import Graph
from allneg.graph.queries import KnownAnswers
from allneg.hardware import find_device


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--answers", default="128,32,16,8")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--model", default="complex")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=500, help="answers in a batch")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    args = parser.parse_args()
    about = {"max_answers": args.model, "epochs": args.epochs, "answers": args.batch}
    about |= {"settings": args.settings, **machine(find_device(args.device))}
    write_rows(about, rows(args), args.out)


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    every = max(1, args.epochs // 10)
    usual = [
        f"training.epochs={args.epochs}", f"evaluation.every={every}", "evaluation.patience=10",
        "training.average=0", "training.save_seconds=600", "loss.negatives=all",
        f"hardware.device={args.device}", *args.settings,
    ]  # fmt: skip
    for name in args.graphs:
        graph = read_graph(name)
        for most in (None, *map(int, args.answers.split(","))):
            size = args.batch if most is None else round(args.batch * share(graph, most))
            more = [f"loss.grouped={most is not None}".lower(), f"training.batch_size={size}"]
            more += [] if most is None else [f"loss.max_answers={most}"]
            best, began = [], time.perf_counter()
            for seed in map(int, args.seeds.split(",")):
                best.append(best_mrr(name, args.model, [*usual, *more, f"training.seed={seed}"]))
            yield {
                "graph": Path(name).name, "most": most, "batch": size, "seeds": len(best),
                "valid_mrr": fmean(best),
                "seconds": round((time.perf_counter() - began) / len(best), 1),
            }  # fmt: skip


def best_mrr(graph: str, model: str, settings: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = train(graph, model=model, settings=settings, out=Path(folder) / "run")
        lines = (run.folder / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return float(max(epoch["valid"]["mrr"] for epoch in found if "valid" in epoch))


def share(graph: Graph, most: int) -> float:
    """Queries with at most so many answers each, per answer."""
    known = KnownAnswers.of([graph.train], graph.n_entities, graph.n_relations)
    counts = known.starts.diff()
    return float(-(-counts // most).sum() / counts.sum())


if __name__ == "__main__":
    main()
