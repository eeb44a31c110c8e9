"""Both directions → one probability: how much they and the known facts say for a new fact.

The log-odds of a fact (h, r, t) are a sum: the margins of t among the answers to (h, r, ?) and of h
among those to (?, r, t), the logs of how many other answers train has to either question, and how
often r is in valid, each times a weight. The weights are those of a logistic regression that
tells facts of valid from the best other answers to questions of train. Most of these have no new
answer, so the probability is that of a fact of the whole graph, not of a question with an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from allneg.evaluation.calibration import Numbers, probability_of
from allneg.graph.graph import Triples
from allneg.graph.queries import SIDES, Queries

if TYPE_CHECKING:
    from allneg.predict.predictor import Predictor

LOWEST = -16.0  # lower margins count as this one
_N_SCORES = {"cpu": 1 << 25, "cuda": 1 << 30}
_LEAST = 16  # questions and facts to fit to, however many entities there are
_BEST = 8  # answers to a question that are compared with facts of valid
_RIDGE = 1.0  # holds the weights near those of few data


@dataclass(frozen=True)
class Agreement:
    """The weights of what is added."""

    margin: Numbers  # (2,): not negative; column 0 by tail queries, column 1 by head queries
    others: Numbers  # (2,): of log(1 + other answers)
    relation: Numbers  # (R,): added for each relation

    def __call__(self, margin: Numbers, others: Numbers, relation: Triples) -> Numbers:
        """The log-odds of facts: (n, 2), (n, 2), (n,) -> (n,)."""
        said = np.clip(margin, LOWEST, 0) @ self.margin + np.log1p(others) @ self.others
        return np.asarray(said + self.relation[relation])

    @classmethod
    @torch.no_grad()
    def fit(cls, predictor: Predictor) -> Agreement | None:
        """Learn from valid and train; None without valid."""
        from allneg.predict.classify import Evidence

        graph = predictor.graph
        if not len(graph.valid):
            return None
        budget = _N_SCORES.get(predictor.tables.device.type, 1 << 28) // graph.n_entities
        n_facts, n_questions = max(_LEAST, budget // 4), max(_LEAST, budget // 4 // (1 + _BEST))
        true = graph.valid[_spread(len(graph.valid), n_facts)]
        lists = [_best_others(predictor, side, n_questions) for side in range(len(SIDES))]
        facts = np.concatenate([true, *(false for false, _ in lists)])
        evidence = Evidence.of(predictor, facts)
        # Facts stand for those that were not chosen. A false one may be in the list of either side.
        weight = np.repeat(
            [len(graph.valid) / len(true), *(share for _, share in lists)],
            [len(true), *(len(false) for false, _ in lists)],
        )
        label = np.arange(len(facts)) < len(true)
        weight /= np.where(label, 1, (evidence.others > 0).sum(1).clip(min=1))
        often = np.log(np.bincount(graph.valid[:, 1], minlength=graph.n_relations) + 0.5)
        said = [np.clip(evidence.margin, LOWEST, 0), np.log1p(evidence.others)]
        x = np.column_stack([*said, often[facts[:, 1]], np.ones(len(facts))])
        found = logistic(x, label, weight)
        return cls(np.maximum(found[:2], 0), found[2:4], found[4] * often + found[5])


def _best_others(predictor: Predictor, side: int, most: int) -> tuple[Triples, float]:
    """The best answers to questions of train that are in no split, and how many each stands for."""
    graph, train = predictor.graph, predictor.known["train"]
    first = int(torch.searchsorted(train.keys, graph.n_relations * graph.n_entities))
    keys = (train.keys[:first], train.keys[first:])[side]
    chosen = keys[torch.from_numpy(_spread(len(keys), most)).to(keys.device)]
    parts = []
    for some in chosen.split(max(1, (1 << 22) // graph.n_entities)):
        relation, entity = some // graph.n_entities % graph.n_relations, some % graph.n_entities
        queries = Queries.for_side(SIDES[side], entity, relation, entity)
        values = predictor.scores(queries)
        for known in predictor.known.values():
            values[known.pairs(queries)] = -torch.inf
        best, answer = values.topk(min(_BEST, graph.n_entities), dim=1)
        row, column = best.isfinite().nonzero().unbind(1)
        ends = entity[row], answer[row, column]
        parts.append(torch.stack([ends[side], relation[row], ends[1 - side]], 1))
    return torch.cat(parts).cpu().numpy(), len(keys) / len(chosen)


def _spread(total: int, most: int) -> Triples:
    return np.linspace(0, total - 1, min(most, total)).astype(np.int64)


def logistic(x: Numbers, label: npt.NDArray[np.bool_], weight: Numbers) -> Numbers:
    """Weights of a logistic regression, by Newton's method: (n, k), (n,), (n,) -> (k,)."""
    centre = np.zeros(x.shape[1])
    centre[:2] = 1.0  # without data, the sum of both margins
    found, ridge = centre.copy(), _RIDGE * np.eye(x.shape[1])
    for _ in range(100):
        rate = probability_of(x @ found)
        grad = x.T @ (weight * (label - rate)) - ridge @ (found - centre)
        hessian = (x * (weight * rate * (1 - rate))[:, None]).T @ x + ridge
        step = np.linalg.solve(hessian, grad)
        step /= max(1.0, abs(step).max() / 2)  # a long step may not converge
        found += step
        if abs(step).max() < 1e-9:
            break
    return found
