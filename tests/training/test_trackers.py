from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.errors import Interrupted, UsageError
from allneg.graph import Graph
from allneg.recipe import Recipe
from allneg.training import trackers, train
from allneg.training.trackers import TRACKERS, tracker
from allneg.training.train import resume


class Recorder:
    """A package that records every call of any of its functions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Recorder]:
        def call(*args: Any, **kwargs: Any) -> Recorder:
            self.calls.append((name, args, kwargs))
            return self

        return call

    def logged(self, name: str) -> dict[int, dict[str, float]]:
        found: dict[int, dict[str, float]] = {}
        for _, (numbers,), step in (call for call in self.calls if call[0] == name):
            found.setdefault(step["step"], {}).update(numbers)
        return found


@pytest.mark.parametrize(
    "name, log, end", [("wandb", "log", "finish"), ("mlflow", "log_metrics", "end_run")]
)
def test_every_epoch_and_the_report_are_logged(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, name: str, log: str, end: str,
) -> None:  # fmt: skip
    package = Recorder()
    monkeypatch.setitem(sys.modules, name, package)  # type: ignore[arg-type]
    run = train(tiny_graph, recipe=quick(), out=tmp_path / "run", track=name)
    logged = package.logged(log)
    assert list(logged) == list(range(1, 7))
    for entry in run.metrics():
        epoch = logged[entry["epoch"]]
        assert epoch["loss"] == entry["loss"]
        assert ("valid/mrr" in epoch) == ("valid" in entry)
    assert logged[6]["valid/hits/10"] == run.metrics()[-1]["valid"]["hits"]["10"]
    assert logged[6]["test/mrr"] == run.report.mrr
    assert package.calls[-1][0] == end
    parameters = {
        "wandb": lambda: package.calls[0][2]["config"],
        "mlflow": lambda: package.calls[1][1][0],
    }
    assert parameters[name]()["model.dim"] == 4


def test_a_tracker_ends_when_training_is_stopped(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", package)  # type: ignore[arg-type]
    with pytest.raises(Interrupted):
        train(
            tiny_graph, recipe=quick(), out=tmp_path / "run", track="mlflow", stopped_by=lambda: 2
        )
    assert package.calls[-1][0] == "end_run"
    resume(tmp_path / "run", track=["mlflow"])
    assert max(package.logged("log_metrics")) == 6


def test_tensorboard_reads_what_was_logged(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(tiny_graph, recipe=quick(), out=tmp_path / "run", track="tensorboard")
    events = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    losses = [(at.step, at.value) for at in events.Scalars("loss")]
    assert losses == [(at["epoch"], pytest.approx(at["loss"])) for at in run.metrics()]
    assert events.Scalars("test/mrr")[0].value == pytest.approx(run.report.mrr)
    assert {"valid/mrr", "valid/hits/10", "rate"} <= set(events.Tags()["scalars"])


def test_mlflow_reads_what_was_logged(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    run = train(tiny_graph, recipe=quick(), out=tmp_path / "run", track="mlflow")
    client = mlflow.MlflowClient()
    (found,) = client.search_runs(["0"])
    losses = [(at.step, at.value) for at in client.get_metric_history(found.info.run_id, "loss")]
    assert losses == [(at["epoch"], at["loss"]) for at in run.metrics()]
    assert found.data.metrics["test/mrr"] == run.report.mrr
    assert found.data.params["model.dim"] == "4"
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")


def test_wandb_reads_what_was_logged_offline(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run = train(tiny_graph, recipe=quick(), out=tmp_path / "run", track="wandb")
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    data = file.read_bytes()  # wandb has no reader for it; its numbers are JSON
    for number in [run.report.mrr, *(at["loss"] for at in run.metrics())]:
        assert json.dumps(number).encode() in data


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_named_before_training(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in [key for key in sys.modules if key.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=rf"needs {name}: pip install 'allneg\[{name}\]'"):
        train("countries", out=tmp_path / "run", track=name)
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_lists_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match="no tracker is called 'tensorbord'; close names: 'tensorboard'; use tens"
    ):
        tracker("tensorbord")


def test_importing_the_package_imports_no_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TRACKERS:
        monkeypatch.setitem(sys.modules, name, None)
    assert runpy.run_path(str(trackers.__file__))["TRACKERS"].keys() == TRACKERS.keys()
