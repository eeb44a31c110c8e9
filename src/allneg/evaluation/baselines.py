"""What a model has to beat: answers from simple counts over train, ranked like those of a model.

- frequency: the score of an entity t for (h, r, ?) is its share, the heads of r that have the
  tail t divided by all heads of r; for (?, r, t) likewise. It is the same for every h.
- rules: inverse and symmetric relations. A rule "(t, s, h) implies (h, r, t)" has a confidence,
  the share of the facts of s for which train has the other fact, too. The score of an entity is
  the confidence of the best rule that gives it.
- combined: share + confidence × (1 − share), as if both were independent probabilities.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from allneg.evaluation.ranks import PROTOCOLS, Protocol, Ranking, to_rank
from allneg.evaluation.report import Report
from allneg.graph.graph import Graph
from allneg.graph.queries import SIDES, KnownAnswers, Queries

MOST_TRIPLES = 20_000_000  # of train
_WEIGHTS = {"frequency": (1, 0), "rules": (0, 1), "combined": (1, 1)}  # of share, confidence
_LEAST_CONFIDENCE = 0.1  # of a rule
_CPU = torch.device("cpu")


def evaluate_baselines(
    graph: Graph,
    split: str = "test",
    protocol: Protocol = PROTOCOLS["allneg"],
    device: torch.device = _CPU,
) -> dict[str, Any]:
    """The metrics of each baseline, in total and by side, and its MRR by relation and side.

    The dict is empty if train has more than `MOST_TRIPLES` triples: memory grows with them.
    """
    if len(graph.train) > MOST_TRIPLES:
        return {}
    found = {}
    for name, ranking in rank_baselines(graph, split, protocol, device).items():
        report = Report.of(ranking, graph)
        by_relation = {
            relation: {"mrr": table["mrr"], **{side: table[side]["mrr"] for side in SIDES}}
            for relation, table in report.by_relation.items()
        }
        found[name] = {**report.metrics, "by_side": report.by_side, "by_relation": by_relation}
    return found


def rank_baselines(
    graph: Graph, split: str, protocol: Protocol, device: torch.device = _CPU
) -> dict[str, Ranking]:
    """The ranks of a split's answers by each baseline.

    The protocol's tolerance is not used: it allows for rounding, and these scores are exact.
    """
    triples, candidates = to_rank(graph, split, protocol)
    known = KnownAnswers.of_splits(graph, protocol.filter_splits(split), device)
    facts = KnownAnswers.of_splits(graph, ["train"], device)
    rules, is_candidate = _Rules.of(facts), torch.from_numpy(candidates).to(device)
    queries = (Queries.of(torch.from_numpy(triples).to(device), side) for side in SIDES)
    columns = [_count(one, known, facts, rules, is_candidate) for one in queries]
    found = torch.stack(columns, dim=-1).cpu().numpy()  # (baselines, 2, n, 2)
    dropped = len(graph.split(split)) - len(triples)
    return {
        name: Ranking(protocol, split, triples, better, equal, int(candidates.sum()), dropped)
        for name, (better, equal) in zip(_WEIGHTS, found, strict=True)
    }


@dataclass(frozen=True)
class _Rules:
    """The inverses of `sources[starts[r] : starts[r + 1]]` imply relation r."""

    starts: Tensor  # int64 (R + 1,)
    sources: Tensor  # int64 (M,)
    confidences: Tensor  # float64 (M,)

    @classmethod
    def of(cls, facts: KnownAnswers) -> Self:
        n, n_relations = facts.n_entities, facts.n_relations
        tail_keys = facts.keys < n_relations * n
        key = facts.keys[tail_keys].repeat_interleave(facts.starts.diff()[tail_keys])
        relation, head, tail = key // n, key % n, facts.answers[: len(key)]
        pair, order = (head * n + tail).sort()
        inverse = tail * n + head
        first = torch.searchsorted(pair, inverse)
        source, index = _spans(first, torch.searchsorted(pair, inverse, right=True) - first)
        implied = relation[order[index]] * n_relations + relation[source]
        rule, support = implied.unique(return_counts=True)
        confidence = support.double() / relation.bincount(minlength=n_relations)[rule % n_relations]
        kept = confidence >= _LEAST_CONFIDENCE
        rule, confidence = rule[kept], confidence[kept]
        count = (rule // n_relations).bincount(minlength=n_relations)
        starts = torch.cat([count.new_zeros(1), count.cumsum(0)])
        return cls(starts, rule % n_relations, confidence)

    def suggest(self, queries: Queries, facts: KnownAnswers) -> tuple[Tensor, Tensor]:
        """The entities that rules give, as sorted numbers query · n + entity; their confidences."""
        first = self.starts[queries.relation]
        query, rule = _spans(first, self.starts[queries.relation + 1] - first)
        entity, source = queries.entity[query], self.sources[rule]
        index, found = facts.pairs(Queries(1 - queries.side[query], entity, source, entity))
        pair, position = (query[index] * facts.n_entities + found).unique(return_inverse=True)
        best = torch.zeros(len(pair), dtype=torch.float64, device=pair.device)
        return pair, best.scatter_reduce_(0, position, self.confidences[rule[index]], "amax")


class _Scores:
    """Scores in groups, sorted."""

    def __init__(self, group: Tensor, score: Tensor) -> None:
        self.values = _sorted(score).unique_consecutive()
        self.keys = _sorted(group * (len(self.values) + 1) + torch.searchsorted(self.values, score))

    def count(self, group: Tensor, score: Tensor) -> Tensor:
        """How many scores of each group are higher than a score, and how many equal: (2, B)."""
        before = group * (len(self.values) + 1)
        start = torch.searchsorted(self.keys, before + torch.searchsorted(self.values, score))
        equal = before + torch.searchsorted(self.values, score, right=True)
        stop = torch.searchsorted(self.keys, equal)
        end = torch.searchsorted(self.keys, before + len(self.values))
        return torch.stack([end - stop, stop - start])


class _Shares:
    """The share of the heads of a relation that have a tail; for side 1, of tails and a head."""

    def __init__(self, facts: KnownAnswers, side: int) -> None:
        self.facts, self.other = facts, SIDES[1 - side]
        block = facts.keys // facts.n_entities  # relation, plus n_relations for head queries
        n_others = block.bincount(minlength=2 * facts.n_relations).view(2, -1)
        self.n_others, n_filling = n_others[side].clamp(min=1).double(), n_others[1 - side]
        self.n_filling = n_filling  # entities with a share, by relation: (R,)
        is_filling = block // facts.n_relations == 1 - side
        self.relation = block[is_filling] % facts.n_relations
        self.share = facts.starts.diff()[is_filling] / self.n_others[self.relation]

    def __call__(self, relation: Tensor, entity: Tensor) -> Tensor:
        count = self.facts.counts(Queries.for_side(self.other, entity, relation, entity))
        return count / self.n_others[relation]


def _count(
    queries: Queries, known: KnownAnswers, facts: KnownAnswers, rules: _Rules, is_candidate: Tensor
) -> Tensor:
    """How many candidates score higher than each answer, and how many the same, by baseline:
    (baselines, 2, B). All queries ask for the same side.

    Only entities with a share, suggestions and known answers are looked at, never all entities.
    """
    n, side = facts.n_entities, int(queries.side[0])
    shares, n_candidates = _Shares(facts, side), int(is_candidate.sum())
    # Triples with the same query are looked up once.
    key, group = (queries.relation * n + queries.entity).unique(return_inverse=True)
    relation = key // n
    distinct = Queries.for_side(SIDES[side], key % n, relation, key)
    pair, confidence = rules.suggest(distinct, facts)
    answer_share = shares(queries.relation, queries.answer)
    answer_confidence = _look_up(group * n + queries.answer, pair, confidence)

    known_group, entity = known.pairs(distinct)
    kept = is_candidate[entity]
    known_group, entity = known_group[kept], entity[kept]
    is_known = _look_up(pair, known_group * n + entity, torch.ones_like(entity)) == 1
    new_group, new, confidence = (part[~is_known] for part in (pair // n, pair % n, confidence))
    new_share = shares(relation[new_group], new)
    other_group = torch.cat([known_group, new_group])
    other_share = torch.cat([shares(relation[known_group], entity), new_share])

    asked = torch.zeros_like(shares.n_filling, dtype=torch.bool)
    asked[relation] = True
    kept = asked[shares.relation]
    filling = _Scores(shares.relation[kept], shares.share[kept])
    found = []
    for weights in _WEIGHTS.values():
        score = _combined(answer_share, answer_confidence, weights)
        # Every candidate with its share as its score …
        n_zeros = n_candidates - weights[0] * shares.n_filling[queries.relation]
        counts = weights[0] * filling.count(queries.relation, score)
        counts[1] += torch.where(score == 0, n_zeros, 0)
        # … without known answers and suggestions, whose score is another.
        counts -= _Scores(other_group, weights[0] * other_share).count(group, score)
        counts += _Scores(new_group, _combined(new_share, confidence, weights)).count(group, score)
        found.append(counts)
    return torch.stack(found)


def _sorted(values: Tensor) -> Tensor:
    if values.device.type == "cpu":  # NumPy sorts several times faster than torch
        return torch.from_numpy(np.sort(values.numpy()))
    return values.sort().values


def _combined(share: Tensor, confidence: Tensor, weights: tuple[int, int]) -> Tensor:
    share = weights[0] * share
    return share + weights[1] * confidence * (1 - share)


def _look_up(keys: Tensor, among: Tensor, values: Tensor) -> Tensor:
    """The value of each key among sorted keys; 0 if it is not there."""
    if not len(among):
        return values.new_zeros(len(keys))
    index = torch.searchsorted(among, keys).clamp(max=len(among) - 1)
    return torch.where(among[index] == keys, values[index], 0)


def _spans(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The row and the index of every element of the spans `first[i] : first[i] + count[i]`."""
    row = torch.repeat_interleave(count)
    return row, torch.arange(len(row), device=row.device) + (first - count.cumsum(0) + count)[row]
