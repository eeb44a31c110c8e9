"""How good a run is: its report, its curves, its worst queries, and some it does well."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from allneg.evaluation import PROTOCOLS, evaluate
from allneg.evaluation.ranks import Ranking, rank
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.queries import SIDES
from allneg.runs import Run
from allneg.serving.predictor import Predictor
from allneg.serving.shapes import Curve, Example, Heat, Quality, Worst

_MOST_WORST = 50
_MOST_EXAMPLES = 6
_LOOKED_AT = 1 << 25  # scores of the queries among which the worst are looked for
_TRIED = 1 << 22  # scores of the queries among which examples are looked for


def quality(run: Run, predictor: Predictor) -> Quality:
    """The report with what the page shows beside it. May take as long as an evaluation."""
    report, split = _report(run, predictor), _ranked_split(run.graph)
    worst, looked_at = [], 0
    if split is not None:
        ranking = _sample(predictor, split, _LOOKED_AT)
        worst, looked_at = _worst(ranking, run.graph), len(ranking.triples)
    heat = [
        Heat(name, said["category"], _shown(said["head"]), _shown(said["tail"]))
        for name, said in (report["by_relation"] if report else {}).items()
    ]
    return Quality(report, list(curves(run)), heat, worst, looked_at)


def examples(predictor: Predictor, degree: npt.NDArray[np.int64]) -> list[Example]:
    """Queries that the model answers well, about different relations where there are enough.

    Among equals, those about entities with many facts, which people know.
    """
    graph = predictor.graph
    ranking = _sample(predictor, _ranked_split(graph) or "train", _TRIED)
    names, ranks = graph.vocabulary, ranking.ranks
    # The side that is answered better is asked; on a tie the tail, which reads more naturally.
    asks_tail = ranks[:, 0] <= ranks[:, 1]
    asked = np.where(asks_tail, ranking.triples[:, 0], ranking.triples[:, 2])
    order = np.lexsort((-degree[asked], ranks.min(1))).tolist()
    taken: dict[int, int] = {}  # how often each relation
    rounds = []
    for place in order:
        relation = int(ranking.triples[place, 1])
        taken[relation] = taken.get(relation, 0) + 1
        rounds.append((taken[relation], place))
    found: dict[Example, None] = {}
    for _, place in sorted(rounds, key=lambda each: each[0]):
        head, relation, tail = ranking.triples[place].tolist()
        found[
            Example(
                names.entities[head] if asks_tail[place] else None,
                names.relations[relation],
                None if asks_tail[place] else names.entities[tail],
            )
        ] = None
        if len(found) == _MOST_EXAMPLES:
            break
    return list(found)


def _report(run: Run, predictor: Predictor) -> dict[str, Any] | None:
    """The run's own report, or the same ranking now where the run is not finished."""
    if run.has_report:
        return run.report.to_json()
    split = _ranked_split(run.graph)
    if split is None:
        return None
    block = run.recipe.evaluation.block
    found = evaluate(predictor.model, predictor.tables, run.graph, split, block=block)
    return found.to_json()


def _ranked_split(graph: Graph) -> str | None:
    return next((split for split in ("test", "valid") if len(graph.split(split))), None)


def _sample(predictor: Predictor, split: str, n_scores: int) -> Ranking:
    """The ranking of some triples of a split, spread over it."""
    graph = predictor.graph
    triples = graph.split(split)
    most = max(1, n_scores // graph.n_entities // 2)
    some = np.linspace(0, len(triples) - 1, min(most, len(triples))).astype(np.int64)
    rest = np.delete(triples, some, axis=0)
    # The others go where the filter still finds them.
    home = next(name for name in SPLITS if name != split)
    parts = {split: triples[some], home: np.concatenate([graph.split(home), rest])}
    sampled = replace(graph, **parts)  # type: ignore[arg-type]
    block = min(n_scores, 1 << 22)
    return rank(predictor.model, predictor.tables, sampled, split, PROTOCOLS["allneg"], block)


def _worst(ranking: Ranking, graph: Graph) -> list[Worst]:
    ranks, names = ranking.ranks, graph.vocabulary
    found = []
    for place in np.argsort(-ranks, axis=None, kind="stable")[:_MOST_WORST].tolist():
        row, side = divmod(place, len(SIDES))
        head, relation, tail = ranking.triples[row].tolist()
        found.append(
            Worst(
                names.entities[head],
                names.relations[relation],
                names.entities[tail],
                SIDES[side],
                float(ranks[row, side]),
            )
        )
    return found


def curves(run: Run) -> Iterator[Curve]:
    """Loss and MRR on valid of each epoch, as far as the run came."""
    for entry in run.metrics():
        loss, valid = entry.get("loss"), entry.get("valid")
        good = isinstance(loss, int | float) and math.isfinite(loss)
        yield Curve(entry["epoch"], loss if good else None, valid["mrr"] if valid else None)


def _shown(said: dict[str, Any]) -> dict[str, Any]:
    return {name: said[name] for name in ("mrr", "hits", "count")}
