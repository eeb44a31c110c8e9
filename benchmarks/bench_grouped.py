"""Each distinct query once or each question: seconds per epoch, and seconds to a validation MRR.

python benchmarks/bench_grouped.py --out FILE.json
python benchmarks/bench_grouped.py --train 20 --data wn18rr --out FILE.json

An epoch has the same questions in every way; a batch counts distinct queries where they are
grouped. With `--train`, each way trains that many seconds, rankings not counted, and ranks valid.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

from loops import Ours, Task, asked, facts, options, seconds_of
from measure import write_rows

from allneg.evaluation import evaluate

# Whether queries are grouped, batch size, and learning rate where it is not that of the task.
EPOCHS = [(False, 1000), (True, 300), (True, 500), (True, 1000)]
TRAININGS: dict[str, list[tuple[bool, int, float]]] = {
    "fb15k-237": [
        (False, 1000, 0.1),
        (True, 300, 0.1),
        (True, 500, 0.1),
        (True, 1000, 0.1),
    ],
    "wn18rr": [(False, 500, 0.1), (True, 150, 0.1), (True, 300, 0.1), (True, 500, 0.1)],
    "fb15k": [(False, 1000, 0.02), (True, 300, 0.02), (True, 500, 0.02)],
    "wn18": [(False, 1000, 0.1), (True, 500, 0.1), (True, 1000, 0.1)],
}
WEIGHTS = {"fb15k-237": 0.05, "wn18rr": 0.1, "fb15k": 0.005, "wn18": 0.03}  # of N3


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--precisions", default="tf32,bf16", help="with commas between")
    parser.add_argument("--train", type=float, help="seconds of each training, instead of epochs")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two rankings")
    parser.add_argument("--only", help="numbers of ways of training, with commas between")
    args = parser.parse_args()
    task, _ = asked(args)
    rows = _trainings(task, args) if args.train else _epochs(task, args)
    write_rows({"grouped": "complex-n3", **facts(task)}, rows, args.out)


def _epochs(task: Task, args: Any) -> Iterator[dict[str, Any]]:
    for precision in args.precisions.split(","):
        for grouped, batch in EPOCHS:
            loop = _loop(task, precision, grouped, batch)
            for _ in range(2):  # compiling, capturing, allocating
                loop.steps(args.steps)
            seconds = [_timed(loop, args.steps) for _ in range(3)]
            yield {
                "precision": precision,
                "grouped": grouped,
                "batch": batch,
                "seconds": round(min(seconds), 4),
                "all_seconds": [round(x, 4) for x in seconds],
            }
            gc.collect()


def _trainings(task: Task, args: Any) -> Iterator[dict[str, Any]]:
    ways = TRAININGS.get(task.graph.name, TRAININGS["fb15k-237"])
    some = [ways[int(i)] for i in args.only.split(",")] if args.only else ways
    weight = WEIGHTS.get(task.graph.name, 0.05)
    for precision in args.precisions.split(","):
        for grouped, batch, rate in some:
            _loop(task, precision, grouped, batch, rate, weight).steps(3)  # compiling
            loop = _loop(task, precision, grouped, batch, rate, weight)
            trained, ranked, epochs, curve = 0.0, 0.0, 0, []
            while trained < args.train:
                trained += _timed(loop, args.steps)
                epochs += 1
                if trained >= ranked + args.every or trained >= args.train:
                    ranked, report = trained, _valid(loop)
                    curve.append([epochs, round(trained, 2), round(report, 5)])
            yield {
                "precision": precision,
                "grouped": grouped,
                "batch": batch,
                "rate": rate,
                "best": max(mrr for _, _, mrr in curve),
                "curve": curve,  # epochs, seconds, valid MRR
            }
            gc.collect()


def _timed(loop: Ours, steps: int) -> float:
    """Seconds of an epoch, scaled up if not all steps are taken."""
    done: list[int] = []
    took = seconds_of(lambda: done.append(loop.steps(steps)), loop.device)
    return took * loop.task.queries / done[0]


def _loop(
    task: Task, precision: str, grouped: bool, batch: int, rate: float = 0.1, weight: float = 0.05
) -> Ours:
    settings = [
        f"loss.grouped={str(grouped).lower()}",
        f"training.batch_size={batch}",
        f"optimizer.learning_rate={rate}",
        f"regularizer.weight={weight}",
    ]
    return Ours(task, precision, settings)


def _valid(loop: Ours) -> float:
    return evaluate(loop.trainer.model, loop.trainer.tables, loop.task.graph, "valid").mrr


if __name__ == "__main__":
    main()
