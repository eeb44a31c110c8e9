"""Calibrated probabilities: how often an answer with such a score is right, learned on valid.

The margin of an answer is its score minus the log of the summed exp(score) of all entities that
are no answers in train. Isotonic regression maps margins to the rate of right answers on valid.
Every query of valid has an answer, so the rate is too high for queries that may have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from allneg.errors import counted
from allneg.graph.queries import SIDES, Queries
from allneg.predict.predictor import Predictor

Numbers = npt.NDArray[np.float64]

_N_SCORES = 1 << 24  # in total: enough queries for two digits, in seconds
_BLOCK = 1 << 22  # scores in memory at once
_EDGE, _N_BINS = 16.0, 512  # bins of log-odds between -16 and 16
_MAX_SHARE = 1 - 1e-9  # the largest share with finite log-odds


@dataclass(frozen=True)
class Calibration:
    """The rate of right answers as a function of the log-odds of the margin."""

    log_odds: npt.NDArray[np.floating]  # (n,): increasing
    rate: Numbers  # (n,): never decreasing, between 0 and 1
    n_queries: int

    @classmethod
    def fit(cls, predictor: Predictor) -> Calibration | None:
        """Learn from valid; None if valid is empty or train holds all its answers."""
        if "valid" not in predictor.known:
            return None
        graph = predictor.graph
        most = max(1, _N_SCORES // graph.n_entities // 2)
        right, total, n_queries = np.zeros(_N_BINS), np.zeros(_N_BINS), 0
        for side, columns in zip(SIDES, ([0, 1], [2, 1]), strict=True):
            # Every query counts once, however many answers it has.
            _, first = np.unique(graph.valid[:, columns], axis=0, return_index=True)
            sample = first[np.linspace(0, len(first) - 1, min(most, len(first))).astype(np.int64)]
            n_queries += len(sample)
            triples = torch.from_numpy(graph.valid[sample]).to(predictor.tables.device)
            for block in triples.split(max(1, _BLOCK // graph.n_entities)):
                counts = _counts(predictor, Queries.of(block, side))
                right, total = right + counts[0], total + counts[1]
        used = total > 0
        if not used.any():
            return None
        middles = (np.arange(_N_BINS) + 0.5) * (2 * _EDGE / _N_BINS) - _EDGE
        return cls(middles[used], isotonic(right[used], total[used]), n_queries)

    def __call__(self, margins: Sequence[float]) -> list[float]:
        """The rate of right answers at each margin."""
        rates: list[float] = np.interp(_log_odds(margins), self.log_odds, self.rate).tolist()
        return rates

    @property
    def description(self) -> str:
        return (
            "isotonic regression of the score margin on "
            f"{counted(self.n_queries, 'query')} of valid, each of which has an answer"
        )


def isotonic(right: Numbers, total: Numbers) -> Numbers:
    """The never decreasing rates closest to right / total, by pooling neighbours: (n,), (n,).

    A pool's rate is (right + ½) / (total + 1), so that no rate is 0 or 1.
    """
    pools: list[list[float]] = []  # right, total, members
    for r, t in zip(right.tolist(), total.tolist(), strict=True):
        pools.append([r, t, 1])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    rates = np.array([(r + 0.5) / (t + 1) for r, t, _ in pools])
    # The added half weighs more in a small pool and could lift it above the next one.
    rising = np.maximum.accumulate(rates)
    return np.repeat(rising, [int(members) for _, _, members in pools])


def _counts(predictor: Predictor, queries: Queries) -> tuple[Numbers, Numbers]:
    """Right answers and all answers per bin, without those of train and test: (_N_BINS,)."""
    values = predictor.scores(queries)
    values[predictor.known["train"].pairs(queries)] = -torch.inf
    values -= values.logsumexp(1, keepdim=True)
    is_counted = values.isfinite()
    if "test" in predictor.known:
        is_counted[predictor.known["test"].pairs(queries)] = False
    is_right = torch.zeros_like(is_counted)
    is_right[predictor.known["valid"].pairs(queries)] = True
    right, total = (
        np.histogram(_log_odds(values[mask].cpu().numpy()), _N_BINS, (-_EDGE, _EDGE))[0]
        for mask in (is_counted & is_right, is_counted)
    )
    return right, total


def _log_odds(log_share: npt.ArrayLike) -> Numbers:
    clipped = np.clip(np.asarray(log_share, dtype=np.float64), -_EDGE, 0)
    share = np.minimum(np.exp(clipped), _MAX_SHARE)
    return np.asarray(np.minimum(clipped - np.log1p(-share), _EDGE))
