"""A small run on a CPU reaches a minimal MRR on published benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from allneg.training import train

# The floor is below the measured validation MRR: .26 for fb15k-237 and .39 for wn18rr.
CASES = [
    pytest.param(
        "fb15k-237",
        ("model.dim=16", "training.epochs=2", "regularizer.weight=0.01"),
        0.22,
        id="fb15k-237",
    ),
    pytest.param(
        "wn18rr",
        (
            "model.dim=32",
            "training.epochs=12",
            "regularizer.weight=0.02",
            "loss.negatives=shared",
            "loss.n_negatives=500",
        ),
        0.36,
        id="wn18rr",
    ),
]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name, settings, floor", CASES)
def test_a_small_model_learns_a_published_graph(
    shared_data: Path, tmp_path: Path, name: str, settings: tuple[str, ...], floor: float
) -> None:
    common = (
        "model.scale=0.1",  # larger than usual, since there are few steps
        "optimizer.learning_rate=0.2",
        "training.batch_size=500",
        "evaluation.every=100",
        "hardware.device=cpu",
        "hardware.threads=2",
    )
    run = train(name, model="complex", settings=[*common, *settings], out=tmp_path / "run")
    assert run.report.mrr > floor
