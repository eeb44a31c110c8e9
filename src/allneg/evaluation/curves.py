"""Curves from log-odds to the rate of right answers: isotonic regression and Platt scaling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.float64]

METHODS = {"isotonic": "isotonic regression", "platt": "Platt scaling"}
EDGE = 16.0  # of the log-odds of a share
MAX_SHARE = 1 - 1e-9  # the largest share with finite log-odds
_MOST_CORNERS = 1 << 12  # of a curve in a file


@dataclass(frozen=True)
class Curve:
    """A rate that never decreases with the log-odds, linear between its corners."""

    method: str  # one of METHODS
    log_odds: Numbers  # (n,): increasing
    rate: Numbers  # (n,): never decreasing, between 0 and 1

    @classmethod
    def fit(cls, right: Numbers, total: Numbers, at: Numbers) -> Curve:
        """The method with the lower log loss on the other half of the data, fitted to both halves.

        Right and all answers at each of `at`, for two halves: (2, n), (2, n), (n,).
        """
        fits = {"isotonic": _isotonic, "platt": _platt}

        def loss(method: str) -> float:
            one, other = (fits[method](right[half], total[half], at) for half in (0, 1))
            return one._loss(right[1], total[1], at) + other._loss(right[0], total[0], at)

        has_both = bool((right.sum(1) > 0).all() and ((total - right).sum(1) > 0).all())
        best = min(METHODS, key=loss) if has_both else "platt"
        return fits[best](right.sum(0), total.sum(0), at)

    def __call__(self, log_odds: npt.ArrayLike) -> Numbers:
        x = np.asarray(log_odds, dtype=np.float64)
        return np.asarray(np.interp(x, self.log_odds, self.rate), dtype=np.float64)

    def _loss(self, right: Numbers, total: Numbers, at: Numbers) -> float:
        rate = self(at)
        return float(-(right * np.log(rate) + (total - right) * np.log1p(-rate)).sum())

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method, "log_odds": self.log_odds.tolist(), "rate": self.rate.tolist()
        }  # fmt: skip

    @classmethod
    def from_json(cls, content: Any) -> Curve:
        """The curve that `to_json` gave; a `TypeError` if it is none. Numbers must be finite."""
        log_odds, rate = np.array(content["log_odds"], float), np.array(content["rate"], float)
        if not (
            content.get("method") in METHODS
            and log_odds.ndim == 1
            and log_odds.shape == rate.shape
            and 0 < len(rate) <= _MOST_CORNERS
            and (np.diff(log_odds) > 0).all()
            and (np.diff(rate) >= 0).all()
            and 0 < rate[0] <= rate[-1] < 1
        ):
            raise TypeError("not a calibration curve")
        return cls(content["method"], log_odds, rate)


def probability_of(log_odds: Numbers) -> Numbers:
    """The logistic function, without overflow."""
    return np.asarray((1 + np.tanh(log_odds / 2)) / 2)


def log_odds(log_share: npt.ArrayLike) -> Numbers:
    clipped = np.clip(np.asarray(log_share, dtype=np.float64), -EDGE, 0)
    share = np.minimum(np.exp(clipped), MAX_SHARE)
    return np.asarray(np.minimum(clipped - np.log1p(-share), EDGE))


def _isotonic(right: Numbers, total: Numbers, at: Numbers) -> Curve:
    """The never decreasing rates closest to right / total, by pooling neighbours.

    A pool's rate is (right + ½) / (total + 1), so that no rate is 0 or 1. The added half weighs
    more in a small pool and can lift it above the next one, so pools are pooled again by this
    rate. The curve is flat from the first to the last log-odds of a pool.
    """
    used = total > 0
    points = zip(right[used], total[used], at[used], at[used], strict=True)
    pools = _pool(_pool(points, 0.0), 0.5)
    r, t, first, last = np.array(pools).T
    corners, index = np.unique(np.stack([first, last], 1), return_index=True)
    return Curve("isotonic", corners, ((r + 0.5) / (t + 1))[index // 2])


def _pool(
    parts: Iterable[tuple[float, float, float, float]], added: float
) -> list[tuple[float, float, float, float]]:
    """Join neighbours until (right + added) / (total + 2 · added) increases.

    A part has right, total, and its first and last log-odds.
    """
    pools: list[tuple[float, float, float, float]] = []
    for part in parts:
        pools.append(part)
        while len(pools) > 1:
            (r, t, first, _), (next_r, next_t, _, last) = pools[-2:]
            if (r + added) * (next_t + 2 * added) < (next_r + added) * (t + 2 * added):
                break
            pools[-2:] = [(r + next_r, t + next_t, first, last)]
    return pools


def _platt(right: Numbers, total: Numbers, at: Numbers) -> Curve:
    """Platt (1999): a logistic function of the log-odds.

    Right answers count a little less than 1 and wrong ones a little more than 0, as he proposes,
    so that the slope stays finite where the two are separate.
    """
    n_right, n_wrong = right.sum(), (total - right).sum()
    aim = right * (n_right + 1) / (n_right + 2) + (total - right) / (n_wrong + 2)
    x = np.stack([at, np.ones_like(at)], 1)
    # Equal `at` leave the slope open: it stays 0.
    centre = np.array([0.0, np.log((n_right + 1) / (n_wrong + 1))])
    slope, offset = logistic(x, aim / np.maximum(total, 1e-300), total, centre, ridge=1e-9)
    edge = max(EDGE, float(abs(at).max()))
    corners = np.linspace(-edge, edge, 129)
    logits = np.clip(max(slope, 0.0) * corners + offset, -EDGE, EDGE)
    return Curve("platt", corners, 1 / (1 + np.exp(-logits)))


def logistic(
    x: Numbers,
    label: npt.NDArray[Any],
    weight: Numbers,
    centre: Numbers | None = None,
    ridge: float = 1.0,
) -> Numbers:
    """Weights of a logistic regression, by Newton's method: (n, k), (n,), (n,) -> (k,).

    A label is whether a row is right, or which share of it is. `ridge` holds the weights near
    `centre`: by default, near the sum of the first two columns.
    """
    if centre is None:
        centre = np.zeros(x.shape[1])
        centre[:2] = 1.0
    found, penalty = centre.copy(), ridge * np.eye(x.shape[1])
    for _ in range(100):
        rate = probability_of(x @ found)
        grad = x.T @ (weight * (label - rate)) - penalty @ (found - centre)
        hessian = (x * (weight * rate * (1 - rate))[:, None]).T @ x + penalty
        step = np.linalg.solve(hessian, grad)
        step /= max(1.0, abs(step).max() / 2)  # a long step may not converge
        found += step
        if abs(step).max() < 1e-9:
            break
    return found
