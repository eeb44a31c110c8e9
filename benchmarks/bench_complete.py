"""Seconds that `complete` takes, and how many held-out facts come back, beside a baseline.

python benchmarks/bench_complete.py RUN … [--device cuda] [--sharp never] [--out FILE]

RUN is a trained run. The most probable facts are searched as `allneg complete` does, and timed,
with the fit of their probabilities. CPU seconds are those of all threads, without the time that
other programs take. Valid and test are hidden from the search: they count as new, and the precision
at K is the share of them among the first K facts, also with `--within seen`. The baseline ranks new
facts (h, r, t) by frequency: the number of facts (h, r, ·) times that of facts (·, r, t), divided
by that of facts of r. --sharp sets whether bounds that store no scores are used (`SharpReach`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from loops import seconds_of
from measure import benchmark_parser, machine, write_rows

from allneg.evaluation import Within
from allneg.graph import Graph
from allneg.graph.graph import Triples, triple_keys
from allneg.hardware import find_device
from allneg.predict import complete
from allneg.predict.complete import Completion
from allneg.predict.predictor import Predictor
from allneg.runs import Run

LEVELS = (1000, 10_000)


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--sharp", choices=("auto", "always", "never"), default="auto")
    args = parser.parse_args()
    if args.sharp != "auto":
        complete.is_sharper = lambda *_: args.sharp == "always"
    about = {"complete": True, **machine(find_device(args.device))}
    write_rows(about, (measured(folder, args.device) for folder in args.runs), args.out)


def measured(folder: Path, device: str) -> dict[str, Any]:
    run, predictor = Run.open(folder), Predictor.load(folder, device)
    graph, most, device_used = predictor.graph, max(LEVELS), predictor.tables.device
    relations = range(graph.n_relations)
    train = {"train": predictor.known["train"]}

    def search() -> Completion:
        hidden = replace(predictor, known=train, fitted=predictor.agreement)
        found = Completion(hidden, relations, most)
        found.run()
        return found

    found: list[Completion] = []
    cpu_began = time.process_time()
    seconds = seconds_of(lambda: found.append(search()), device_used)
    cpu_seconds = time.process_time() - cpu_began
    blind = found[0]
    within = Within.parse("seen", graph, device_used)
    seen = Completion(blind.predictor, relations, most, within=within)
    seen.run()
    held_out = np.concatenate([graph.valid, graph.test])
    model = run.recipe.model
    return {
        "data": graph.name, "model": model.name, "dim": model.dim, "entities": graph.n_entities,
        "sharp": blind.sharp_reach is not None,
        "questions": blind.total, "asked_again": blind.n_again, "skipped": blind.skipped,
        "seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds, 2),
        "held_out": len(held_out),
        "precision": precision(blind.found.triples, held_out, graph),
        "precision_seen": precision(seen.found.triples, held_out, graph),
        "probability": {str(k): float(blind.found.probability[:k].mean()) for k in LEVELS},
        "frequency": precision(by_frequency(graph, most), held_out, graph),
    }  # fmt: skip


def precision(facts: Triples, held_out: Triples, graph: Graph) -> dict[str, float]:
    """The share of held-out facts among the first K, by K."""
    keys, wanted = triple_keys([facts, held_out], graph.n_entities, graph.n_relations)
    right = np.isin(keys, wanted)
    return {str(k): float(right[:k].sum() / k) for k in LEVELS}


def by_frequency(graph: Graph, count: int) -> Triples:
    """The `count` new facts of the highest frequency."""
    parts, scores = [], []
    for r in np.unique(graph.train[:, 1]).tolist():
        facts = graph.train[graph.train[:, 1] == r]
        sides = [np.unique(facts[:, column], return_counts=True) for column in (0, 2)]
        (heads, n_heads), (tails, n_tails) = (
            (ids[order], n[order]) for ids, n in sides for order in [np.argsort(-n, kind="stable")]
        )
        # Pair (i, j), numbered from 1, is no better than the i · j pairs (1, 1) to (i, j).
        enough = count + len(facts)
        widths = np.minimum(enough // np.arange(1, min(enough, len(heads)) + 1), len(tails))
        i = np.repeat(np.arange(len(widths)), widths)
        j = np.arange(len(i)) - np.repeat(np.cumsum(widths) - widths, widths)
        pairs = np.stack([heads[i], np.full(len(i), r), tails[j]], 1)
        score = n_heads[i] * n_tails[j] / len(facts)
        keys = triple_keys([graph.train, pairs], graph.n_entities, graph.n_relations)
        new = ~np.isin(keys[1], keys[0])
        parts.append(pairs[new])
        scores.append(score[new])
    order = np.argsort(-np.concatenate(scores), kind="stable")[:count]
    return np.asarray(np.concatenate(parts)[order])


if __name__ == "__main__":
    main()
