"""Triple classification with typed negatives: accuracy, F1, AUC and calibration error.

python benchmarks/bench_classify.py RUN … [--device cuda] [--out benchmarks/results/NAME.json]
python benchmarks/bench_classify.py RUN --write FOLDER

Each fact of valid and test gets one false fact: its head or its tail is replaced by an entity that
train has on this side of this relation, drawn with a fixed seed, so that the result is in no split.
Thresholds and probabilities are fitted to valid and its false facts; verdicts and probabilities are
measured on test and its false facts. With --write, the facts are written as valid-false.tsv and
test-labelled.tsv, for `allneg score RUN test-labelled.tsv --negatives valid-false.tsv`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import benchmark_parser, machine, write_rows

from allneg.graph import Graph
from allneg.graph.graph import Triples
from allneg.hardware import find_device
from allneg.predict.classify import typed_negatives
from allneg.predict.predictor import Predictor
from allneg.runs import Run

SEEDS = {"valid": 0, "test": 1}


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--write", type=Path, help="a folder for the facts; nothing is measured")
    args = parser.parse_args()
    if args.write:
        write(Run.open(args.runs[0]).graph, args.write)
        return
    about = {"classification": True, **machine(find_device(args.device))}
    write_rows(about, (measured(folder, args.device) for folder in args.runs), args.out)


def measured(folder: Path, device: str) -> dict[str, Any]:
    run, predictor = Run.open(folder), Predictor.load(folder, device)
    graph, began = predictor.graph, time.perf_counter()
    false = named(graph, typed_negatives(graph, graph.valid, SEEDS["valid"]))
    facts, labels = labelled(graph)
    metrics = predictor.classify(facts, labels, false).metrics.items()
    model = run.recipe.model
    return {
        "data": graph.name, "model": model.name, "dim": model.dim, "facts": len(facts),
        **{name: None if value is None else round(value, 4) for name, value in metrics},
        "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def labelled(graph: Graph) -> tuple[list[tuple[str, str, str]], list[bool]]:
    """The facts of test, then their false ones, and which are true."""
    false = typed_negatives(graph, graph.test, SEEDS["test"])
    facts = named(graph, np.concatenate([graph.test, false]))
    return facts, [i < len(graph.test) for i in range(len(facts))]


def named(graph: Graph, triples: Triples) -> list[tuple[str, str, str]]:
    names = graph.vocabulary
    return [
        (names.entities[h], names.relations[r], names.entities[t]) for h, r, t in triples.tolist()
    ]


def write(graph: Graph, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    false = named(graph, typed_negatives(graph, graph.valid, SEEDS["valid"]))
    (folder / "valid-false.tsv").write_text("".join("\t".join(fact) + "\n" for fact in false))
    lines = [
        "\t".join((*fact, str(int(true)))) + "\n"
        for fact, true in zip(*labelled(graph), strict=True)
    ]
    (folder / "test-labelled.tsv").write_text("".join(lines))


if __name__ == "__main__":
    main()
