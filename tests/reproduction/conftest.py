"""Result entries without any training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # for the folder reproduction/


@pytest.fixture
def entry() -> Callable[..., dict[str, Any]]:
    """An entry of a result file, made up: `entry(0.5, seed=1)`."""

    def make(mrr: float, seed: int = 0) -> dict[str, Any]:
        hits = {"1": max(0.0, mrr - 0.05), "3": mrr, "10": min(1.0, mrr + 0.1)}
        metrics = {"mrr": mrr, "mr": 9.0, "hits": hits, "count": 6}
        return {
            "seed": seed,
            **metrics,
            "by_side": {"head": metrics, "tail": metrics},
            "optimistic": metrics,
            "pessimistic": metrics,
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
        }

    return make
