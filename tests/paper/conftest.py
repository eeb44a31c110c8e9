"""Result entries without any training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Entry = Callable[..., dict[str, Any]]


@pytest.fixture
def entry() -> Entry:
    """What a run says for its seed, made up: `entry(0.5, seed=1)`."""

    def make(mrr: float, seed: int = 0, **more: Any) -> dict[str, Any]:
        hits = {"1": max(0.0, mrr - 0.05), "3": mrr, "10": min(1.0, mrr + 0.1)}
        same = {"mrr": mrr, "mr": 9.0, "hits": hits, "count": 6}
        return {
            "seed": seed,
            **same,
            "by_side": {"head": same, "tail": same},
            "optimistic": same,
            "pessimistic": same,
            "unseen": {"triples": 0, "dropped": 0},
            "candidates": 12,
            "protocol": {"name": "allneg", "split": "test", "in_words": "filtered; both sides"},
            "valid_mrr": mrr + 0.01,
            "best_epoch": 4,
            "epochs": 6,
            "seconds": 12.0,
            "peak_bytes": 3 << 30,
            "machine": {"device": "a machine", "torch": "2", "allneg": "0"},
            "curve": [{"epoch": 4, "seconds": 8.0, "valid_mrr": mrr + 0.01}],
            **more,
        }

    return make
