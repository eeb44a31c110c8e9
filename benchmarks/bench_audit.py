"""How well `allneg audit` finds planted errors, beside two baselines; and seconds.

python benchmarks/bench_audit.py DATA … [--errors typed] [--seed 1] [--folds 4] [--device cuda]
    [--set PART.FIELD=VALUE]… [--out NAME.json]

DATA is the name of a known dataset or a folder. One of 20 facts of all splits is replaced by a
wrong one: its head or its tail becomes any entity (random), or one that train has on this side of
the relation (typed). All facts are then ranked, the most suspicious first. AP is the average
precision, P@planted the share of errors among as many facts as were planted; chance is 0.05.
Baselines: degree, the fewest facts of head and tail; frequency, the number of facts
(h, r, ·) times that of (·, r, t), divided by that of r. CPU seconds are those of all threads.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import benchmark_parser, machine, write_rows

from allneg.auditing.audit import judge, quick_plan
from allneg.evaluation.curves import Numbers
from allneg.graph import Graph, read_graph
from allneg.graph.graph import Triples, first_indices, triple_keys
from allneg.hardware import find_device
from allneg.predict.classify import Labels, typed_negatives
from allneg.predict.lookup import Facts
from allneg.training.callbacks import ProgressLines

KINDS = ("random", "typed")  # of errors
SHARE = 0.05


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--errors", choices=KINDS, action="append", help="by default, all")
    parser.add_argument("--seed", type=int, default=0, help="of the planted errors")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    args = parser.parse_args()
    settings = [*args.settings, f"hardware.device={args.device}"]
    rows = (
        measured(data, kind, args.folds, args.seed, settings)
        for data in args.data
        for kind in args.errors or KINDS
    )
    write_rows({"audit": True, **machine(find_device(args.device))}, rows, args.out)


def measured(data: str, kind: str, folds: int, seed: int, settings: list[str]) -> dict[str, Any]:
    graph, wrong = planted(read_graph(data), kind == "typed", seed)
    began, cpu_began = time.perf_counter(), time.process_time()
    folder = Path(tempfile.mkdtemp()) / "audit"
    plan = quick_plan(graph, graph, folds, settings=settings)
    judged = judge(graph, plan, folds, folder, ProgressLines())
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    shutil.rmtree(folder.parent)
    keys = triple_keys([judged.facts, wrong], graph.n_entities, graph.n_relations)
    label = np.isin(keys[0], keys[1])
    ways = {"audit": judged.log_odds, **baselines(judged.facts, graph)}
    return {
        "data": graph.name, "errors": kind, "seed": seed, "facts": len(label),
        "planted": int(label.sum()), "model": plan.model.name, "dim": plan.model.dim,
        "epochs": plan.training.epochs, "folds": folds, "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        **{name: scores(value, label) for name, value in ways.items()},
    }  # fmt: skip


def planted(graph: Graph, typed: bool, seed: int = 0) -> tuple[Graph, Triples]:
    """The graph with some facts replaced by wrong ones, which are in train, and these."""
    every, rng = Facts.of(graph), np.random.default_rng(seed)
    n = len(every.triples)
    rows = rng.choice(n, round(SHARE * n), replace=False)
    wrong = typed_negatives(graph, every.triples[rows], seed, typed)
    (keys,) = triple_keys([wrong], graph.n_entities, graph.n_relations)
    wrong = wrong[first_indices(keys)]
    triples, split = np.delete(every.triples, rows, axis=0), np.delete(every.split, rows)
    train, valid, test = (triples[split == number] for number in range(3))
    return replace(graph, train=np.concatenate([train, wrong]), valid=valid, test=test), wrong


def baselines(facts: Triples, graph: Graph) -> dict[str, Numbers]:
    """What each baseline says for each fact."""
    n, (head, relation, tail) = graph.n_entities, facts.T
    degree = np.bincount(facts[:, [0, 2]].reshape(-1), minlength=n)
    counts = []
    for key in (relation * n + head, relation * n + tail):
        _, index, count = np.unique(key, return_inverse=True, return_counts=True)
        counts.append(count[index])
    size = np.bincount(relation)[relation]
    return {
        "degree": np.minimum(degree[head], degree[tail]).astype(float),
        "frequency": counts[0] * counts[1] / size,
    }


def scores(right: Numbers, wrong: Labels) -> dict[str, float]:
    """The average precision and the precision at as many facts as are wrong; ties are random."""
    order = np.lexsort((np.random.default_rng(0).random(len(right)), right))
    hits, n = wrong[order], int(wrong.sum())
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return {"ap": float(precision[hits].mean()), "at_planted": float(hits[:n].mean())}


if __name__ == "__main__":
    main()
