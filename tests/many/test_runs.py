"""A run of several processes: saved in shards, resumed by any number, joined by export."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tasks import save_to_full_disk, trained
from workers import Workers

from allneg.errors import RecipeError, RunError
from allneg.exports.export import export
from allneg.graph import Graph
from allneg.predict.predictor import Predictor
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.verify import verify
from allneg.training import fit

SETTINGS = (
    "model.dim=3", "model.scale=0.7", "training.batch_size=30", "training.epochs=4",
    "evaluation.every=2", "hardware.device=cpu", "hardware.threads=1",
    "optimizer.learning_rate=0.01",
)  # fmt: skip
Made = Callable[..., Run]


@pytest.fixture
def made(graph: Graph, tmp_path: Path) -> Made:
    """A new run: `made("optimizer.name=adam")`."""

    def create(*settings: str, name: str = "run") -> Run:
        return Run.create(tmp_path / name, Recipe().with_settings([*SETTINGS, *settings]), graph)

    return create


@pytest.fixture
def uninterrupted(made: Made) -> Made:
    """The same, trained by one process from start to end."""

    def train(*settings: str) -> Run:
        run = made(*settings, name="uninterrupted")
        fit(run)
        return run

    return train


def check_same(run: Run, other: Run) -> None:
    """Losses, ranks and weights of two runs are the same to rounding."""
    for ours, theirs in zip(run.metrics(), other.metrics(), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert ours.get("valid") == theirs.get("valid")
    # Only one process learns the calibration; for others it is learned on demand.
    reports = [replace(each.report, calibration={}) for each in (run, other)]
    assert reports[0] == reports[1]
    found, true = run.last(), other.last()
    assert found is not None
    assert true is not None
    for kind in ("tables", "optimizer", "best"):
        for name, rows in getattr(true, kind).items():
            torch.testing.assert_close(getattr(found, kind)[name], rows, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "meshes, optimizer",
    [
        (("rows=3", "rows=3"), "adagrad"),
        (("rows=3", "rows=2,batch=2"), "adagrad training.average=0.5"),
        (("rows=1", "rows=2,batch=2"), "sgd"),
        (("rows=2,batch=2", "rows=3"), "adam"),
        (("rows=4", "rows=1"), "adam"),
        (("batch=2", "rows=2"), "adagrad"),
    ],
    ids=lambda value: value if isinstance(value, str) else " then ".join(value),
)
def test_a_run_moved_from_one_mesh_to_another_equals_that_of_one_process(
    workers: Workers, made: Made, uninterrupted: Made, meshes: tuple[str, str], optimizer: str
) -> None:
    settings = f"optimizer.name={optimizer}".split()
    run, true = made(*settings), uninterrupted(*settings)
    workers(meshes[0], trained, run.folder, 2, None)
    assert run.status["state"] == "interrupted"
    workers(meshes[1], trained, run.folder, None, None)
    assert {**run.status, "peak_bytes": None} == {**true.status, "peak_bytes": None}
    check_same(run, true)
    assert all(check.wrong is None for check in verify(run.folder, rank=True))


def test_a_signal_to_one_process_saves_and_stops_all(
    workers: Workers, made: Made, uninterrupted: Made
) -> None:
    run = made()
    assert set(workers("rows=3", trained, run.folder, None, 3)) == {"interrupted"}
    assert run.status["state"] == "interrupted"
    # The signal comes after the third step; all processes stop after the fourth.
    assert (run.status["epoch"], run.status["step"]) == (0, 4)
    workers("rows=2,batch=2", trained, run.folder, None, None)
    check_same(run, uninterrupted())


@pytest.fixture(scope="module")
def trained_in_shards(
    workers: Workers, graph: Graph, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    more = ("optimizer.learning_rate=3", "training.epochs=7", "evaluation.every=1")
    recipe = Recipe().with_settings([*SETTINGS, *more])
    run = Run.create(tmp_path_factory.mktemp("sharded") / "run", recipe, graph)
    workers("rows=3", trained, run.folder, None, None)
    return run


@pytest.fixture
def sharded(trained_in_shards: Run, tmp_path: Path) -> Run:
    """A finished run, whose last checkpoint is in three shards, with a best of its own."""
    return Run.open(shutil.copytree(trained_in_shards.folder, tmp_path / "run"))


def last(run: Run) -> Path:
    folder = run.folder / "checkpoints"
    return folder / (folder / "last").read_text().strip()


def test_processes_write_their_rows_and_rank_zero_the_rest(sharded: Run) -> None:
    names = {path.name for path in last(sharded).iterdir()}
    kinds = ["tables", "optimizer", "best"]
    assert names == {
        "manifest.json", "state.json",
        *(f"{kind}-{i}-of-3.safetensors" for kind in kinds for i in (1, 2, 3)),
    }  # fmt: skip
    tables = [load_file(last(sharded) / f"tables-{i}-of-3.safetensors") for i in (1, 2, 3)]
    assert [len(each["entities"]) for each in tables] == [100, 100, 101]
    assert ["relations" in each for each in tables] == [True, False, False]
    manifest = json.loads((last(sharded) / "manifest.json").read_text())
    assert manifest.pop("run") == sharded.id
    assert names - {"manifest.json"} == manifest.keys()


def test_a_missing_or_changed_shard_is_named(sharded: Run) -> None:
    path = last(sharded) / "tables-2-of-3.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"tables-2-of-3.safetensors: its SHA-256"):
        sharded.tables()
    path.unlink()
    with pytest.raises(RunError, match=r"tables-2-of-3.safetensors: missing"):
        sharded.tables()
    assert any(check.wrong is not None for check in verify(sharded.folder))


def test_processes_fall_back_together_to_an_intact_checkpoint(
    workers: Workers, made: Made, uninterrupted: Made
) -> None:
    run = made("training.save_seconds=0")
    workers("rows=3", trained, run.folder, 2, None)
    damaged = last(run)
    (damaged / "optimizer-3-of-3.safetensors").write_bytes(b"no tensors")
    workers("rows=2", trained, run.folder, None, None)
    assert not damaged.exists()
    check_same(run, uninterrupted())


@pytest.mark.parametrize("rank, operation", [(2, "write"), (0, "sync")])
def test_all_processes_raise_for_the_full_disk_of_one(
    workers: Workers, sharded: Run, rank: int, operation: str
) -> None:
    before = last(sharded)
    errors = workers("rows=3", save_to_full_disk, sharded.folder, rank, operation)
    assert all("the disk is full" in error for error in errors)
    assert last(sharded) == before
    assert sharded.last() is not None


def test_export_joins_shards_into_the_file_one_process_would_have_written(
    sharded: Run, tmp_path: Path
) -> None:
    export(sharded, tmp_path / "best.safetensors")
    found, true = load_file(tmp_path / "best.safetensors"), sharded.tables().weights()
    assert found.keys() == true.keys()
    assert all(each.equal(true[name]) for name, each in found.items())


def test_an_exported_run_answers_ranks_and_verifies_as_any_other(
    sharded: Run, tmp_path: Path
) -> None:
    export(sharded, tmp_path / "joined")
    joined = Run.open(tmp_path / "joined")
    names = {path.name for path in last(joined).iterdir()}
    assert names == {
        "manifest.json", "state.json", "tables.safetensors", "optimizer.safetensors",
        "best.safetensors",
    }  # fmt: skip
    assert all(check.wrong is None for check in verify(joined.folder, rank=True))
    assert joined.report == sharded.report
    answers: list[Any] = [
        Predictor.load(run.folder, device="cpu").tails("e1", "r0", k=5) for run in (joined, sharded)
    ]
    assert answers[0] == answers[1]
    mine, theirs = joined.last(), sharded.last()
    assert mine is not None
    assert theirs is not None
    assert mine.state == theirs.state
    assert all(each.equal(mine.optimizer[name]) for name, each in theirs.optimizer.items())


def test_export_replaces_nothing(sharded: Run, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="already exists"):
        export(sharded, tmp_path)
