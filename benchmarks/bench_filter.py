"""The best MRR on valid that a model can have if `evaluation.filter` is "seen".

python benchmarks/bench_filter.py GRAPH… --out benchmarks/results/filter.json

It is that of a model that ranks the facts of the graph first. It cannot know which of them are in
valid, so its order of a query's answers in valid and test is random; those in test count as wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure import write_rows

from allneg.graph import read_graph
from allneg.graph.graph import Triples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    write_rows({"filter": "best MRR on valid with seen"}, _rows(args.graphs), args.out)


def _rows(graphs: list[str]) -> Iterator[dict[str, Any]]:
    for name in graphs:
        graph = read_graph(name)
        found = []
        for entity in (0, 2):
            of_valid, of_test = (_query(graph.split(s), entity) for s in ("valid", "test"))
            queries, counts = np.unique(of_test, return_counts=True)
            at = np.searchsorted(queries, of_valid).clip(max=len(queries) - 1)
            last = 1 + np.where(queries[at] == of_valid, counts[at], 0)  # ranks 1 to this
            found.append((1 / np.arange(1, last.max() + 1)).cumsum()[last - 1] / last)
        yield {"graph": Path(name).name, "mrr": round(float(np.concatenate(found).mean()), 5)}


def _query(triples: Triples, entity: int) -> Triples:
    """A number for the entity and the relation of each query."""
    return triples[:, entity] << 32 | triples[:, 1]


if __name__ == "__main__":
    main()
