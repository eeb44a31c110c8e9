"""The best MRR on valid that a model can have if `evaluation.filter` is "seen".

python benchmarks/bench_filter.py GRAPH… --out benchmarks/results/filter.json

It is that of a model that ranks the facts of the graph first. It cannot know which of them are in
valid, so its order of a query's answers in valid and test is random; those in test count as wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measure import write_rows_of_graphs

from allneg.graph import Graph
from allneg.graph.graph import Triples


def main() -> None:
    write_rows_of_graphs(__doc__ or "", {"filter": "best MRR on valid with seen"}, _row)


def _row(graph: Graph) -> dict[str, Any]:
    found = []
    for entity in (0, 2):
        of_valid, of_test = (_query(graph.split(s), entity) for s in ("valid", "test"))
        queries, counts = np.unique(of_test, return_counts=True)
        at = np.searchsorted(queries, of_valid).clip(max=len(queries) - 1)
        last = 1 + np.where(queries[at] == of_valid, counts[at], 0)  # ranks 1 to this
        found.append((1 / np.arange(1, last.max() + 1)).cumsum()[last - 1] / last)
    return {"mrr": round(float(np.concatenate(found).mean()), 5)}


def _query(triples: Triples, entity: int) -> Triples:
    """A number for the entity and the relation of each query."""
    return triples[:, entity] << 32 | triples[:, 1]


if __name__ == "__main__":
    main()
