from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import click
import pytest

from allneg.cli import workers as module
from allneg.cli.reports import stop_signal
from allneg.cli.workers import Worker, wait_for_trials
from allneg.errors import Interrupted, ResourceError
from allneg.runs import Run
from allneg.tuning import Search, TrialFolder, read_space
from processes import start_command

Command = Callable[..., Any]  # runs `allneg` with these arguments

BASE = """
[model]
dim = 4
[training]
epochs = {epochs}
batch_size = 40
save_seconds = 0
[evaluation]
every = 2
patience = 1000
[hardware]
device = "cpu"
threads = 1
[data]
name = "{data}"
[search]
"regularizer.weight" = [0.1, 0]
"optimizer.learning_rate" = [0.5, 0.1, 0.01]
"""
EPOCHS = 16  # of a trial whose worker is killed after the fifth


@pytest.fixture
def space(tiny_folder: Path, tmp_path: Path) -> Path:
    """A space of six trials on the tiny graph."""
    file = tmp_path / "space.toml"
    file.write_text(BASE.format(epochs=4, data=tiny_folder))
    return file


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIAL_POLL_SECONDS", 0.05)


@pytest.mark.battery(80)
def test_an_engine_that_cannot_run_here_is_refused_before_a_search_writes(
    allneg: Command, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    done = allneg("search", space, "--out", tmp_path / "out", "--set", "hardware.engine=gpu")
    assert done.code == 2
    assert "hardware.engine is 'gpu', but" in done.err
    assert not (tmp_path / "out").exists()


def test_a_search_prints_its_results_and_keeps_them(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    before = allneg("search", space, "--out", out, "--status", "--json").json
    assert {trial["state"] for trial in before["trials"]} == {"waiting"}
    assert not out.exists()
    done = allneg("search", space, "--out", out)
    assert done.code == 0
    assert "6 trials: 6 finished" in done.out
    assert f"{out}: 6 trials on " in done.err
    assert ", 0 of them done" in done.err
    assert "6 of 6: regularizer.weight" in done.err
    assert re.search(r"finished, valid MRR 0\.\d{4}", done.err)
    again = allneg("search", space, "--out", out, "-q", "--json")
    assert again.code == 0
    results = again.json
    assert results.keys() == {
        "schema_version", "space", "data", "selected_by", "halving", "trials", "search",
    }  # fmt: skip
    best = results["trials"][0]
    assert best["valid_mrr"] == max(trial["valid_mrr"] for trial in results["trials"])
    assert f"allneg evaluate {out}/trials/{best['trial']}" in done.out.replace("\n", "")
    assert allneg("search", space, "--out", out, "--status", "--json").json == results


def test_the_plot_is_the_same_bytes_for_the_same_results(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    out = tmp_path / "out"
    assert allneg("search", space, "--out", out, "-q").code == 0
    plot = (out / "search.svg").read_bytes()
    (out / "search.svg").unlink()
    again = allneg("search", space, "--out", out, "-q")
    assert (again.code, again.err) == (0, "")
    assert (out / "search.svg").read_bytes() == plot
    for word in (b"regularizer.weight", b"optimizer.learning_rate", b"valid MRR", b"6 of 6 trials"):
        assert word in plot
    assert b"dc:date" not in plot


@pytest.mark.parametrize(
    "missing, install", [("matplotlib", "allneg[plots]"), ("optuna", "allneg[search]")]
)
def test_a_grid_needs_neither_optuna_nor_matplotlib(
    allneg: Command,
    space: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    install: str,
) -> None:
    if missing == "matplotlib":
        pytest.importorskip("optuna")
    monkeypatch.setitem(sys.modules, missing, None)
    done = allneg("search", space, "--out", tmp_path / "out", "-q")
    assert done.code == 0
    assert f"pip install '{install}'" in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out" / "search.svg").exists()


def test_halving_prints_which_trials_were_dropped(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    flags = ("--out", tmp_path / "out", "--halving", "--set", "training.epochs=18")
    done = allneg("search", space, *flags)
    assert done.code == 0
    dropped = done.err.count(": dropped, valid MRR")
    assert dropped > 0
    assert f"6 trials: {6 - dropped} finished, {dropped} dropped" in done.out


def test_ranges_need_trials_and_status_counts_them(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    head = space.read_text().partition("[search]")[0]
    space.write_text(head + '[search]\n"model.dim" = { low = 2, high = 3 }\n')
    flags = (space, "--out", tmp_path / "out")
    done = allneg("search", *flags)
    assert done.code == 2
    assert "[search] has ranges: give the number of trials by --trials" in done.err
    pytest.importorskip("optuna")
    before = allneg("search", *flags, "--trials", 5, "--status")
    assert before.code == 0
    assert "0 trials" in before.out
    assert allneg("search", *flags, "--trials", 5, "--status", "--json").json["trials"] == []
    done = allneg("search", *flags, "--trials", 5)
    assert done.code == 0
    assert "2 trials: 2 finished" in done.out
    assert "3 suggestions of Optuna repeated an earlier one" in done.out
    assert "2 of 5: " in done.err
    for more in ((), ("--trials", 2)):  # the folder has the number of trials
        after = allneg("search", *flags, *more, "--status")
        assert after.code == 0
        assert "2 trials: 2 finished" in after.out
    assert (tmp_path / "out" / "search.svg").exists()


def test_halving_without_a_rung_is_refused(allneg: Command, space: Path, tmp_path: Path) -> None:
    late = ("--set", "evaluation.every=1000")
    done = allneg("search", space, "--out", tmp_path / "out", "--halving", *late)
    assert done.code == 2
    assert "lower evaluation.every" in done.err


@pytest.mark.battery(26)
def test_a_result_of_the_wrong_type_does_not_count(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    flags = (space, "--out", tmp_path / "out")
    assert allneg("search", *flags, "-q").code == 0
    path = next((tmp_path / "out" / "trials").glob("*/result.json"))
    whole = path.read_text()
    path.write_text(json.dumps(json.loads(whole) | {"valid_mrr": "x"}))
    assert "5 finished" in allneg("search", *flags, "--status").out
    assert allneg("search", *flags, "-q").code == 0
    assert path.read_text() == whole


@pytest.mark.battery(30)
def test_a_search_in_which_all_trials_diverge_exits_with_5(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    settings = ("optimizer.name=sgd", "model.scale=1e30", "regularizer.name=none")
    flags = [part for setting in settings for part in ("--set", setting)]
    done = allneg("search", space, "--out", tmp_path / "out", *flags, "--json")
    assert done.code == 5
    assert {trial["state"] for trial in done.json["trials"]} == {"diverged"}
    assert "all trials diverged" in done.err


@pytest.mark.battery(31)
def test_a_search_in_which_no_trial_fits_exits_with_6(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    done = allneg("search", space, "--out", tmp_path / "out", "--set", f"model.dim={10**15}")
    assert done.code == 6
    assert "all trials failed; search a lower model.dim" in done.err
    assert "too large" in done.out
    assert "out of memory" in done.out
    assert "To run this trial again, remove " in done.out


def test_an_error_in_the_space_exits_with_2(allneg: Command, space: Path, tmp_path: Path) -> None:
    space.write_text(space.read_text().replace("regularizer.weight", "regularizer.wait"))
    done = allneg("search", space, "--out", tmp_path / "out")
    assert done.code == 2
    assert "regularizer.wait is not a setting" in done.err


def test_a_shipped_space_has_a_name(allneg: Command, tmp_path: Path) -> None:
    flags = ("--out", tmp_path / "out", "--status", "--json")
    assert len(allneg("search", "search/paper-grid", *flags).json["trials"]) == 150
    done = allneg("search", "search/paper-gird", *flags)
    assert done.code == 2
    assert "close names: 'search/paper-grid'" in done.err


def test_the_folder_of_a_run_is_refused(allneg: Command, space: Path, toy_copy: Run) -> None:
    before = sorted(toy_copy.folder.rglob("*"))
    done = allneg("search", space, "--out", toy_copy.folder)
    assert done.code == 2
    assert f"{toy_copy.folder}: is a run, not a search; choose another --out" in done.err
    assert sorted(toy_copy.folder.rglob("*")) == before


@pytest.mark.battery(36)
def test_three_workers_run_each_trial_once_even_if_one_is_killed(
    space: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    space.write_text(BASE.format(epochs=EPOCHS, data=tiny_folder))
    out = tmp_path / "out"
    search = Search(read_space(space), out)
    command, printed = ("search", space, "--out", out, "-q"), tmp_path / "printed"
    workers = [start_command(*command, out=printed) for _ in range(3)]
    try:
        killed, cut, before = _kill_one(
            workers, [TrialFolder(out, trial) for trial in search.trials()]
        )
        for worker in workers:
            worker.join(120)
    finally:
        for worker in workers:
            worker.kill()
    assert sorted(worker.exitcode for worker in workers) == [-signal.SIGKILL, 0, 0]
    assert killed.exitcode == -signal.SIGKILL
    assert [status.state for status in search.statuses()] == ["finished"] * 6
    for trial in search.trials():
        metrics = Run.open(out / "trials" / trial.id).metrics()
        assert [entry["epoch"] for entry in metrics] == list(range(1, EPOCHS + 1))
        # A trial that ran twice would have seconds that decrease.
        seconds = [entry["seconds"] for entry in metrics]
        assert seconds == sorted(seconds)
    kept = Run.open(cut.folder).metrics()[: len(before)]
    assert [entry["seconds"] for entry in kept] == [entry["seconds"] for entry in before]


def _kill_one(
    workers: list[ForkServerProcess], folders: list[TrialFolder]
) -> tuple[ForkServerProcess, TrialFolder, list[dict[str, Any]]]:
    """Kill a worker during a trial; return it, the trial, and the epochs of its checkpoint."""
    by_pid = {worker.pid: worker for worker in workers}
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for folder in folders:
            holder = folder.folder / ".holder"
            last = folder.folder / "checkpoints" / "last"
            try:
                pid, name = int(holder.read_text().split()[1]), last.read_text()
            except (OSError, IndexError):
                continue
            if int(name[6:12]) < 5:
                continue
            os.kill(pid, signal.SIGSTOP)  # it must not end before the kill
            epochs = int(last.read_text()[6:12])
            if folder.result() is None and holder.exists() and epochs < EPOCHS:
                os.kill(pid, signal.SIGKILL)
                by_pid[pid].join(60)
                metrics = Run(folder.folder, folder.trial.recipe).metrics()
                return by_pid[pid], folder, metrics[:epochs]
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.002)
    pytest.fail("no worker reached five epochs")


@pytest.mark.usefixtures("forked_workers")
def test_workers_share_the_trials(allneg: Command, space: Path, tmp_path: Path) -> None:
    done = allneg("search", space, "--out", tmp_path / "out", "--workers", 2)
    assert done.code == 0, done.err
    assert "6 trials: 6 finished" in done.out
    assert len(re.findall(r"^\d of 6: .* finished, valid MRR", done.err, re.MULTILINE)) == 6
    assert "Traceback" not in done.err


def test_a_worker_is_a_process_that_runs_trials(space: Path, tmp_path: Path) -> None:
    worker = Worker.start(["search", str(space), "--out", str(tmp_path / "out")], {})
    assert os.getpgid(worker.process.pid) == worker.process.pid  # Ctrl-C does not reach it
    assert (worker.process.wait(120), worker.lines()) == (0, [])
    statuses = Search(read_space(space), tmp_path / "out").statuses()
    assert [status.state for status in statuses] == ["finished"] * 6


def started(*scripts: str) -> list[Worker]:
    files = [tempfile.TemporaryFile() for _ in scripts]  # noqa: SIM115 (a worker keeps it)
    return [
        Worker(subprocess.Popen(["sh", "-c", script], stderr=file, start_new_session=True), file)
        for script, file in zip(scripts, files, strict=True)
    ]


def test_the_other_workers_replace_a_killed_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wait_for_trials(started("kill -9 $$", "true"), lambda: 0, lambda: 0)
    assert capsys.readouterr().err == "1 of 2 workers were killed (SIGKILL)\n"
    with pytest.raises(
        ResourceError, match="3 trials are left and all workers have ended"
    ) as caught:
        wait_for_trials(started("kill -9 $$", "kill -9 $$"), lambda: 0, lambda: 3)
    assert caught.value.exit_code == 6


def test_the_same_error_of_all_workers_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    script = "echo out of memory >&2; exit 6"
    with pytest.raises(click.exceptions.Exit) as caught:
        wait_for_trials(started(script, script), lambda: 0, lambda: 1)
    assert caught.value.exit_code == 6
    assert capsys.readouterr().err == "out of memory\n"


def test_a_signal_is_sent_once_to_every_worker(capsys: pytest.CaptureFixture[str]) -> None:
    workers = started("exec sleep 60", "exec sleep 60")
    with pytest.raises(Interrupted, match="run the same command to continue") as caught:
        wait_for_trials(workers, lambda: signal.SIGTERM, lambda: 2)
    assert caught.value.exit_code == 143
    assert [worker.process.returncode for worker in workers] == [-signal.SIGTERM] * 2
    assert capsys.readouterr().err == ""


def test_a_worker_stops_when_its_parent_has_ended() -> None:
    with stop_signal(os.getppid()) as stopped_by:
        assert stopped_by() == 0
    with stop_signal(os.getppid() + 1) as stopped_by:
        assert stopped_by() == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped_by() == signal.SIGINT
