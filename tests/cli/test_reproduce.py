"""`allneg reproduce` on a table of its own about the tiny graph, trained by real processes."""

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

from allneg import cli, paper
from allneg.cli import parallel
from allneg.cli.parallel import ParallelTraining
from allneg.errors import AllnegError
from allneg.paper import Number, Results
from allneg.paper.cells import Cell
from allneg.paper.tasks import held, tasks

Command = Callable[..., Any]  # arguments of `allneg` to how it ended

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
NUMBERS = (
    Number("table1", "wn18", "complex", Cell(0.5, 0.4, 0.6)),
    Number("table1", "wn18", "complex-v2", Cell(0.6)),
    Number("norms", "wn18", "norms/rotate-l1"),  # by the same recipe as complex-v2
)


@pytest.fixture
def recipes(tiny_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write the recipes; the folder they are in."""

    def write(epochs: int = 6) -> Path:
        for number, dim in zip(NUMBERS, (4, 5, 5), strict=True):
            path = number.recipe_file(tmp_path / "recipes")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(RECIPE.format(data=tiny_folder, dim=dim, epochs=epochs))
        return tmp_path / "recipes"

    return write


class Here:
    """In place of a process: the same arguments, done when they are given."""

    is_running = False

    def __init__(self, arguments: list[str]) -> None:
        self._said = ""
        self.process = SimpleNamespace(returncode=0)
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                cli.allneg(arguments, standalone_mode=False)
            except AllnegError as problem:
                self.process.returncode, self._said = problem.exit_code, str(problem)

    @classmethod
    def start_allneg(cls, arguments: list[str], environment: object) -> Here:
        return cls(list(arguments))

    def lines(self) -> list[str]:
        return self._said.splitlines()


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the test the start of processes."""
    monkeypatch.setattr(parallel, "Worker", Here)


@pytest.fixture
def reproduce(
    allneg: Command, recipes: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """The command, its table and its folders."""
    monkeypatch.setattr(paper, "NUMBERS", NUMBERS)
    folders = {name: tmp_path / name for name in ("recipes", "results", "docs", "runs")}

    def call(*arguments: object) -> Any:
        if not folders["recipes"].exists():
            recipes()
        given = {"recipes", "runs"} if "--quick" in arguments else folders.keys()
        named = [word for name in given for word in (f"--{name}", folders[name])]
        return allneg("reproduce", *arguments, *named)

    return call


def entries(tmp_path: Path, number: Number) -> list[Any]:
    found = Results(tmp_path / "results").get(number)
    return list(found.seeds) if found is not None else []


def test_it_trains_what_is_missing_and_writes_results_and_pages(
    reproduce: Command, tmp_path: Path
) -> None:
    done = reproduce("table1", "--seeds", "0,1", "--parallel", "2")
    assert done.code == 0, done.err
    assert "0 of 4 are done" in done.err
    assert "4 of 4: wn18/complex" in done.err
    assert "(paper 0.60)" in done.err
    assert "nothing left" in done.err
    for number in NUMBERS[:2]:
        assert [each["seed"] for each in entries(tmp_path, number)] == [0, 1]
    first, second = entries(tmp_path, NUMBERS[0])
    assert first["mrr"] != second["mrr"]
    assert "wn18/complex-v2" in done.out
    text = (tmp_path / "docs" / "results.md").read_text()
    assert f"[{(first['mrr'] + second['mrr']) / 2:.4f}".replace("[0.", "[.") in text
    assert (tmp_path / "docs" / "findings.md").exists()


@pytest.mark.usefixtures("in_place")
def test_what_is_done_is_skipped_and_what_changed_is_trained_again(
    reproduce: Command, recipes: Callable[..., Path], tmp_path: Path
) -> None:
    assert reproduce("table1", "-q").code == 0
    before = entries(tmp_path, NUMBERS[0])
    again = reproduce("table1")
    assert again.code == 0
    assert again.err.splitlines()[0] == "2 of 2 are done"
    recipes(epochs=8)
    changed = reproduce("table1", "--rows", "complex")
    assert "0 of 1 are done" in changed.err
    after = entries(tmp_path, NUMBERS[0])
    assert (before[0]["epochs"], after[0]["epochs"]) == (6, 8)


@pytest.mark.usefixtures("in_place")
def test_a_result_that_is_lost_is_read_from_its_run_again(
    reproduce: Command, tmp_path: Path
) -> None:
    assert reproduce("table1", "--rows", "complex", "-q").code == 0
    path = NUMBERS[0].result_file(tmp_path / "results")
    text = path.read_text()
    path.unlink()
    assert reproduce("table1", "--rows", "complex", "-q").code == 0
    assert path.read_text() == text


@pytest.mark.usefixtures("in_place")
def test_two_numbers_by_one_recipe_are_trained_once(reproduce: Command, tmp_path: Path) -> None:
    assert reproduce("table1", "norms", "--parallel", "2", "-q").code == 0
    one, twin = entries(tmp_path, NUMBERS[1]), entries(tmp_path, NUMBERS[2])
    assert one == twin
    assert len(list((tmp_path / "runs" / "wn18").glob("*/run.json"))) == 2


@pytest.mark.usefixtures("in_place")
def test_a_run_is_dropped_only_when_no_number_waits_for_it(
    reproduce: Command, tmp_path: Path
) -> None:
    assert reproduce("table1", "norms", "--drop-runs", "-q").code == 0
    assert not list((tmp_path / "runs").rglob("run.json"))
    one, twin = entries(tmp_path, NUMBERS[1]), entries(tmp_path, NUMBERS[2])
    assert one == twin  # its seconds, too: not a second training


@pytest.mark.usefixtures("in_place")
def test_dropped_runs_are_gone_and_their_results_are_borrowed(
    reproduce: Command, tmp_path: Path
) -> None:
    assert reproduce("table1", "--rows", "complex-v2", "--drop-runs", "-q").code == 0
    assert not list((tmp_path / "runs").rglob("run.json"))
    assert reproduce("norms").err.splitlines()[0] == "1 of 1 are done"
    assert entries(tmp_path, NUMBERS[1]) == entries(tmp_path, NUMBERS[2])


def test_at_the_limit_nothing_is_begun(reproduce: Command, tmp_path: Path) -> None:
    done = reproduce("table1", "--limit-seconds", 0)
    assert done.code == 0
    assert "2 are left; the same command goes on" in done.err
    assert not list((tmp_path / "runs").rglob("run.json"))


def test_two_at_once_do_not_make_the_same_runs(reproduce: Command, tmp_path: Path) -> None:
    with held(tmp_path / "runs"):
        done = reproduce("table1")
        assert done.code == 2
        assert "another `allneg reproduce` trains there" in done.err
        assert reproduce("table1", "--status").code == 0
        assert reproduce().code == 0  # the pages alone
    assert reproduce("table1", "--limit-seconds", 0).code == 0


@pytest.mark.parametrize("by", ["signal", "limit"])
def test_what_is_cut_off_is_saved_and_goes_on(
    by: str, reproduce: Command, recipes: Callable[..., Path], tmp_path: Path
) -> None:
    (task,) = tasks(NUMBERS[:1], [0], recipes(epochs=100_000), tmp_path / "runs", quick=False)

    def far() -> bool:
        return (task.folder / "metrics.jsonl").exists() and task.epochs > reached

    def work() -> ParallelTraining:
        by_signal = by == "signal"
        found = ParallelTraining([task], 1, lambda: signal.SIGTERM * (by_signal and far()), print)
        if by == "limit":
            found.on_poll = lambda at: setattr(at, "limit_seconds", 0.0 if far() else None)
        found.train()
        assert found.waiting == [task]
        assert not found.failed
        assert found.signal_number == (signal.SIGTERM if by == "signal" else 0)
        return found

    reached = 0
    work()
    assert task.state == "interrupted"
    reached = task.run.status["epoch"]
    assert reached > 0
    work()
    assert task.run.status["epoch"] > reached
    status = ("table1", "--rows", "complex", "--status")
    assert "cut off" in reproduce(*status).out
    (number,) = reproduce(*status, "--json").json["numbers"]
    assert number["lacking"] == [{"seed": 0, "state": "interrupted"}]


def test_what_is_cut_off_before_it_listens_goes_on_another_time(
    recipes: Callable[..., Path], tmp_path: Path
) -> None:
    (task,) = tasks(NUMBERS[:1], [0], recipes(epochs=100_000), tmp_path / "runs", quick=False)
    found = ParallelTraining([task], 1, lambda: 0, print)
    found.on_poll = lambda at: setattr(at, "limit_seconds", 0.0)  # its process has just begun
    found.train()
    assert found.waiting == [task]
    assert not found.failed


@pytest.mark.usefixtures("in_place")
def test_a_number_that_diverges_is_told_of_and_the_others_are_trained(
    reproduce: Command, recipes: Callable[..., Path], tmp_path: Path
) -> None:
    path = NUMBERS[0].recipe_file(recipes())
    path.write_text(path.read_text() + "[optimizer]\nname = 'sgd'\nlearning_rate = 1e30\n")
    done = reproduce("table1")
    assert done.code == 5
    assert "wn18/complex, seed 0: exit code 5: " in done.err
    assert entries(tmp_path, NUMBERS[1])
    assert not entries(tmp_path, NUMBERS[0])
    again = reproduce("table1")
    assert again.code == 5
    assert "has diverged; change its recipe" in again.err


@pytest.mark.usefixtures("in_place")
def test_what_cannot_be_written_is_said_before_the_training(
    reproduce: Command, allneg: Command, tmp_path: Path
) -> None:
    reproduce("--status")
    (tmp_path / "file").write_text("")
    folders = ("--recipes", tmp_path / "recipes", "--runs", tmp_path / "runs")
    folders += ("--docs", tmp_path / "docs")
    done = allneg("reproduce", "table1", "--results", tmp_path / "file" / "results", *folders)
    assert done.code == 6
    assert "cannot be written" in done.err
    assert not (tmp_path / "runs").exists()


def test_pages_of_other_results_do_not_replace_those_that_are_there(
    allneg: Command, recipes: Callable[..., Path], tmp_path: Path
) -> None:
    done = allneg("reproduce", "--recipes", recipes(), "--results", tmp_path / "results")
    assert done.code == 2
    assert "--results: say --docs too" in done.err


def test_status_says_that_a_result_is_another_recipes(
    reproduce: Command, recipes: Callable[..., Path], tmp_path: Path
) -> None:
    assert reproduce("table1", "-q").code == 0
    recipes(epochs=7)
    done = reproduce("table1", "--status")
    assert done.code == 0
    assert "0 (by an earlier recipe)" in " ".join(done.out.split())


def test_a_bundle_carries_the_results_to_another_folder(
    reproduce: Command, allneg: Command, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.json"
    assert reproduce("table1", "--bundle", bundle, "-q").code == 0
    assert len(json.loads(bundle.read_text())["results"]) == 2
    other = tmp_path / "other"
    folders = ("--results", other, "--docs", other / "docs", "--recipes", tmp_path / "recipes")
    taken = allneg("reproduce", "--take", bundle, *folders)
    assert taken.code == 0
    for number in NUMBERS[:2]:
        here, there = (number.result_file(each) for each in (tmp_path / "results", other))
        assert here.read_text() == there.read_text()
    assert (other / "docs" / "results.md").exists()


@pytest.mark.parametrize("parts, n", [(["table1"], 2), ([], 3)])
def test_status_trains_and_writes_nothing(
    reproduce: Command, tmp_path: Path, parts: list[str], n: int
) -> None:
    done = reproduce(*parts, "--status")
    assert done.code == 0
    assert done.out.count("not run yet") == n
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "docs").exists()


@pytest.mark.usefixtures("in_place")
def test_status_says_which_seeds_are_missing(reproduce: Command) -> None:
    asked = ("table1", "--rows", "complex")
    reproduce(*asked, "-q")
    two = (*asked, "--seeds", "0,1", "--status")
    assert "0 (not 1)" in reproduce(*two).out
    (number,) = reproduce(*two, "--json").json["numbers"]
    assert number["lacking"] == [{"seed": 1, "state": "new"}]
    assert "(not" not in reproduce(*asked, "--status").out


@pytest.mark.usefixtures("in_place")
def test_json_has_the_papers_cell_ours_and_the_difference(reproduce: Command) -> None:
    said = reproduce("table1", "norms", "--json", "-q").json
    assert said["quick"] is False
    first, _, third = said["numbers"]
    assert first["paper"]["mrr"] == 0.5
    assert first["difference"] == pytest.approx(first["ours"]["mrr"] - 0.5)
    assert first["ours"]["seeds"] == [0]
    assert third["paper"] is None
    assert third["difference"] is None


@pytest.mark.usefixtures("in_place")
def test_quick_results_are_kept_apart_and_say_so(reproduce: Command, tmp_path: Path) -> None:
    done = reproduce("table1", "--rows", "complex", "--quick")
    assert done.code == 0, done.err
    assert "QUICK: small data" in done.out
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "docs").exists()
    apart = tmp_path / "runs-quick"
    assert (apart / "docs" / "results.md").read_text().startswith("**QUICK")
    said = json.loads((apart / "results" / "wn18" / "complex.json").read_text())
    assert said["quick"] is True
    assert said["seeds"][0]["epochs"] == 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--rows", "complex"), "say what to reproduce: table1, table2, figure1"),
        (("table1", "--quick", "--bundle", "x.json"), "--quick makes no results to --bundle"),
        (("table1", "--quick", "--results", "x"), "runs-quick; leave out --results, --docs"),
        (("table1", "--rows", "v2"), "no row is called 'v2'; there are complex"),
        (("table1", "--seeds", "a"), "write whole numbers below"),
        (("table1", "--seeds", 1 << 63), "write whole numbers below"),
        (("table1", "--limit-seconds", "nan"), "nan is not a number; write one, such as 1500"),
        (("table3",), "'table3' is not one of"),
        (("table1", "--datasets", "wn81"), "no data set is called 'wn81'"),
    ],
)
def test_a_wrong_call_is_refused(
    reproduce: Command, arguments: tuple[str, ...], message: str
) -> None:
    done = reproduce(*arguments)
    assert done.code == 2
    assert message in done.err


@pytest.mark.parametrize("flag", ["--bundle", "--take"])
def test_status_does_not_go_with_what_changes_something(
    reproduce: Command, tmp_path: Path, flag: str
) -> None:
    done = reproduce("table1", "--status", flag, tmp_path / "bundle.json")
    assert done.code == 2
    assert "--status changes nothing; leave out --bundle and --take" in done.err
    assert not (tmp_path / "bundle.json").exists()


def test_where_there_are_no_recipes_no_page_is_written_over(
    allneg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text("mine")
    done = allneg("reproduce")
    assert done.code == 2
    assert "recipes: has none of the recipes; call from a checkout, or --recipes" in done.err
    assert (tmp_path / "docs" / "results.md").read_text() == "mine"
