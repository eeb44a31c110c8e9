"""Seconds that sets of questions take, and their MRR, by shape and beam.

python benchmarks/bench_ask.py RUN --queries FILE [--beams 64,512] [--compared 1000] [--out FILE]
python benchmarks/bench_ask.py RUN --queries FILE --alone [--out FILE]

FILE is made by benchmarks/make_queries.py; several files may be given. The first beam answers all
questions. Then every beam answers the same first questions of each shape, `--compared` of them.
The seconds are those of answering and ranking, after one pass over a few questions; on a machine
that does other work, leave them out with --untimed. With --alone, only the first question is timed,
with its derivations: the least of several times, and the load of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loops import seconds_of
from measure import benchmark_parser, machine, write_rows

from allneg.graph.graph import SPLITS
from allneg.hardware import find_device
from allneg.predict.ask import NORMS, SCORES, Search
from allneg.predict.predictor import Predictor
from allneg.predict.query_sets import Asked, evaluate_queries, read_queries
from allneg.runs import Run

_TURNS = 50  # of the question that is asked alone


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--queries", type=Path, nargs="+", required=True)
    parser.add_argument("--beams", default="64,512")
    parser.add_argument("--compared", type=int, default=1000, help="questions of each shape")
    parser.add_argument("--norm", choices=NORMS, default="product")
    parser.add_argument("--scores", choices=SCORES)
    parser.add_argument("--facts", action="store_true", help="those before --split are certain")
    parser.add_argument("--split", choices=SPLITS[1:], default="test")
    timing = parser.add_mutually_exclusive_group()
    timing.add_argument("--untimed", action="store_true", help="leave out the seconds")
    timing.add_argument("--alone", action="store_true", help="time the first question only")
    args = parser.parse_args()
    model, predictor = Run.open(args.run).recipe.model, Predictor.load(args.run, args.device)
    graph = predictor.graph
    asked = [item for path in args.queries for item in read_queries(path, graph.vocabulary)]
    facts = SPLITS[: SPLITS.index(args.split)] if args.facts else ()
    beams = list(map(int, args.beams.split(",")))
    searches = [Search(predictor, beam, args.norm, args.scores, facts) for beam in beams]
    about = {
        "ask_alone" if args.alone else "ask": True, **machine(find_device(args.device)),
        "data": graph.name, "entities": graph.n_entities, "model": model.name, "dim": model.dim,
        "norm": args.norm, "scores": args.scores or "default", "facts": args.facts,
        "split": args.split,
    }  # fmt: skip
    rows = alone(searches[0], asked[0]) if args.alone else measured(searches, asked, args.compared)
    if args.untimed:
        rows = ({k: v for k, v in row.items() if k != "seconds"} for row in rows)
    write_rows(about, rows, args.out)


def measured(
    searches: Sequence[Search], asked: Sequence[Asked], compared: int
) -> Iterator[dict[str, Any]]:
    """A row per shape and way; `way` is all or compared."""
    shapes = dict[str, list[Asked]]()
    for item in asked:
        shapes.setdefault(item.shape, []).append(item)
    for items in shapes.values():
        evaluate_queries(searches[0], items[:8])
        yield {"way": "all", **row(searches[0], items)}
    for search in searches:
        for items in shapes.values():
            yield {"way": "compared", **row(search, items[:compared])}


def alone(search: Search, asked: Asked) -> Iterator[dict[str, Any]]:
    """The least seconds of one question, after it was asked once, and the load after the last."""
    device, text = search.predictor.tables.device, asked.question.text
    search.answers(text, 10)
    times = [seconds_of(lambda: search.answers(text, 10), device) for _ in range(_TURNS)]
    yield {
        "beam": search.beam, "shape": asked.shape, "turns": _TURNS,
        "seconds": round(min(times), 4), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def row(search: Search, asked: Sequence[Asked]) -> dict[str, Any]:
    """The seconds that questions of one shape take, and their metrics."""
    found: list[dict[str, dict[str, Any]]] = []
    device = search.predictor.tables.device
    seconds = seconds_of(lambda: found.append(evaluate_queries(search, asked)), device)
    metrics = found[0][asked[0].shape]
    return {
        "beam": search.beam, "shape": asked[0].shape, "questions": metrics["questions"],
        "seconds": round(seconds, 3), "mrr": metrics["mrr"], "hits": metrics["hits"],
    }  # fmt: skip


if __name__ == "__main__":
    main()
