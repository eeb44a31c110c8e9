"""Scores of both directions and known facts → one probability of a new fact.

The log-odds of a fact (h, r, t) are a sum: the margins of t among the answers to (h, r, ?) and of h
among those to (?, r, t), the logs of how many other answers train has to either question, whether
it has any, and a number for r, each times a weight. The weights are those of a logistic regression
that tells facts of valid from all others. These are far too many, so some are drawn: the best
answers to some questions, and a few others. Each stands for as many as its probability of being
drawn says, so the probability is that of a fact of the whole graph, not of a question with an
answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from allneg.errors import counted
from allneg.evaluation.curves import Numbers, logistic, probability_of
from allneg.graph.graph import Triples, even_sample
from allneg.graph.queries import SIDES, Queries
from allneg.predict.evidence import Evidence
from allneg.predict.scorer import Scorer

LOWEST = -16.0  # lower margins count as this one
_LEAST_SCORES, _MOST_SCORES = 1 << 26, {"cpu": 1 << 29, "cuda": 1 << 32}  # that a fit computes
_SHARE = 1 / 8  # of the scores of all possible facts, within these limits
_LEAST = 16  # questions of a kind and facts to fit to, however many entities there are
_BEST = 8  # answers to a question that are compared with facts of valid
_DRAWN = 3  # other answers
_DOUBT = 8.0  # weighs the uncertainty of these numbers
_ENOUGH = 100  # facts to fit to, about ten for each of nine weights
_PRIOR = 20.0  # facts of valid that a relation needs for a number of its own, about


@dataclass(frozen=True)
class Agreement:
    """The weights of what is added; column 0 is that of tail queries, column 1 of head queries."""

    margin: Numbers  # (2,): not negative
    others: Numbers  # (2,): of log(1 + other answers)
    alone: Numbers  # (2,): added if there is no other answer
    relation: Numbers  # (R,): added for each relation

    def __call__(self, margin: Numbers, others: Numbers, relation: Triples) -> Numbers:
        """The log-odds of facts: (n, 2), (n, 2), (n,) -> (n,)."""
        total = np.clip(margin, LOWEST, 0) @ self.margin + np.log1p(others) @ self.others
        return np.asarray(total + (others == 0) @ self.alone + self.relation[relation])

    def of_others(self, side: int, others: Tensor) -> Tensor:
        """The log-odds that other answers of train add to any answer: (B,) -> (B,)."""
        added = float(self.others[side]) * others.float().log1p()
        return added + float(self.alone[side]) * (others == 0)

    @classmethod
    @torch.no_grad()
    def fit(cls, scorer: Scorer) -> Agreement | None:
        """Learn from valid and train; None without valid."""
        graph = scorer.graph
        if not len(graph.valid):
            return None
        n_scores = int(_SHARE * graph.n_entities**2 * graph.n_relations)
        most = _MOST_SCORES.get(scorer.tables.device.type, 1 << 29)
        budget = min(most, max(_LEAST_SCORES, n_scores)) // graph.n_entities  # queries
        true = graph.valid[even_sample(len(graph.valid), max(_LEAST, budget // 8))]
        false, rates = _sample(scorer, max(_LEAST, budget * 3 // 32 // (_BEST + _DRAWN)))
        facts = np.concatenate([true, false])
        evidence, label = Evidence.of(scorer, facts), np.arange(len(facts)) < len(true)
        stands_for = _stands_for(evidence, rates, graph.n_entities)
        weight = np.where(label, len(graph.valid) / len(true), stands_for)
        n_valid, n_train = (
            np.bincount(part[:, 1], minlength=graph.n_relations)
            for part in (graph.valid, graph.train)
        )
        often, relation = np.log(np.stack([n_valid + 0.5, n_train + 1.0])), facts[:, 1]
        columns = [np.clip(evidence.margin, LOWEST, 0), np.log1p(evidence.others)]
        columns += [evidence.others == 0, often[:, relation].T, np.ones((len(facts), 1))]
        x = np.concatenate(columns, 1, dtype=np.float64)
        found = logistic(x, label, weight)
        found[:2] = np.maximum(found[:2], 0)
        share = weight * probability_of(x @ found)
        expected, squares = (np.bincount(relation, w, graph.n_relations) for w in (share, share**2))
        # A few facts with large weights give an uncertain number of a relation.
        prior = _PRIOR + _DOUBT * squares / np.maximum(expected, 1e-300)
        own = np.log((n_valid + prior) / (expected + prior))
        return cls(found[:2], found[2:4], found[4:6], found[6:8] @ often + found[8] + own)


def notes_on_few(**counts: int) -> list[str]:
    """A note for each kind of facts that probabilities are fitted to if there are only a few."""
    return [
        f"{kind}: {counted(count, 'fact')}; probabilities that are fitted to fewer than "
        f"{_ENOUGH} say little, so compare them with each other only"
        for kind, count in counts.items()
        if count < _ENOUGH
    ]


def _sample(scorer: Scorer, most: int) -> tuple[Triples, Numbers]:
    """New answers to `most` questions of each kind, and the share of questions that are asked.

    Kinds are sides and whether train has an answer: (n, 3), (2, 2).
    """
    graph, train = scorer.graph, scorer.known["train"]
    total, rates, parts = graph.n_relations * graph.n_entities, np.zeros((2, 2)), []
    first = int(torch.searchsorted(train.keys, total))
    rng = np.random.default_rng(0)
    for side, keys in enumerate((train.keys[:first], train.keys[first:] - total)):
        asked = keys.cpu().numpy()
        others = np.unique(rng.integers(total, size=most))
        others = others[~np.isin(others, asked)]
        answered = asked[even_sample(len(asked), most)]
        rates[side] = len(others) / max(1, total - len(asked)), len(answered) / len(asked)
        chosen = torch.from_numpy(np.concatenate([others, answered])).to(keys.device)
        for some in chosen.split(max(1, (1 << 22) // graph.n_entities)):
            relation, entity = some // graph.n_entities, some % graph.n_entities
            queries = Queries.for_side(SIDES[side], entity, relation, entity)
            values = scorer.scores(queries)
            for known in scorer.known.values():
                values[known.pairs(queries)] = -torch.inf
            best, answer = values.topk(min(_BEST, graph.n_entities), dim=1)
            values.scatter_(1, answer, -torch.inf)
            drawn = torch.from_numpy(rng.integers(graph.n_entities, size=(len(some), _DRAWN)))
            drawn = drawn.to(keys.device)
            is_new = torch.cat([best, values.gather(1, drawn)], 1).isfinite()
            row, column = is_new.nonzero().unbind(1)
            ends = entity[row], torch.cat([answer, drawn], 1)[row, column]
            parts.append(torch.stack([ends[side], relation[row], ends[1 - side]], 1))
    return torch.cat(parts).cpu().numpy(), rates


def _stands_for(evidence: Evidence, rates: Numbers, n_entities: int) -> Numbers:
    """How many facts each fact of a sample stands for: 1 / how often it is drawn, (n,)."""
    often = np.where(evidence.rank <= _BEST, 1, _DRAWN / n_entities)
    often *= rates[[0, 1], (evidence.others > 0).astype(np.int64)]
    return np.asarray(1 / np.maximum(often.sum(1), 1e-300))  # facts of valid may never be drawn
