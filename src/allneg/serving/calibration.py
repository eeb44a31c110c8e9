"""Scores → how often such an answer is right: isotonic regression on valid.

The margin of an answer is its score less the log of the summed exp(score) of every entity that
train does not already know as an answer: its share among the new answers. Valid says how often
answers of a margin are right. Each of its queries has an answer, so for a query that may
have none the number is too high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import counted
from allneg.graph.queries import SIDES, Queries
from allneg.scoring import scores
from allneg.serving.predictor import Predictor

Numbers = npt.NDArray[np.float64]

_SCORES = 1 << 24  # looked at in all: enough queries for two digits, in seconds
_BLOCK = 1 << 22  # of them at once
_EDGE, _BINS = 16.0, 512  # log-odds from -16 to 16, so finely
_ALMOST = 1 - 1e-9  # a share that still has log-odds


@dataclass(frozen=True)
class Calibration:
    """How often an answer is right, at some log-odds of its share among new answers."""

    at: npt.NDArray[np.floating[Any]]  # (n,): increasing log-odds
    right: Numbers  # (n,): never decreasing, between 0 and 1
    n_questions: int

    @classmethod
    def fit(cls, predictor: Predictor) -> Calibration | None:
        """Learned from valid; None where there is none, or nothing new in it."""
        if "valid" not in predictor.known:
            return None
        graph = predictor.graph
        most = max(1, _SCORES // graph.n_entities // 2)
        right, total, n_questions = np.zeros(_BINS), np.zeros(_BINS), 0
        for side, asked in zip(SIDES, ([0, 1], [2, 1]), strict=True):
            # Once, as people ask, however many answers a query has.
            _, first = np.unique(graph.valid[:, asked], axis=0, return_index=True)
            # Spread over them, as they are sorted.
            some = first[np.linspace(0, len(first) - 1, min(most, len(first))).astype(np.int64)]
            n_questions += len(some)
            triples = torch.from_numpy(graph.valid[some]).to(predictor.tables.device)
            for block in triples.split(max(1, _BLOCK // graph.n_entities)):
                counts = _counts(predictor, Queries.of(block, side))
                right, total = right + counts[0], total + counts[1]
        seen = total > 0
        if not seen.any():
            return None  # train knows every answer
        middles = (np.arange(_BINS) + 0.5) * (2 * _EDGE / _BINS) - _EDGE
        return cls(middles[seen], isotonic(right[seen], total[seen]), n_questions)

    def __call__(self, margins: Sequence[float]) -> list[float]:
        """How often an answer of each margin is right."""
        # As `_log_odds`, by NumPy: for a few numbers torch takes longer to begin than to count.
        share = np.minimum(np.exp(np.clip(margins, -2 * _EDGE, 0)), _ALMOST)
        odds = np.log(share) - np.log1p(-share)
        found: list[float] = np.interp(odds, self.at, self.right).tolist()
        return found

    @property
    def in_words(self) -> str:
        return (
            "isotonic regression of the score margin on "
            f"{counted(self.n_questions, 'question')} of valid, each of which has an answer"
        )


def isotonic(right: Numbers, total: Numbers) -> Numbers:
    """The never decreasing shares closest to right / total, by pooling neighbours: (n,), (n,).

    A pool's share is (right + ½) / (total + 1), so that a few queries never say 0 or 1.
    """
    pools: list[list[float]] = []  # right, total, members
    for r, t in zip(right.tolist(), total.tolist(), strict=True):
        pools.append([r, t, 1])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    shares = np.array([(r + 0.5) / (t + 1) for r, t, _ in pools])
    # Half a fact weighs more in a small pool, which could then stand above the next.
    rising = np.maximum.accumulate(shares)
    return np.repeat(rising, [int(members) for _, _, members in pools])


@torch.no_grad()
def _counts(predictor: Predictor, queries: Queries) -> tuple[Numbers, Numbers]:
    """Right answers and all answers in each bin: (_BINS,) each.

    Train's answers are learned by heart, and test's are not to be looked at: neither counts.
    """
    values = scores(predictor.model, predictor.tables, queries).float()
    values[predictor.known["train"].pairs(queries)] = -torch.inf
    values -= values.logsumexp(1, keepdim=True)
    bins = ((_log_odds(values) + _EDGE) * (_BINS / (2 * _EDGE))).long().clamp(0, _BINS - 1)
    counted = values.isfinite()
    if "test" in predictor.known:
        counted[predictor.known["test"].pairs(queries)] = False
    is_right = torch.zeros_like(counted)
    is_right[predictor.known["valid"].pairs(queries)] = True
    right, total = (
        torch.bincount(bins[mask], minlength=_BINS).cpu().numpy().astype(np.float64)
        for mask in (counted & is_right, counted)
    )
    return right, total


def _log_odds(margin: Tensor) -> Tensor:
    """The log-odds of a share whose log is `margin`, within what is counted."""
    share = margin.double().clamp(min=-2 * _EDGE).exp().clamp(max=_ALMOST)
    return share.logit().clamp(-_EDGE, _EDGE)
