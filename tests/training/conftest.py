"""Runs on the tiny graph: new, trained, stopped after some steps, and their content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.errors import Interrupted
from allneg.graph import Graph
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training import Callbacks, fit
from allneg.training.execution import ExecutionPlan
from processes import stop_after

Made = Callable[..., Run]


@pytest.fixture
def made(tmp_path: Path, tiny_graph: Graph, quick: Callable[..., Recipe]) -> Made:
    """A new run, not trained yet: `made("model.name=transe", graph=other)`."""
    count = 0

    def create(*settings: str, graph: Graph = tiny_graph) -> Run:
        nonlocal count
        count += 1
        return Run.create(tmp_path / f"run-{count}", quick(*settings), graph)

    return create


@pytest.fixture
def trained(made: Made) -> Made:
    """A run trained to its end."""

    def train(*settings: str, callbacks: Callbacks | None = None, **more: Any) -> Run:
        run = made(*settings, **more)
        fit(run, callbacks)
        return run

    return train


@pytest.fixture
def stop() -> Callable[[Run, int], None]:
    """Train so many steps more, then send a signal."""

    def train_until(run: Run, steps: int) -> None:
        with pytest.raises(Interrupted) as caught:
            fit(run, stopped_by=stop_after(steps))
        assert caught.value.exit_code == 143
        assert run.status["state"] == "interrupted"

    return train_until


@pytest.fixture
def content() -> Callable[[Run], dict[str, Any]]:
    """The bytes of the last checkpoint's tensors, the metrics and the report of a run."""

    def of(run: Run) -> dict[str, Any]:
        folder = run.folder / "checkpoints"
        last = folder / (folder / "last").read_text().strip()
        tensors = {path.name: path.read_bytes() for path in sorted(last.glob("*.safetensors"))}
        assert {"tables.safetensors", "optimizer.safetensors"} <= tensors.keys()
        metrics = [{**entry, "seconds": None} for entry in run.metrics()]
        return {**tensors, "metrics": metrics, "report": run.report.to_json()}

    return of


@pytest.fixture
def bf16_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps on a CPU store bfloat16 operands, as on a GPU."""
    monkeypatch.setattr("allneg.training.execution.has_fast_bf16", lambda: True)
    monkeypatch.setattr(ExecutionPlan, "bf16_operands", property(lambda plan: plan.bf16))
