"""What supports or contradicts a fact, and how probable the fact is.

A logistic regression weighs it. Each relation has weights of its own, held near those of all
relations: the fact in the other direction means much for `similar_to`, and nothing for `part_of`.
"""

from __future__ import annotations

import numpy as np

from allneg.auditing.reasons import single_answers
from allneg.evaluation.curves import Numbers, logistic
from allneg.graph.graph import Graph, Triples
from allneg.predict.agreement import LOWEST
from allneg.predict.evidence import Evidence

_ERRORS = 0.05  # the share of wrong facts that probabilities assume
_RIDGE = 0.3  # holds the weights of a relation near those of all
_NEIGHBOURS = 10  # of an entity on a path
_BLOCK = 1 << 13  # facts whose paths are counted at once


def features(graph: Graph, facts: Triples, evidence: Evidence) -> Numbers:
    """What supports or contradicts facts: (n, F). Other facts are those of the graph's train."""
    n, head, tail = graph.n_entities, graph.train[:, 0], graph.train[:, 2]
    columns = [*np.clip(evidence.margin, LOWEST, 0).T, *np.log(evidence.rank).T]
    columns += [*np.log1p(evidence.others).T, *(evidence.others == 0).T]
    degree = np.bincount(graph.train[:, [0, 2]].reshape(-1), minlength=n)[facts[:, [0, 2]]]
    columns += [*np.log1p(degree).T, *(degree == 0).T]
    for i, column in enumerate((0, 2)):  # another answer where most have only one
        single = single_answers(graph, column)[facts[:, 1]]
        columns.append(single * (evidence.others[:, i] > 0))
    pair = np.minimum(head, tail) * n + np.maximum(head, tail)
    of_facts = facts[:, 0], facts[:, 2]
    wanted = np.minimum(*of_facts) * n + np.maximum(*of_facts)
    pairs, counts = np.unique(pair, return_counts=True)
    at = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
    columns.append(np.log1p(np.where(pairs[at] == wanted, counts[at], 0)))
    links = Links(graph)
    blocks = [links.paths(facts[i : i + _BLOCK]) for i in range(0, max(1, len(facts)), _BLOCK)]
    columns += [*np.log1p(np.concatenate(blocks)).T]
    return np.stack([*columns, np.ones(len(facts))], 1).astype(np.float64)


class Links:
    """Which entities the facts of train link with others, in either direction."""

    def __init__(self, graph: Graph) -> None:
        train = graph.train[graph.train[:, 0] != graph.train[:, 2]]
        self.n, (head, _, tail) = graph.n_entities, train.T
        self.keys = np.unique(np.concatenate([head * self.n + tail, tail * self.n + head]))
        self.starts = np.searchsorted(self.keys, np.arange(self.n + 1) * self.n)

    def paths(self, facts: Triples) -> Numbers:
        """How many paths of two and of three links join head and tail: (n, 2).

        Only the first neighbours of each entity are followed.
        """
        head, tail = facts[:, 0], facts[:, 2]
        degree = np.diff(self.starts)
        is_less = degree[head] <= degree[tail]
        begin, end = np.where(is_less, head, tail), np.where(is_less, tail, head)
        fact, middle = self._step(np.arange(len(facts)), begin)
        kept = middle != end[fact]
        fact, middle = fact[kept], middle[kept]
        two = np.bincount(fact, self._has(middle, end[fact]), len(facts))
        path, last = self._step(np.arange(len(fact)), middle)
        fact = fact[path]
        is_new = (last != begin[fact]) & (last != end[fact])
        three = np.bincount(fact, is_new & self._has(last, end[fact]), len(facts))
        return np.stack([two, three], 1)

    def _step(self, path: Triples, entity: Triples) -> tuple[Triples, Triples]:
        """The paths that go on from each entity to its first neighbours."""
        count = np.minimum(np.diff(self.starts)[entity], _NEIGHBOURS)
        row = np.repeat(np.arange(len(entity)), count)
        number = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        return path[row], self.keys[self.starts[entity[row]] + number] % self.n

    def _has(self, one: Triples, other: Triples) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        key = one * self.n + other
        at = np.searchsorted(self.keys, key).clip(max=len(self.keys) - 1)
        return np.asarray(self.keys[at] == key)


def log_odds(x: Numbers, relation: Triples, made: Numbers, of_made: Triples) -> Numbers:
    """How much more probable a fact is right than wrong: (n, F), (n,), (m, F), (m,) -> (n,).

    `made` are the features of wrong facts, `of_made` their relations.
    """
    label = np.arange(len(x) + len(made)) < len(x)
    every, relations = np.concatenate([x, made]), np.concatenate([relation, of_made])
    weight = np.where(label, 1.0, _ERRORS / (1 - _ERRORS) * len(x) / len(made))
    common, found = logistic(every, label, weight), np.zeros(len(x))
    order = np.argsort(relations, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(relations[order])) + 1):
        own = logistic(every[rows], label[rows], weight[rows], common, _RIDGE)
        facts = rows[label[rows]]
        found[facts] = x[facts] @ own
    return found
