"""Test MRR of the baselines that need no model, by graph.

python benchmarks/bench_baselines.py GRAPH… --out benchmarks/results/baselines.json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import write_rows

from allneg.evaluation import evaluate_baselines
from allneg.graph import read_graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    write_rows({"baselines": "test MRR"}, _rows(args.graphs), args.out)


def _rows(graphs: list[str]) -> Iterator[dict[str, Any]]:
    for name in graphs:
        found = evaluate_baselines(read_graph(name), "test")
        mrrs = {baseline: round(report["mrr"], 5) for baseline, report in found.items()}
        yield {"graph": Path(name).name, "mrr": mrrs}


if __name__ == "__main__":
    main()
