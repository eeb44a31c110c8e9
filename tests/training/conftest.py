"""Runs on the tiny graph: new, trained, stopped after some steps, and their content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from allneg.errors import Interrupted
from allneg.runs import Run
from allneg.training import fit
from allneg.training.execution import ExecutionPlan
from processes import stop_after


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
