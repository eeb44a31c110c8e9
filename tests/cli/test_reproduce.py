"""`allneg reproduce` on cells about the tiny graph."""

from __future__ import annotations

import contextlib
import io
import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allneg import cli, recipes, reproduce
from allneg.cli import workers
from allneg.cli.workers import ParallelTraining
from allneg.errors import AllnegError
from allneg.reproduce import Cell, Printed, Results, make_tasks
from allneg.runs import Run
from allneg.runs.folder import locked

Command = Callable[..., Any]  # arguments of `allneg` → its outcome

RECIPE = """
[data]
name = "{data}"
[model]
dim = {dim}
[training]
epochs = {epochs}
batch_size = 8
save_seconds = 600
[evaluation]
every = 2
patience = 1000
[hardware]
device = "cpu"
threads = 1
"""
CELLS = (
    Cell("table1", "wn18", "complex", Printed(0.5, 0.4, 0.6)),
    Cell("table1", "wn18", "complex-v2", Printed(0.6)),
    Cell("norms", "wn18", "norms/rotate-l1"),  # the same recipe as complex-v2
)


@pytest.fixture
def write_recipes(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Write the recipes of the cells in the place of those that are shipped."""
    monkeypatch.setattr(recipes, "FOLDER", tmp_path / "recipes")
    monkeypatch.setattr(reproduce, "CELLS", CELLS)
    monkeypatch.setattr(reproduce, "SEEDS", range(1))

    def write(epochs: int = 6) -> None:
        for cell, dim in zip(CELLS, (4, 5, 5), strict=True):
            path = tmp_path / "recipes" / f"{cell.name}.toml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(RECIPE.format(data=tiny_folder, dim=dim, epochs=epochs))

    write()
    return write


class Here:
    """Runs the command of a worker in this process, at once."""

    is_running = False

    def __init__(self, arguments: list[str]) -> None:
        self._message = ""
        self.process = SimpleNamespace(returncode=0)
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                cli.allneg(arguments, standalone_mode=False)
            except AllnegError as error:
                self.process.returncode, self._message = error.exit_code, str(error)

    @classmethod
    def start(cls, arguments: list[str], environment: object) -> Here:
        return cls(list(arguments))

    def lines(self) -> list[str]:
        return self._message.splitlines()


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train in this process: starting others is slow."""
    monkeypatch.setattr(workers, "Worker", Here)


@pytest.fixture
def call(
    allneg: Command,
    write_recipes: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """The command, in an empty folder and with its default folders."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: allneg("reproduce", *arguments, "--runs", "runs")


def entries(cell: Cell) -> list[Any]:
    found = Results(Path("results")).get(cell)
    return list(found.seeds) if found is not None else []


@pytest.mark.usefixtures("forked_workers")
def test_it_trains_missing_cells_and_writes_results(call: Command) -> None:
    done = call("table1", "--rows", "complex", "--seeds", "0,1", "--parallel", "2")
    assert done.code == 0, done.err
    assert "0 of 2 runs are finished" in done.err
    assert "2 of 2: wn18/complex" in done.err
    assert "(paper 0.50)" in done.err
    first, second = entries(CELLS[0])
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first["mrr"] != second["mrr"]
    assert f"{(first['mrr'] + second['mrr']) / 2:.4f}" in done.out


@pytest.mark.usefixtures("in_process")
def test_finished_cells_are_skipped_and_changed_recipes_are_trained_again(
    call: Command, write_recipes: Callable[..., None]
) -> None:
    assert call("table1", "-q").code == 0
    before = entries(CELLS[0])
    assert call("table1").err.splitlines()[0] == "2 of 2 runs are finished"
    write_recipes(epochs=8)
    assert "0: recipe changed" in " ".join(call("table1", "--status").out.split())
    assert "0 of 1 runs are finished" in call("table1", "--rows", "complex").err
    after = entries(CELLS[0])
    assert (before[0]["epochs"], after[0]["epochs"]) == (6, 8)


@pytest.mark.usefixtures("in_process")
def test_a_lost_result_is_read_from_its_run_again(call: Command) -> None:
    assert call("table1", "--rows", "complex", "-q").code == 0
    path = Results(Path("results")).path(CELLS[0])
    text = path.read_text()
    path.unlink()
    assert call("table1", "--rows", "complex", "-q").code == 0
    assert path.read_text() == text


@pytest.mark.usefixtures("in_process")
def test_cells_with_the_same_recipe_are_trained_once(call: Command) -> None:
    assert call("table1", "norms", "--parallel", "2", "-q").code == 0
    assert entries(CELLS[1]) == entries(CELLS[2])
    assert len(list(Path("runs", "wn18").glob("*/run.json"))) == 2


@pytest.mark.usefixtures("in_process")
def test_an_ensemble_is_made_from_trained_members(
    call: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Cell("ensemble", "wn18", "ensemble")
    monkeypatch.setattr(reproduce, "CELLS", (*CELLS, both))
    monkeypatch.setattr(reproduce, "MEMBERS", ("complex", "complex-v2"))
    missing = call("ensemble")
    assert missing.code == 4
    assert "its members are not trained: wn18/complex, wn18/complex-v2" in missing.err
    assert call("table1", "ensemble").code == 0
    (found,) = entries(both)
    assert len(found["members"]) == 2
    assert found["valid_mrr"] >= max(entry["valid_mrr"] for c in CELLS for entry in entries(c))
    assert call("ensemble").err.splitlines()[0] == "1 of 1 runs are finished"
    monkeypatch.setattr(reproduce, "MEMBERS", ("complex", "norms/rotate-l1", "complex-v2"))
    assert call("ensemble").err.splitlines()[0] == "0 of 1 runs are finished"
    (found,) = entries(both)
    assert len(found["members"]) == 3


def test_after_the_time_limit_no_run_is_started(call: Command) -> None:
    done = call("table1", "--limit-seconds", 0)
    assert done.code == 0
    assert "2 runs are left; run the same command to continue" in done.err
    assert not list(Path("runs").rglob("run.json"))


def test_two_commands_do_not_train_the_same_runs(call: Command) -> None:
    Path("runs").mkdir()
    with locked(Path("runs"), lambda: ""):
        done = call("table1")
        assert done.code == 2
        assert "another `allneg reproduce` trains here" in done.err
        assert call("table1", "--status").code == 0
    assert call("table1", "--limit-seconds", 0).code == 0


@pytest.mark.usefixtures("forked_workers")
def test_an_interrupted_run_is_saved_and_resumed(
    call: Command, write_recipes: Callable[..., None]
) -> None:
    write_recipes(epochs=100_000)
    (task,) = make_tasks(CELLS[:1], [0], Path("runs"), quick=False)
    reached = 0

    def far() -> bool:
        return task.epochs > reached

    def train(work: ParallelTraining) -> int:
        """Train until it is stopped, and return the epoch of the run."""
        work.train()
        assert work.waiting == [task]
        assert not work.failed
        assert task.state == "interrupted"
        return Run.open(task.folder).status["epoch"]

    work = ParallelTraining([task], 1, lambda: signal.SIGTERM * far(), print)
    reached = train(work)
    assert reached > 0
    assert work.signal_number == signal.SIGTERM
    work = ParallelTraining([task], 1, lambda: 0, print)
    work.on_poll = lambda at: setattr(at, "limit_seconds", 0.0 if far() else None)
    assert train(work) > reached
    assert work.signal_number == 0
    status = ("table1", "--rows", "complex", "--status")
    assert "interrupted" in call(*status).out
    (cell,) = call(*status, "--json").json["numbers"]
    assert cell["lacking"] == [{"seed": 0, "state": "interrupted"}]


def test_a_run_that_is_stopped_before_it_handles_signals_is_not_a_failure(
    call: Command, write_recipes: Callable[..., None]
) -> None:
    write_recipes(epochs=100_000)
    (task,) = make_tasks(CELLS[:1], [0], Path("runs"), quick=False)
    found = ParallelTraining([task], 1, lambda: 0, print)
    found.on_poll = lambda at: setattr(at, "limit_seconds", 0.0)  # the process has just started
    found.train()
    assert found.waiting == [task]
    assert not found.failed


@pytest.mark.usefixtures("in_process")
def test_a_diverged_cell_is_reported_and_the_others_are_trained(call: Command) -> None:
    path = recipes.FOLDER / f"{CELLS[0].name}.toml"
    path.write_text(path.read_text() + "[optimizer]\nname = 'sgd'\nlearning_rate = 1e30\n")
    done = call("table1")
    assert done.code == 5
    assert "wn18/complex, seed 0: exit code 5: " in done.err
    assert "1 of 2 runs failed" in done.err
    assert entries(CELLS[1])
    assert not entries(CELLS[0])
    again = call("table1")
    assert again.code == 5
    assert "has diverged; change its recipe" in again.err


def test_a_folder_that_cannot_be_written_is_an_error_before_the_training(call: Command) -> None:
    Path("file").write_text("")
    done = call("table1", "--results", "file/results")
    assert done.code == 6
    assert "cannot be written" in done.err
    assert not Path("runs").exists()


@pytest.mark.parametrize("arguments, n", [(["table1", "--status"], 2), (["--status"], 3), ([], 3)])
def test_printing_trains_and_writes_nothing(call: Command, arguments: list[str], n: int) -> None:
    done = call(*arguments)
    assert done.code == 0
    assert done.out.count("seed 0: new") == n
    assert not Path("runs").exists()
    assert not Path("results").exists()


@pytest.mark.usefixtures("in_process")
def test_the_output_has_the_papers_number_ours_and_the_difference(call: Command) -> None:
    document = call("table1", "norms", "--json", "-q").json
    assert document["quick"] is False
    first, _, third = document["numbers"]
    assert first["paper"]["mrr"] == 0.5
    assert first["difference"] == pytest.approx(first["ours"]["mrr"] - 0.5)
    assert first["ours"]["seeds"] == [0]
    assert first["lacking"] == []
    assert third["paper"] is None
    assert third["difference"] is None
    two = ("table1", "--rows", "complex", "--seeds", "0,1")
    assert "seed 1: new" in call(*two, "--status").out
    (cell,) = call(*two, "--status", "--json").json["numbers"]
    assert cell["lacking"] == [{"seed": 1, "state": "new"}]


@pytest.mark.usefixtures("in_process")
@pytest.mark.usefixtures("quick_data")
def test_quick_results_are_marked_and_kept_apart(call: Command) -> None:
    done = call("table1", "--rows", "complex", "--quick")
    assert done.code == 0, done.err
    assert "QUICK: small models" in done.out
    assert not Path("results").exists()
    content = json.loads(Path("runs-quick", "results", "wn18", "complex.json").read_text())
    assert content["quick"] is True
    assert content["seeds"][0]["epochs"] == 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--parallel", "2"), "nothing to train: name one of table1, table2, figure1"),
        (("table1", "--status", "--limit-seconds", "2"), "nothing to train"),
        (("table1", "--rows", "v2"), "no row is called 'v2'; known names: complex"),
        (("table1", "--seeds", "a"), "'a' is not a valid integer"),
        (("table1", "--seeds", 1 << 63), "is not in the range"),
        (("table1", "--limit-seconds", "nan"), "nan is not a number; write one, such as 1500"),
        (("table3",), "'table3' is not one of"),
        (("table1", "--datasets", "wn81"), "no dataset is called 'wn81'"),
    ],
)
def test_wrong_arguments_are_errors(
    call: Command, arguments: tuple[str, ...], message: str
) -> None:
    done = call(*arguments)
    assert done.code == 2
    assert message in " ".join(done.err.split())
