"""Triple classification: is a given fact true? Its score, probability, ranks and verdict.

The evidence for a fact is the sum of two log-odds, those of its tail among the answers to
(head, relation, ?) and of its head among the answers to (?, relation, tail). A fact is called true
if its evidence reaches a threshold. Thresholds are chosen for the best accuracy on valid: the facts
of valid are true, and false facts, which weigh the same in all, are given or made by replacing one
side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from allneg.errors import UsageError, counted
from allneg.evaluation.calibration import reliability_table
from allneg.evaluation.curves import Curve, Numbers, probability_of
from allneg.graph.graph import Graph, Triples
from allneg.graph.memory import fact_rows
from allneg.graph.queries import KnownAnswers, Queries
from allneg.predict.agreement import notes_on_few
from allneg.predict.evidence import Evidence
from allneg.predict.fact_files import ids_of
from allneg.predict.predictor import Predictor
from allneg.predict.results import Results

Labels = npt.NDArray[np.bool_]

LEAST = 10  # true and false facts of a relation that has its own threshold
_TRIES = 100  # to replace an entity by another that gives no known fact


@dataclass(frozen=True)
class ScoredFact:
    head: str
    relation: str
    tail: str
    score: float  # the mean of those in both queries
    probability: float | None  # None if the run has no valid
    tail_rank: float
    head_rank: float
    verdict: bool | None  # likewise
    known: str | None  # the split that holds the fact; None for a new one


@dataclass(frozen=True)
class Classification:
    """The verdicts on facts and, if their labels are known, how many are right."""

    protocol: str
    triples: Results[ScoredFact]
    metrics: Mapping[str, float | None]  # accuracy, f1, auc, ece; empty without labels
    notes: tuple[str, ...] = ()  # what looks unusual

    def to_json(self) -> dict[str, Any]:
        triples, notes = [dict(vars(fact)) for fact in self.triples], list(self.notes)
        return {"protocol": self.protocol, "notes": notes, **self.metrics, "triples": triples}


@dataclass(frozen=True)
class Classifier:
    """Thresholds of the evidence and, fitted to given negatives, its probability."""

    threshold: Numbers  # (R,): that of all facts for relations with too few
    n_own: int  # relations with a threshold of their own
    curve: Curve | None  # None: the probability is that of the run's calibration
    n_negatives: int

    @classmethod
    def fit(cls, predictor: Predictor, negatives: Triples | None = None) -> Classifier | None:
        """Fit to valid and `negatives`, or made ones; None if there is no valid."""
        graph = predictor.graph
        if not len(graph.valid):
            return None
        false = typed_negatives(graph, graph.valid) if negatives is None else negatives
        facts = np.concatenate([graph.valid, false])
        label = np.arange(len(facts)) < len(graph.valid)
        evidence, relation = Evidence.of(predictor, facts).total, facts[:, 1]
        threshold = np.full(graph.n_relations, _best_threshold(evidence, label))
        n_true, n_false = (
            np.bincount(relation[part], minlength=graph.n_relations) for part in (label, ~label)
        )
        own = np.flatnonzero(np.minimum(n_true, n_false) >= LEAST)
        for r in own:
            threshold[r] = _best_threshold(evidence[relation == r], label[relation == r])
        curve = None if negatives is None else _fit_curve(evidence, label)
        return cls(threshold, len(own), curve, len(false))

    def in_words(self, n_relations: int) -> str:
        kind = "made by replacing one side" if self.curve is None else "given"
        return (
            "triple classification: a threshold per relation for the best accuracy on valid and "
            f"{counted(self.n_negatives, 'false fact')} {kind}; the same one for "
            f"{n_relations - self.n_own} of {counted(n_relations, 'relation')} with fewer than "
            f"{LEAST} true or false facts"
        )


def classify(
    predictor: Predictor,
    facts: Any,
    labels: Sequence[bool] | None = None,
    negatives: Any = None,
) -> Classification:
    """Score facts and decide which are true.

    `negatives` are false facts. With them, thresholds and probabilities are fitted to valid and
    these. Without them, false facts are made from valid for the thresholds, and the probability is
    that of `agreed`.
    """
    graph, named = predictor.graph, fact_rows(facts)
    false = None if negatives is None else ids_of(graph, fact_rows(negatives))
    classifier = Classifier.fit(predictor, false)
    ids = ids_of(graph, named)
    evidence = Evidence.of(predictor, ids)
    probability = agreed(predictor, evidence, ids[:, 1])
    verdict = None
    if classifier is not None:
        verdict = evidence.total >= classifier.threshold[ids[:, 1]]
        probability = classifier.curve(evidence.total) if classifier.curve else probability
    metrics: dict[str, float | None] = {}
    if labels is not None:
        label = np.array(labels, dtype=np.bool_)
        if len(label) != len(named):
            raise UsageError(f"{len(label):,} labels of {counted(len(named), 'fact')}")
        metrics = {"auc": area_under_curve(evidence.total, label)}
        if verdict is not None:
            metrics = {**accuracy_and_f1(verdict, label), **metrics}
        if probability is not None:
            metrics["ece"] = calibration_error(probability, label)
    splits = predictor.splits_of(ids)
    rows = [
        ScoredFact(
            *fact,
            score=float(evidence.score[i].mean()),
            probability=None if probability is None else float(probability[i]),
            tail_rank=float(evidence.rank[i, 0]),
            head_rank=float(evidence.rank[i, 1]),
            verdict=None if verdict is None else bool(verdict[i]),
            known=splits[i],
        )
        for i, fact in enumerate(named)
    ]
    words = "triple classification: no valid, so no verdicts"
    return Classification(
        classifier.in_words(graph.n_relations) if classifier else words,
        Results(ScoredFact, rows),
        metrics,
        tuple(_notes(predictor, false)) if classifier else (),
    )


def _notes(predictor: Predictor, false: Triples | None) -> Iterator[str]:
    n_valid = len(predictor.graph.valid)
    if false is None:
        yield from notes_on_few(valid=n_valid)
        return
    yield from notes_on_few(valid=n_valid, negatives=len(false))
    known = Counter(split for split in predictor.splits_of(false) if split)
    if known:
        where = ", ".join(f"{split} {n:,}" for split, n in known.items())
        yield (
            f"negatives that are known facts: {known.total():,} of {len(false):,} ({where}); "
            "they are used as false ones"
        )


def agreed(predictor: Predictor, evidence: Evidence, relation: Triples) -> Numbers | None:
    """The probability of facts by both directions; None if there is no valid."""
    if (agreement := predictor.agreement) is None:
        return None
    log_odds = agreement(evidence.margin, evidence.others, relation)
    return probability_of(log_odds)


def typed_negatives(graph: Graph, facts: Triples, seed: int = 0, typed: bool = True) -> Triples:
    """Each fact with its head or its tail replaced; none of the results is known.

    The other entity is one that train has on this side of this relation, drawn at random; if no
    new fact is found so, or unless `typed`, any entity.
    """
    rng, out = np.random.default_rng(seed), facts.copy()
    known = KnownAnswers.of_splits(graph)
    column = np.where(rng.random(len(facts)) < 0.5, 2, 0)  # which side is replaced
    todo = np.arange(len(facts))
    seen = [_seen(graph, side) for side in (0, 2)]
    for attempt in range(2 * _TRIES):
        relation = facts[todo, 1]
        drawn = rng.integers(graph.n_entities, size=len(todo))
        if typed and attempt < _TRIES:
            for side, (starts, entities) in zip((0, 2), seen, strict=True):
                first, count = starts[relation], np.diff(starts)[relation]
                pick = first + (rng.random(len(todo)) * count).astype(np.int64)
                has = (column[todo] == side) & (count > 0)
                drawn[has] = entities[pick[has]]
        out[todo, column[todo]] = drawn
        queries = Queries.of(torch.from_numpy(out[todo]), "tail")
        is_known = known.contains(queries, queries.answer.unsqueeze(1)).squeeze(1).numpy()
        todo = todo[is_known]
        if not len(todo):
            break
    return np.delete(out, todo, axis=0)  # where every replacement is a known fact


def _seen(graph: Graph, column: int) -> tuple[Triples, Triples]:
    """The entities that train has in a column, by relation: starts (R + 1,), entities."""
    pairs = np.unique(graph.train[:, 1] * graph.n_entities + graph.train[:, column])
    count = np.bincount(pairs // graph.n_entities, minlength=graph.n_relations)
    return np.append(0, np.cumsum(count)), pairs % graph.n_entities


def _best_threshold(evidence: Numbers, label: Labels) -> float:
    """The middle of the widest gap between facts that separates true and false best.

    True facts and false facts have the same weight in all, however many there are.
    """
    order = np.argsort(evidence, kind="stable")
    x, true = evidence[order], label[order]
    ends = np.concatenate([[x[0] - 1], x, [x[-1] + 1]])
    # What is right with all facts from i on called true; equal facts cannot be separated.
    below, n_true = np.append(0, np.cumsum(~true)), int(true.sum())
    above = n_true - np.append(0, np.cumsum(true))
    right = below * max(1, n_true) + above * max(1, len(true) - n_true)
    gap = np.diff(ends)
    best = right == right[gap > 0].max()
    i = int(np.argmax(np.where(best, gap, -1)))
    return float((ends[i] + ends[i + 1]) / 2)


def _fit_curve(evidence: Numbers, label: Labels) -> Curve:
    at, index = np.unique(evidence, return_inverse=True)
    right, total = np.zeros((2, len(at))), np.zeros((2, len(at)))
    half = np.arange(len(label)) % 2
    np.add.at(right, (half, index), label)
    np.add.at(total, (half, index), 1.0)
    return Curve.fit(right, total, at)


def accuracy_and_f1(verdict: Labels, label: Labels) -> dict[str, float | None]:
    """The share of right verdicts, and F1 of the true facts."""
    hits = int((verdict & label).sum())
    either = int(verdict.sum()) + int(label.sum())
    return {
        "accuracy": float((verdict == label).mean()) if len(label) else None,
        "f1": 2 * hits / either if either else None,
    }


def area_under_curve(evidence: Numbers, label: Labels) -> float | None:
    """How often a true fact has more evidence than a false one; ties count half."""
    true, false = evidence[label], np.sort(evidence[~label])
    if not len(true) or not len(false):
        return None
    below = [np.searchsorted(false, true, side) for side in ("left", "right")]
    return float((below[0] + below[1]).sum() / (2 * len(true) * len(false)))


def calibration_error(probability: Numbers, label: Labels) -> float | None:
    """The expected calibration error, in ten bins of equal width."""
    if not len(label):
        return None
    ones = np.ones(len(label))
    bins = reliability_table(probability, label.astype(np.float64), ones)
    errors = (row["answers"] * abs(row["probability"] - row["right"]) for row in bins)
    return float(sum(errors) / len(label))
