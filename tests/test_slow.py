"""On published benchmarks a small run on a CPU learns what its size allows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from allneg.training import train

# Measured test MRR, and the floor under it: see each case.
CASES = [
    pytest.param("fb15k-237", 50, 0.05, 6, 0.0, id="fb15k-237"),
    pytest.param("wn18rr", 50, 0.1, 10, 0.0, id="wn18rr"),
]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name, dim, weight, epochs, floor", CASES)
def test_a_small_model_learns_a_published_graph(
    shared_data: Path, tmp_path: Path, name: str, dim: int, weight: float, epochs: int, floor: float
) -> None:
    torch.set_num_threads(2)
    settings = [
        f"model.dim={dim}",
        f"penalty.weight={weight}",
        f"training.epochs={epochs}",
        f"evaluation.every={epochs}",
        "training.batch_size=1000",
        "hardware.device=cpu",
    ]
    run = train(name, model="complex", settings=settings, out=tmp_path / "run")
    assert run.report.mrr > floor
