"""Predictors with random weights on tiny graphs, and their probabilities by brute force."""

from __future__ import annotations

import math

import numpy as np
import torch

from allneg.evaluation.calibration import Calibration
from allneg.evaluation.curves import Curve
from allneg.graph import Graph, Vocabulary
from allneg.graph.graph import SPLITS
from allneg.graph.queries import SIDES, KnownAnswers, Queries, Side
from allneg.models import MODELS
from allneg.predict.agreement import Agreement
from allneg.predict.predictor import Predictor
from allneg.scoring import Shard, Tables


def random_graph(seed: int) -> Graph:
    """3 to 9 entities, some of them not in train, and 1 to 3 relations."""
    rng = np.random.default_rng(seed)
    n, r = int(rng.integers(3, 10)), int(rng.integers(1, 4))
    names = Vocabulary(tuple(f"e{i}" for i in range(n)), tuple(f"r{i}" for i in range(r)))

    def triples(count: int, among: int) -> np.ndarray:
        columns = [rng.integers(among, size=count), rng.integers(r, size=count)]
        return np.stack([*columns, rng.integers(among, size=count)], 1).astype(np.int64)

    train = triples(int(rng.integers(1, 3 * n)), max(1, n - 2))
    return Graph("random", names, train, triples(int(rng.integers(1, n)), n), triples(3, n))


def make_predictor(name: str, seed: int, reciprocal: bool = False, ties: bool = False) -> Predictor:
    """A model with random weights and a random calibration; with `ties`, three equal entities."""
    graph, model = random_graph(seed), MODELS[name](2, 0.7)
    sizes = graph.n_entities, graph.n_relations
    tables = Tables.create(model, sizes[1], Shard.whole(sizes[0]), reciprocal, seed)
    tables.requires_grad_(False)
    if ties:
        tables.entities[1:3] = tables.entities[0]
    known = {s: KnownAnswers.of([graph.split(s)], *sizes) for s in SPLITS}
    ends = np.sort(np.random.default_rng(seed).uniform(0.05, 0.95, (2, 2)), axis=1)
    curves = {
        side: Curve("platt", np.array([-5.0, 3.0]), of_side)
        for side, of_side in zip(SIDES, ends, strict=True)
    }
    stored = Calibration(curves, 1, {"split": "test", "bins": []})
    rng = np.random.default_rng(seed)
    weights = np.round(rng.uniform(0, 2, 2), 0 if ties else 2), rng.normal(size=2)
    fitted = Agreement(*weights, rng.normal(size=2), rng.normal(size=sizes[1]))
    return Predictor(model, tables, graph, known, stored=stored, fitted=fitted)


def margins(predictor: Predictor, side: Side, entity: int, relation: int) -> dict[int, float]:
    """The margin of every answer to a query, computed plainly."""
    ids = torch.tensor([entity]), torch.tensor([relation])
    values = predictor.scores(Queries.for_side(side, *ids, ids[0]))[0].double()
    column, other = (0, 2) if side == "tail" else (2, 0)
    train = predictor.graph.train
    answers = set(train[(train[:, 1] == relation) & (train[:, column] == entity)][:, other])
    rest = [e for e in range(len(values)) if e not in answers]
    total = torch.logsumexp(values[rest], 0) if rest else torch.tensor(-torch.inf)
    return {e: float(value - total) for e, value in enumerate(values)}


def known_facts(graph: Graph) -> dict[tuple[int, int, int], str]:
    splits = ("test", "valid", "train")
    return {tuple(triple): s for s in splits for triple in graph.split(s).tolist()}


def probabilities(predictor: Predictor) -> dict[tuple[int, int, int], float]:
    """The probability of every fact: the logistic function of the sum of the evidence."""
    n, train = predictor.graph.n_entities, predictor.graph.train
    weights, known = predictor.agreement, set(map(tuple, train.tolist()))
    assert weights is not None
    found = {}
    for r in range(predictor.graph.n_relations):
        tails, heads = ([margins(predictor, s, e, r) for e in range(n)] for s in SIDES)
        for h in range(n):
            for t in range(n):
                others = (
                    sum((h, r, e) in known for e in range(n) if e != t),
                    sum((e, r, t) in known for e in range(n) if e != h),
                )
                total = float(weights.relation[r])
                for side, margin in enumerate((tails[h][t], heads[t][h])):
                    total += weights.margin[side] * min(0.0, max(-16.0, margin))
                    total += weights.others[side] * math.log(1 + others[side])
                    total += weights.alone[side] * (others[side] == 0)
                found[h, r, t] = 1 / (1 + math.exp(-total))
    return found


def new_facts(predictor: Predictor) -> dict[tuple[int, int, int], float]:
    """The probability of every fact that may be listed as new.

    A fact (x, r, x) may be listed only if train has such a fact of r.
    """
    known = known_facts(predictor.graph)
    loops = {r for h, r, t in predictor.graph.train.tolist() if h == t}
    return {
        (h, r, t): p
        for (h, r, t), p in probabilities(predictor).items()
        if (h, r, t) not in known and (h != t or r in loops)
    }
