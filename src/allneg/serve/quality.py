"""The quality of a run: its report, its curves, its worst queries and good examples."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from allneg.evaluation import PROTOCOLS, evaluate
from allneg.evaluation.ranks import Ranking, rank
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.queries import SIDES, Side
from allneg.predict.predictor import Predictor
from allneg.runs import Run
from allneg.serve.schemas import Curve, Quality, Query, RankedQuery, RelationMetrics

_MAX_WORST = 50
_MAX_EXAMPLES = 6
_N_SCORES_WORST = 1 << 25  # computed in the search for the worst queries
_N_SCORES_EXAMPLES = 1 << 22


def quality(run: Run, predictor: Predictor) -> Quality:
    """All that the page shows of a run's quality. An unfinished run is evaluated first."""
    split, report = _ranked_split(run.graph), None
    if run.has_report:
        report = run.report.to_json()
    elif split is not None:
        block, tables = run.recipe.evaluation.block, predictor.tables
        report = evaluate(predictor.model, tables, run.graph, split, block=block).to_json()
    worst, n_ranked = [], 0
    if split is not None:
        ranking = _rank_sample(predictor, split, _N_SCORES_WORST)
        worst, n_ranked = _worst(ranking, run.graph), len(ranking.triples)
    by_relation = [
        RelationMetrics(name, values["category"], values["head"], values["tail"])
        for name, values in (report["by_relation"] if report else {}).items()
    ]
    return Quality(report, curves(run), by_relation, worst, n_ranked)


def curves(run: Run) -> list[Curve]:
    """The loss and the validation MRR of every epoch so far."""
    found = []
    for entry in run.metrics():
        loss, valid = entry.get("loss"), entry.get("valid") or {}
        is_number = isinstance(loss, int | float) and math.isfinite(loss)
        found.append(Curve(entry["epoch"], loss if is_number else None, valid.get("mrr")))
    return found


def examples(predictor: Predictor, degree: npt.NDArray[np.int64]) -> list[Query]:
    """Queries that the model answers well, with different relations if possible.

    Among equal ranks, entities with many facts come first: people know them.
    """
    names = predictor.graph.vocabulary
    split = _ranked_split(predictor.graph) or "train"
    ranking = _rank_sample(predictor, split, _N_SCORES_EXAMPLES)
    triples, ranks = ranking.triples, ranking.ranks
    # Take the side with the better rank; of equal ones the tail, which reads more naturally.
    asks_tail = ranks[:, 0] <= ranks[:, 1]
    entity = np.where(asks_tail, triples[:, 0], triples[:, 2])
    order = np.lexsort((-degree[entity], ranks.min(1)))
    used: Counter[int] = Counter()  # queries of each relation so far
    rounds = []
    for i in order.tolist():
        used[triples[i, 1]] += 1
        rounds.append((used[triples[i, 1]], i))
    found: dict[Query, None] = {}
    for _, i in sorted(rounds, key=lambda item: item[0]):
        name, relation = names.entities[entity[i]], names.relations[triples[i, 1]]
        found[query_for("tail" if asks_tail[i] else "head", name, relation)] = None
        if len(found) == _MAX_EXAMPLES:
            break
    return list(found)


def query_for(side: Side, entity: str, relation: str) -> Query:
    return Query(entity, relation, None) if side == "tail" else Query(None, relation, entity)


def _ranked_split(graph: Graph) -> str | None:
    return next((split for split in ("test", "valid") if len(graph.split(split))), None)


def _rank_sample(predictor: Predictor, split: str, n_scores: int) -> Ranking:
    """Rank an even sample of a split."""
    graph = predictor.graph
    triples = graph.split(split)
    most = max(1, n_scores // graph.n_entities // 2)
    sample = np.linspace(0, len(triples) - 1, min(most, len(triples))).astype(np.int64)
    # The other triples move to another split, so that the filter still contains them.
    home = next(name for name in SPLITS if name != split)
    rest = np.concatenate([graph.split(home), np.delete(triples, sample, axis=0)])
    sampled = replace(graph, **{split: triples[sample], home: rest})  # type: ignore[arg-type]
    block = min(n_scores, 1 << 22)
    return rank(predictor.model, predictor.tables, sampled, split, PROTOCOLS["allneg"], block)


def _worst(ranking: Ranking, graph: Graph) -> list[RankedQuery]:
    ranks, names = ranking.ranks, graph.vocabulary
    found = []
    for i in np.argsort(-ranks, axis=None, kind="stable")[:_MAX_WORST].tolist():
        row, side = divmod(i, len(SIDES))
        head, relation, tail = ranking.triples[row].tolist()
        triple = (names.entities[head], names.relations[relation], names.entities[tail])
        found.append(RankedQuery(*triple, SIDES[side], float(ranks[row, side])))
    return found
