"""A run of many processes: saved by shards, taken up by any number, joined by export."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from crew import Crew
from safetensors.torch import load_file
from works import trained, troubled

from allneg.errors import RecipeError, RunError
from allneg.graph import Graph
from allneg.predict.predictor import Predictor
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.export import export
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
def straight(made: Made) -> Made:
    """The same, trained by one process from start to end."""

    def train(*settings: str) -> Run:
        run = made(*settings, name="straight")
        fit(run)
        return run

    return train


def check_alike(run: Run, other: Run) -> None:
    """Losses, ranks and weights of two runs are the same to rounding."""
    for mine, theirs in zip(run.metrics(), other.metrics(), strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert mine.get("valid") == theirs.get("valid")
    assert run.report == other.report
    found, true = run.last(), other.last()
    assert found is not None
    assert true is not None
    for kind in ("tables", "optimizer", "best"):
        for name, each in getattr(true, kind).items():
            torch.testing.assert_close(getattr(found, kind)[name], each, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
@pytest.mark.parametrize(
    "meshes",
    [
        ("rows=3", "rows=3"),
        ("rows=1", "rows=2,batch=2"),
        ("rows=2,batch=2", "rows=3"),
        ("rows=4", "rows=1"),
        ("batch=2", "rows=2"),
    ],
    ids=" then ".join,
)
def test_a_run_begun_in_one_mesh_and_ended_in_another_is_the_run_of_one_process(
    crew: Crew, made: Made, straight: Made, meshes: tuple[str, str], optimizer: str
) -> None:
    settings = (f"optimizer.name={optimizer}",)
    run, true = made(*settings), straight(*settings)
    crew(meshes[0], trained, run.folder, 2, None)
    assert run.status == {"state": "interrupted", "epoch": 2, "step": 0}
    crew(meshes[1], trained, run.folder, None, None)
    assert {**run.status, "peak_bytes": None} == {**true.status, "peak_bytes": None}
    check_alike(run, true)
    assert all(check.wrong is None for check in verify(run.folder, rank=True))


def test_a_signal_to_one_process_saves_and_stops_all(
    crew: Crew, made: Made, straight: Made
) -> None:
    run = made()
    assert set(crew("rows=3", trained, run.folder, None, 3)) == {"interrupted"}
    assert run.status["state"] == "interrupted"
    # Told after the third step, all know after the fourth.
    assert (run.status["epoch"], run.status["step"]) == (0, 4)
    crew("rows=2,batch=2", trained, run.folder, None, None)
    check_alike(run, straight())


@pytest.fixture
def sharded(crew: Crew, made: Made) -> Run:
    """A finished run, whose last checkpoint is in three shards, with a best of its own."""
    run = made("optimizer.learning_rate=3", "training.epochs=7", "evaluation.every=1")
    crew("rows=3", trained, run.folder, None, None)
    return run


def last(run: Run) -> Path:
    folder = run.folder / "checkpoints"
    return folder / (folder / "last").read_text().strip()


def test_each_process_writes_its_rows_and_the_first_what_is_common(sharded: Run) -> None:
    names = {path.name for path in last(sharded).iterdir()}
    kinds = ["tables", "optimizer", "best"]
    assert names == {
        "manifest.json", "state.json",
        *(f"{kind}-{i}-of-3.safetensors" for kind in kinds for i in (1, 2, 3)),
    }  # fmt: skip
    tables = [load_file(last(sharded) / f"tables-{i}-of-3.safetensors") for i in (1, 2, 3)]
    assert [len(each["entities"]) for each in tables] == [100, 100, 101]
    assert ["relations" in each for each in tables] == [True, False, False]
    assert (
        names - {"manifest.json"}
        == json.loads((last(sharded) / "manifest.json").read_text()).keys()
    )


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


def test_many_processes_fall_back_together_to_a_whole_checkpoint(
    crew: Crew, made: Made, straight: Made
) -> None:
    run = made("training.save_seconds=0")
    crew("rows=3", trained, run.folder, 2, None)
    damaged = last(run)
    (damaged / "optimizer-3-of-3.safetensors").write_bytes(b"no tensors")
    crew("rows=2", trained, run.folder, None, None)
    assert not damaged.exists()
    check_alike(run, straight())


@pytest.mark.parametrize("rank, doing", [(2, "write"), (0, "sync")])
def test_a_full_disk_under_one_process_is_every_processs_problem(
    crew: Crew, sharded: Run, rank: int, doing: str
) -> None:
    before = last(sharded)
    said = crew("rows=3", troubled, sharded.folder, rank, doing)
    assert all("the disk is full" in each for each in said)
    assert last(sharded) == before
    assert sharded.last() is not None


def test_export_joins_shards_into_the_file_one_process_would_have_written(
    sharded: Run, tmp_path: Path
) -> None:
    export(sharded, tmp_path / "best.safetensors")
    found, true = load_file(tmp_path / "best.safetensors"), sharded.tables().weights()
    assert found.keys() == true.keys()
    assert all(each.equal(true[name]) for name, each in found.items())


def test_export_makes_a_run_that_is_asked_ranked_and_checked_as_any(
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
    with pytest.raises(RecipeError, match="exists already"):
        export(sharded, tmp_path)
