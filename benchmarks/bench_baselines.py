"""Test MRR of the baselines that need no model, by graph.

python benchmarks/bench_baselines.py GRAPH… --out benchmarks/results/baselines.json
"""

from __future__ import annotations

from typing import Any

from measure import write_rows_of_graphs

from allneg.evaluation import evaluate_baselines
from allneg.graph import Graph


def main() -> None:
    write_rows_of_graphs(__doc__ or "", {"baselines": "test MRR"}, _row)


def _row(graph: Graph) -> dict[str, Any]:
    found = evaluate_baselines(graph, "test")
    return {"mrr": {baseline: round(report["mrr"], 5) for baseline, report in found.items()}}


if __name__ == "__main__":
    main()
