"""Why a fact looks wrong: what the model expected, and the pattern of other facts it violates."""

from __future__ import annotations

import numpy as np

from allneg.evaluation.curves import Numbers
from allneg.graph.graph import Graph
from allneg.graph.queries import SIDES
from allneg.predict.predictor import Predictor

_SINGLE = 0.95  # a relation of which so many have one answer is functional
_SIMILAR = 5  # entities whose kind is compared


def single_answers(graph: Graph, column: int) -> Numbers:
    """The share of entities in a column of train that have one answer, by relation: (R,)."""
    keys = graph.train[:, 1] * graph.n_entities + graph.train[:, column]
    keys, counts = np.unique(keys, return_counts=True)
    of_relation = keys // graph.n_entities
    total = np.bincount(of_relation, minlength=graph.n_relations)
    single = np.bincount(of_relation[counts == 1], minlength=graph.n_relations)
    return np.asarray(single / np.maximum(1, total))


class Reasons:
    """Explains the facts of a fold by the model and the other facts, which the fold lacks."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor, self.graph = predictor, predictor.graph
        relation = self.graph.train[:, 1]
        self.single = [single_answers(self.graph, column) for column in (0, 2)]
        self.order = np.argsort(relation, kind="stable")
        self.starts = np.searchsorted(relation[self.order], np.arange(self.graph.n_relations + 1))

    def __call__(
        self, head: int, relation: int, tail: int, tail_rank: float, head_rank: float
    ) -> tuple[str, str]:
        """What was expected, on the side with the worse rank, and why the fact looks wrong."""
        names, link = self.graph.vocabulary.entities, self.graph.vocabulary.relations[relation]
        facts = self.graph.train[self.order[self.starts[relation] : self.starts[relation + 1]]]
        ends = (head, tail)
        reasons = []
        for i, side in enumerate(SIDES):  # the given entity is column 2 · i, the answer the other
            given, answer = ends[i], ends[1 - i]
            others = facts[(facts[:, 2 * i] == given) & (facts[:, 2 - 2 * i] != answer)]
            if len(others) and self.single[i][relation] >= _SINGLE:
                share = f"{self.single[i][relation]:.0%} of all have one {side}"
                reasons.append(
                    f"{names[given]} has another {side}, {names[others[0, 2 - 2 * i]]}: {share}"
                )
            seen = np.unique(facts[:, 2 - 2 * i])
            if len(facts) and answer not in seen:
                similar = [e for e, _ in self.predictor.vectors.nearest(answer, _SIMILAR)]
                kind = [names[e] for e in similar if e in seen]
                more = f"but the similar {kind[0]} is" if kind else "nor are entities like it"
                reasons.append(f"{names[answer]} is never the {side} of {link} elsewhere, {more}")
        i = int(head_rank > tail_rank)
        side, given = SIDES[i], ends[i]
        query = (side, names[given], link)
        has_loops = self.graph.has_loops[relation]
        found = self.predictor.answers([query], 2, new=True)[0].predictions
        best = [answer for answer in found if has_loops or answer.entity != names[given]]
        if not best:
            return "", "; ".join(reasons)
        expected = best[0].entity
        near = facts[facts[:, 2 - 2 * i] == self.graph.vocabulary.entity(expected)][:, 2 * i]
        if len(near):
            like = self.predictor.vectors.similarities(given, near.tolist())
            other = names[near[int(np.argmax(like))]]
            triple = (other, link, expected) if i == 0 else (expected, link, other)
            reasons.append(f"a similar fact is {' '.join(triple)}")
        reasons = reasons or [f"rank {tail_rank:g} of its tail, {head_rank:g} of its head"]
        return f"{side}: {expected}", "; ".join(reasons)
