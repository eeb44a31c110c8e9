"""Scores → probabilities: how often an answer with such a score is right, learned on valid.

The margin of an answer is its score minus the log of the summed exp(score) of all entities that
are no answers in train: the log of its share among them. A curve for each side maps the log-odds
of this share to the rate of right answers. Every query of valid has a right answer, so the rate
is too high for queries that have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import counted
from allneg.evaluation.curves import EDGE, MAX_SHARE, METHODS, Curve, Numbers, log_odds
from allneg.graph.graph import SPLITS, Graph, even_sample
from allneg.graph.queries import SIDES, KnownAnswers, Queries, Side, known_by_split
from allneg.models import Model
from allneg.scoring.scores import scores
from allneg.scoring.tables import Tables

Score: TypeAlias = Callable[[Queries], Tensor]  # the score of every entity; may be overwritten

N_BINS = 10  # of a reliability table
_N_SCORES = 1 << 24  # enough queries for two digits, in seconds
_BLOCK = 1 << 22  # scores in memory at once
_BINS = 512  # of log-odds between -16 and 16
_MIDDLES: Numbers = np.linspace(-EDGE, EDGE, 2 * _BINS + 1)[1::2]
_POINTS = 1024  # of a curve on a device


@dataclass(frozen=True)
class Calibration:
    """A curve for each side, learned on valid, and how well they fit."""

    curves: Mapping[Side, Curve]
    n_queries: int  # of valid
    # Mean probability, rate of right answers and number of answers in bins of probability; of
    # test, or of valid if there is no test.
    reliability: Mapping[str, Any]

    @classmethod
    def fit(
        cls, score: Score, graph: Graph, known: Mapping[str, KnownAnswers]
    ) -> Calibration | None:
        """Learn from valid; None if valid is empty or train holds all answers of a side."""
        if "valid" not in known or "train" not in known:
            return None
        found = {side: _histogram(score, graph, known, "valid", side) for side in SIDES}
        if not all(total.any() for _, total, _ in found.values()):
            return None
        curves = {
            side: Curve.fit(right, total, _MIDDLES) for side, (right, total, _) in found.items()
        }
        n_queries = sum(n for _, _, n in found.values())
        split = "test" if "test" in known else "valid"
        if split == "test":
            found = {side: _histogram(score, graph, known, split, side) for side in SIDES}
        parts = [
            (curves[side](_MIDDLES), right.sum(0), total.sum(0))
            for side, (right, total, _) in found.items()
        ]
        bins = reliability_table(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        return cls(curves, n_queries, {"split": split, "bins": bins})

    def __call__(self, side: Side, margins: npt.ArrayLike) -> Numbers:
        """The rate of right answers at each margin."""
        return self.curves[side](log_odds(margins))

    def on_device(self, side: Tensor, margins: Tensor) -> Tensor:
        """The rates at the margins of many answers, between points of the curves: (B,), (B, N)."""
        # The log-odds of a share e^m are -log(e^-m - 1). In place: memory takes most of the time.
        at = margins.neg().clamp_(0, EDGE).expm1_().log_()
        at.mul_(-_POINTS / (2 * EDGE)).add_(_POINTS / 2).clamp_(0, _POINTS)
        points = self._points.to(margins.device)
        index = at.int().add_((points.shape[1] * side.int()).unsqueeze(1))
        low = points.flatten().index_select(0, index.flatten())
        high = points.flatten().index_select(0, index.add_(1).flatten())
        return low.lerp_(high, at.frac_().flatten()).view_as(at)

    @cached_property
    def _points(self) -> Tensor:
        """The curve of each side at equal distances, the last point twice: (2, points)."""
        grid = np.linspace(-EDGE, EDGE, _POINTS + 1)[[*range(_POINTS + 1), -1]]
        return torch.tensor(np.stack([self.curves[side](grid) for side in SIDES])).float()

    @property
    def description(self) -> str:
        methods = dict.fromkeys(METHODS[curve.method] for curve in self.curves.values())
        return (
            f"{' and '.join(methods)} of the score margin on "
            f"{counted(self.n_queries, 'query')} of valid, each of which has an answer"
        )

    def to_json(self) -> dict[str, Any]:
        curves = {str(side): curve.to_json() for side, curve in self.curves.items()}
        return {**curves, "queries": self.n_queries, "reliability": self.reliability}

    @classmethod
    def from_json(cls, content: Any) -> Calibration:
        """The calibration that `to_json` gave; a `TypeError` if it is none.

        What `numbers_of` gives must be checked before.
        """
        curves = {side: Curve.from_json(content[side]) for side in SIDES}
        reliability = content["reliability"]
        if reliability.get("split") not in SPLITS or len(reliability["bins"]) > N_BINS:
            raise TypeError("not a reliability table")
        return cls(curves, content["queries"], reliability)

    @staticmethod
    def numbers_of(content: Any) -> list[Any]:
        """All values in a calibration's JSON that must be finite numbers."""
        curves = [content[side][name] for side in SIDES for name in ("log_odds", "rate")]
        bins = [row[name] for row in content["reliability"]["bins"] for name in _COLUMNS]
        return [content["queries"], *bins, *(value for curve in curves for value in curve)]


