"""Seconds that sets of questions take, and their MRR, by shape and beam.

python benchmarks/bench_ask.py RUN --queries FILE [--beams 64,512] [--device cuda] [--out FILE]

FILE is made by benchmarks/make_queries.py. The seconds are those of answering and ranking all
questions of a shape, after one pass over a few of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loops import seconds_of
from measure import machine

from allneg.graph.graph import SPLITS
from allneg.hardware import find_device
from allneg.predict.ask import NORMS, SCORES, Search
from allneg.predict.predictor import Predictor
from allneg.predict.query_sets import Asked, evaluate_queries, read_queries
from allneg.runs import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--beams", default="64,512")
    parser.add_argument("--norm", choices=NORMS, default="product")
    parser.add_argument("--scores", choices=SCORES)
    parser.add_argument("--facts", action="store_true", help="those before --split are certain")
    parser.add_argument("--split", choices=SPLITS[1:], default="test")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    run, predictor = Run.open(args.run), Predictor.load(args.run, args.device)
    model, rows = run.recipe.model, list[dict[str, Any]]()
    asked = read_queries(args.queries, predictor.graph.vocabulary)
    facts = [name for name in SPLITS[: SPLITS.index(args.split)] if name in predictor.known]
    report = {
        "ask": True, **machine(find_device(args.device)), "data": predictor.graph.name,
        "entities": predictor.graph.n_entities, "model": model.name, "dim": model.dim,
        "norm": args.norm, "scores": args.scores or "default", "facts": args.facts, "rows": rows,
    }  # fmt: skip
    for beam in map(int, args.beams.split(",")):
        search = Search(predictor, beam, args.norm, args.scores, facts if args.facts else ())
        for shape in dict.fromkeys(item.shape for item in asked):
            some = [item for item in asked if item.shape == shape]
            evaluate_queries(search, some[:8])
            seconds, metrics = timed(search, some)
            rows.append({
                "beam": beam, "shape": shape, "questions": metrics["questions"],
                "seconds": round(seconds, 3), "mrr": metrics["mrr"], "hits": metrics["hits"],
            })  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
            if args.out:
                args.out.write_text(json.dumps(report, indent=1) + "\n")


def timed(search: Search, asked: Sequence[Asked]) -> tuple[float, dict[str, Any]]:
    """The seconds that questions of one shape take, and their metrics."""
    found: list[dict[str, dict[str, Any]]] = []
    device = search.predictor.tables.device
    seconds = seconds_of(lambda: found.append(evaluate_queries(search, asked)), device)
    return seconds, found[0][asked[0].shape]


if __name__ == "__main__":
    main()
