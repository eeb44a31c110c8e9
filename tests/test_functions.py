"""Every command that works on data or runs is a function of the same name in Python."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import allneg
from allneg.cli import _COMMANDS
from allneg.errors import Diverged, RecipeError, UsageError
from allneg.evaluation import evaluate as evaluate_tables
from allneg.evaluation import evaluate_baselines
from allneg.graph import Graph
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.training import Callbacks
from allneg.tuning.search import PruneCallback
from allneg.tuning.tune import Tuning


def test_commands_and_functions_have_the_same_names() -> None:
    # What prints is a method or a field in Python; the rest are programs.
    elsewhere = {
        "predict",
        "neighbours",
        "ask",
        "complete",
        "score",
        "info",
        "explore",
        "data",
        "reproduce",
    }
    assert set(_COMMANDS) - elsewhere <= set(allneg.__all__)
    for name in ("train", "resume", "tune", "search"):
        assert {"progress", "stopped_by"} <= set(
            inspect.signature(getattr(allneg, name)).parameters
        )


def test_evaluate_ranks_as_the_report_says(toy_run: Run) -> None:
    report = allneg.evaluate(toy_run.folder, device="cpu")
    assert report == toy_run.report
    assert allneg.evaluate(toy_run, "valid", device="cpu").protocol["split"] == "valid"
    other = allneg.evaluate(toy_run, protocol="kbc", device="cpu")
    assert other.protocol["ties"] == "last"
    with pytest.raises(RecipeError, match="no protocol is called 'kbz'; close names: 'kbc'"):
        allneg.evaluate(toy_run, protocol="kbz")


def test_compare_tests_two_runs(toy_run: Run) -> None:
    found = allneg.compare(toy_run, toy_run.folder, device="cpu")
    assert found.difference.mean == 0
    assert found.mrr[0] == pytest.approx(toy_run.report.mrr)


def test_plan_needs_no_data_if_sizes_are_given(quick: Callable[..., Recipe]) -> None:
    sizes = {"entities": 10**7, "relations": 1000, "triples": 10**8}
    made = allneg.plan(quick("model.dim=1000", "hardware.device=auto"), gpu="a100", **sizes)
    assert (made.gpu, made.available, made.fits) == ("a100", 80 * 10**9, False)
    small = allneg.plan(quick(), settings={"model.dim": 2}, **sizes)
    assert small.gpu is None
    assert small.peak < made.peak
    with pytest.raises(UsageError, match="no GPU is called 'h300'; use h200 or a100"):
        allneg.plan(quick(), gpu="h300", **sizes)
    with pytest.raises(UsageError, match="give all of --entities"):
        allneg.plan(quick(), entities=5)


@pytest.fixture
def space(tiny_folder: Path) -> Path:
    file = tiny_folder.parent / "space.toml"
    file.write_text(f"""
        [data]
        name = "{tiny_folder}"
        [model]
        dim = 4
        [training]
        epochs = 2
        batch_size = 8
        [evaluation]
        every = 1
        [hardware]
        device = "cpu"
        threads = 1
        [search]
        "optimizer.learning_rate" = [0.1, 0.3]
    """)
    return file


def test_search_runs_all_trials_with_progress(
    space: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = allneg.search(space, out=tmp_path / "search", progress=True)
    assert [status.state for status in found.statuses()] == ["finished"] * 2
    lines = capsys.readouterr().err.splitlines()
    assert "2 trials on" in lines[0]
    assert [line.split(":")[0] for line in lines[1:]] == ["1 of 2", "2 of 2"]
    with pytest.raises(UsageError, match="is a run, not a search"):
        allneg.search(space, out=found.out / "trials" / found.statuses()[0].trial.id)


def test_search_takes_triples_in_memory(space: Path, tiny_graph: Graph, tmp_path: Path) -> None:
    triples = tiny_graph.facts("train")
    settings = {"data.valid_share": 0.2, "training.epochs": 1}
    found = allneg.search(space, triples, out=tmp_path / "search", settings=settings)
    assert [status.state for status in found.statuses()] == ["finished"] * 2
    run = allneg.Run.open(found.out / "trials" / found.statuses()[0].trial.id)
    assert (run.recipe.data.name, len(run.graph.valid)) == ("list", 1)
    with pytest.raises(UsageError, match="trained on other data"):
        allneg.search(space, triples[:-1], out=found.out, settings=settings)
    with pytest.raises(UsageError, match="int"):
        allneg.search(space, 3, out=tmp_path / "other")


def test_a_search_whose_trials_all_diverge_is_an_error(space: Path, tmp_path: Path) -> None:
    settings = {"optimizer.name": "sgd", "model.scale": 1e20, "regularizer.name": "none"}
    with pytest.raises(Diverged, match="all trials diverged"):
        allneg.search(space, out=tmp_path / "search", settings=settings)


def test_ctrl_c_in_a_search_is_a_keyboard_interrupt(
    space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(_: PruneCallback, state: State, n_steps: int) -> None:
        if (state.epoch, state.step) == (0, 1):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(PruneCallback, "on_step", press)
    with pytest.raises(KeyboardInterrupt, match="stopped and saved; run the same"):
        allneg.search(space, out=tmp_path / "search")


def test_ctrl_c_saves_a_tuning_with_progress(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    original = Tuning._claim

    def claim(tuning: Tuning) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return original(tuning)

    monkeypatch.setattr(Tuning, "_claim", claim)
    settings = {"model.dim": 4, "hardware.device": "cpu", "hardware.threads": 1}
    with pytest.raises(KeyboardInterrupt, match="stopped and saved"):
        allneg.tune(
            tiny_folder, minutes=60, out=tmp_path / "tune", models=["complex"], settings=settings,
            progress=True,
        )  # fmt: skip
    assert "tuning on tiny, " in capsys.readouterr().err
    assert (tmp_path / "tune" / "results.json").exists()


def test_verify_checks_a_run(toy_copy: Run) -> None:
    assert all(check.wrong is None for check in allneg.verify(toy_copy.folder))


def test_a_graph_is_trained_on_as_it_is(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    run = allneg.train(tiny_graph, recipe=quick(), out=tmp_path / "run", callbacks=Callbacks())
    assert run.graph.vocabulary == tiny_graph.vocabulary
    report = evaluate_tables(run.model, run.tables(), tiny_graph)
    assert run.report.metrics == report.metrics
    assert run.report.baselines.keys() == evaluate_baselines(tiny_graph, "test").keys()