_COLUMNS = ("probability", "right", "answers")


def calibrate(model: Model, tables: Tables, graph: Graph) -> Calibration | None:
    """The calibration of whole tables."""
    known = known_by_split(graph, tables.device)
    with torch.no_grad():
        return Calibration.fit(lambda queries: scores(model, tables, queries).float(), graph, known)


def reliability_table(probability: Numbers, right: Numbers, total: Numbers) -> list[dict[str, Any]]:
    """The mean probability and the rate of right answers in bins of equal width: (n,) each."""
    bins = np.minimum((probability * N_BINS).astype(np.int64), N_BINS - 1)
    sums = [np.bincount(bins, v, N_BINS) for v in (probability * total, right, total)]
    return [
        dict(zip(_COLUMNS, (float(p / n), float(r / n), int(n)), strict=True))
        for p, r, n in zip(*sums, strict=True)
        if n
    ]


def _histogram(
    score: Score, graph: Graph, known: Mapping[str, KnownAnswers], split: str, side: Side
) -> tuple[Numbers, Numbers, int]:
    """Right and all answers to queries of a split by bin, for two halves; and how many queries.

    Answers in other splits do not count. (2, _BINS), (2, _BINS).
    """
    # Every query counts once, however many answers it has.
    triples = graph.split(split)
    given = triples[:, 0 if side == "tail" else 2] * graph.n_relations + triples[:, 1]
    _, first = np.unique(given, return_index=True)
    most = max(1, _N_SCORES // graph.n_entities // 2)
    sample = first[even_sample(len(first), most)]
    right, total = np.zeros((2, _BINS)), np.zeros((2, _BINS))
    device, others = known["train"].keys.device, known.keys() - {"train", split}
    for half in (0, 1):
        ids = torch.from_numpy(triples[sample[half::2]]).to(device)
        for block in ids.split(max(1, _BLOCK // graph.n_entities)):
            queries = Queries.of(block, side)
            values = score(queries)
            values[known["train"].pairs(queries)] = -torch.inf
            values -= values.logsumexp(1, keepdim=True)
            is_counted = values.isfinite()
            for other in others:
                is_counted[known[other].pairs(queries)] = False
            is_right = torch.zeros_like(is_counted)
            is_right[known[split].pairs(queries)] = True
            right[half] += _bin(values[is_counted & is_right])
            total[half] += _bin(values[is_counted])
    return right, total, len(sample)


def _bin(margins: Tensor) -> Numbers:
    """How many margins are in each bin of their log-odds, counted on their device: (_BINS,)."""
    exact = margins.float() if margins.device.type == "mps" else margins.double()
    clipped = exact.clamp_(-EDGE, 0)
    odds = clipped - torch.log1p(-clipped.exp().clamp_(max=MAX_SHARE))
    bins = ((odds + EDGE) * (_BINS / (2 * EDGE))).long().clamp_(0, _BINS - 1)
    return bins.bincount(minlength=_BINS).cpu().double().numpy()
