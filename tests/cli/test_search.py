from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

from allneg.cli.search import _live
from allneg.cli.workers import Worker, oversee, with_parent
from allneg.errors import Interrupted, ResourceError
from allneg.runs import Run
from allneg.training.search import read_space, standings
from allneg.training.search.trial import Place

Command = Callable[..., Any]  # arguments of `allneg` to how it ended

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


@pytest.fixture
def space(tiny_folder: Path, tmp_path: Path) -> Path:
    """A space of six trials on the tiny graph."""
    file = tmp_path / "space.toml"
    file.write_text(BASE.format(epochs=4, data=tiny_folder))
    return file


def test_a_search_prints_its_results_and_keeps_them(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    before = allneg("search", space, "--out", out, "--status", "--json").json
    assert {each["state"] for each in before["trials"]} == {"waiting"}
    assert not out.exists()
    done = allneg("search", space, "--out", out)
    assert done.code == 0
    assert "6 trials: 6 finished" in done.out
    assert f"{out}: 6 trials on " in done.err
    assert ", 0 of them done" in done.err
    assert "6 of 6: regularizer.weight" in done.err
    assert re.search(r"finished, valid MRR 0\.\d{4}", done.err)
    again = allneg("search", space, "--out", out, "-q", "--json")
    assert (again.code, again.err) == (0, "")
    said = again.json
    assert said.keys() == {
        "schema_version", "space", "data", "selected_by", "halving", "trials", "search",
    }  # fmt: skip
    best = said["trials"][0]
    assert best["valid_mrr"] == max(each["valid_mrr"] for each in said["trials"])
    assert f"allneg evaluate {out}/trials/{best['trial']}" in done.out.replace("\n", "")
    assert allneg("search", space, "--out", out, "--status", "--json").json == said


def test_the_picture_is_the_same_bytes_for_the_same_results(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert allneg("search", space, "--out", out, "-q").code == 0
    picture = (out / "search.svg").read_bytes()
    (out / "search.svg").unlink()
    assert allneg("search", space, "--out", out, "-q").code == 0
    assert (out / "search.svg").read_bytes() == picture
    for word in (b"regularizer.weight", b"optimizer.learning_rate", b"valid MRR", b"6 of 6 trials"):
        assert word in picture
    assert b"dc:date" not in picture


def test_without_matplotlib_there_is_a_note_and_no_picture(
    allneg: Command, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = allneg("search", space, "--out", tmp_path / "out", "-q")
    assert (done.code, done.err) == (
        0,
        "no search.svg: it takes matplotlib, which is not installed\n",
    )
    assert not (tmp_path / "out" / "search.svg").exists()


def test_halving_says_who_was_dropped(allneg: Command, space: Path, tmp_path: Path) -> None:
    flags = ("--out", tmp_path / "out", "--halving", "--set", "training.epochs=18")
    done = allneg("search", space, *flags)
    assert done.code == 0
    assert "6 trials: 1 finished, 5 dropped" in done.out
    assert done.err.count(": dropped, valid MRR") == 5


@pytest.mark.parametrize(
    "flags, message",
    [
        ((), "search.model.dim is a range: say how many to try by --trials"),
        (("--trials", 3, "--halving"), "--halving is for lists of values"),
    ],
)
def test_ranges_take_trials_and_no_halving(
    allneg: Command, space: Path, tmp_path: Path, flags: tuple[object, ...], message: str
) -> None:
    space.write_text(space.read_text() + '"model.dim" = { low = 2, high = 6 }\n')
    done = allneg("search", space, "--out", tmp_path / "out", *flags)
    assert done.code == 2
    assert message in done.err


def test_ranges_are_searched_and_status_knows_how_many_are_left(
    allneg: Command, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_larger(axes: Any, told: Any) -> dict[str, Any]:
        fixed = {"regularizer.weight": 0.1, "optimizer.learning_rate": 0.1}
        return {**fixed, "model.dim": 2 + len(told)}

    monkeypatch.setattr("allneg.training.search.asking.suggested", one_larger)
    space.write_text(space.read_text() + '"model.dim" = { low = 2, high = 6 }\n')
    flags = (space, "--out", tmp_path / "out", "--trials", 3)
    before = allneg("search", *flags, "--status")
    assert before.code == 0
    assert "0 trials" in before.out
    assert allneg("search", *flags, "--status", "--json").json["trials"] == []
    done = allneg("search", *flags)
    assert done.code == 0
    assert "3 trials: 3 finished" in done.out
    assert "3 of 3: " in done.err
    for known in ((), ("--trials", 2)):  # how many were asked for is known without --trials
        after = allneg("search", *flags[:-2], *known, "--status")
        assert after.code == 0
        assert "3 trials: 3 finished" in after.out
    assert (tmp_path / "out" / "search.svg").exists()


def test_a_range_of_few_values_says_that_there_are_no_more(
    allneg: Command, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "allneg.training.search.asking.suggested",
        lambda _, told: {"model.dim": 2 + len(told) % 2},
    )
    head = space.read_text().partition("[search]")[0]
    space.write_text(head + '[search]\n"model.dim" = { low = 2, high = 3 }\n')
    done = allneg("search", space, "--out", tmp_path / "out", "--trials", 5)
    assert done.code == 0
    assert "2 trials: 2 finished" in done.out
    assert "3 suggestions had been tried before" in done.out


def test_halving_without_a_rung_is_refused(allneg: Command, space: Path, tmp_path: Path) -> None:
    late = ("--set", "evaluation.every=1000")
    done = allneg("search", space, "--out", tmp_path / "out", "--halving", *late)
    assert done.code == 2
    assert "lower evaluation.every" in done.err


@pytest.mark.battery(26)
def test_a_result_of_the_wrong_kind_is_no_result(
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
def test_a_search_in_which_all_diverge_says_so(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    settings = ("optimizer.name=sgd", "model.scale=1e30", "regularizer.name=none")
    flags = [part for each in settings for part in ("--set", each)]
    done = allneg("search", space, "--out", tmp_path / "out", *flags, "--json")
    assert done.code == 5
    assert {each["state"] for each in done.json["trials"]} == {"diverged"}
    assert "every trial has diverged" in done.err


@pytest.mark.battery(31)
def test_a_search_in_which_nothing_fits_says_so(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    done = allneg("search", space, "--out", tmp_path / "out", "--set", f"model.dim={10**15}")
    assert done.code == 6
    assert "no trial has ended well; search lower model.dim" in done.err
    assert "too large" in done.out
    assert "out of memory" in done.out
    assert "To try that one again, remove " in done.out


def test_a_mistake_in_the_space_is_a_mistake_in_the_command(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    space.write_text(space.read_text().replace("regularizer.weight", "penalty.wait"))
    done = allneg("search", space, "--out", tmp_path / "out")
    assert done.code == 2
    assert "penalty.wait is not a setting" in done.err


def test_a_runs_folder_is_not_taken_for_a_searchs(
    allneg: Command, space: Path, toy_copy: Run
) -> None:
    before = sorted(toy_copy.folder.rglob("*"))
    done = allneg("search", space, "--out", toy_copy.folder)
    assert done.code == 2
    assert f"{toy_copy.folder}: is a run, and no search; choose another --out" in done.err
    assert sorted(toy_copy.folder.rglob("*")) == before


def test_the_live_table_shows_what_is_at_work_first(
    allneg: Command, space: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert allneg("search", space, "--out", out, "-q").code == 0
    found = standings(read_space(space), out)
    page = StringIO()
    Console(file=page, width=120).print(_live(found))
    lines = page.getvalue().splitlines()
    assert lines[0].startswith("6 trials: 6 finished")
    assert found[0].trial.in_words() in lines[4]
    assert f"{found[0].valid_mrr:.4f}" in lines[4]
    assert "4 of 4" in lines[4]


@pytest.mark.battery(36)
def test_three_workers_try_each_point_once_though_one_is_killed(
    space: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    space.write_text(BASE.format(epochs=40, data=tiny_folder))
    out, asked = tmp_path / "out", read_space(space)
    command = [sys.executable, "-m", "allneg", "search", str(space), "--out", str(out), "-q"]
    workers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(3)]
    try:
        killed, cut, before = _kill_one(workers, [Place(out, trial) for trial in asked.trials])
        for each in workers:
            each.wait(timeout=120)
    finally:
        for each in workers:
            each.kill()
    assert sorted(each.returncode for each in workers) == [-signal.SIGKILL, 0, 0]
    assert killed.returncode == -signal.SIGKILL
    assert [each.state for each in standings(asked, out)] == ["finished"] * 6
    for trial in asked.trials:
        metrics = Run.open(out / "trials" / trial.id).metrics()
        assert [entry["epoch"] for entry in metrics] == list(range(1, 41))
        # Had a trial been tried twice, its clock would have gone back.
        seconds = [entry["seconds"] for entry in metrics]
        assert seconds == sorted(seconds)
    kept = Run.open(cut.folder).metrics()[: len(before)]
    assert [entry["seconds"] for entry in kept] == [entry["seconds"] for entry in before]


def _kill_one(
    workers: list[subprocess.Popen[bytes]], places: list[Place]
) -> tuple[subprocess.Popen[bytes], Place, list[dict[str, Any]]]:
    """Kill a worker in the middle of a trial; the trial, and the epochs its checkpoint has."""
    by_pid = {each.pid: each for each in workers}
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for place in places:
            holder = place.folder / ".holder"
            last = place.folder / "checkpoints" / "last"
            try:
                pid, name = int(holder.read_text().split()[1]), last.read_text()
            except (OSError, IndexError):
                continue
            if int(name[6:12]) < 5:
                continue
            os.kill(pid, signal.SIGSTOP)  # so that it cannot end between our look and the kill
            epochs = int(last.read_text()[6:12])
            if place.result() is None and holder.exists() and epochs < 40:
                os.kill(pid, signal.SIGKILL)
                by_pid[pid].wait(timeout=60)
                metrics = Run(place.folder, place.trial.recipe).metrics()
                return by_pid[pid], place, metrics[:epochs]
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.002)
    pytest.fail("no worker came so far as five epochs")


def test_workers_share_the_trials(space: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "allneg", "search", str(space), "--out", str(out)]
    done = subprocess.run([*command, "--workers", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "6 trials: 6 finished" in done.stdout
    assert len(re.findall(r"^\d of 6: .* finished, valid MRR", done.stderr, re.MULTILINE)) == 6
    assert "Traceback" not in done.stderr
    assert (out / "search.svg").exists()


def started(*scripts: str) -> list[Worker]:
    return [Worker.start(["sh", "-c", script], {}) for script in scripts]


def test_a_killed_worker_is_no_trouble_while_there_are_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    oversee(started("kill -9 $$", "true"), lambda: 0, lambda: 0)
    assert capsys.readouterr().err == "1 of 2 workers were killed (SIGKILL)\n"
    with pytest.raises(ResourceError, match="3 trials are left and no worker") as caught:
        oversee(started("kill -9 $$", "kill -9 $$"), lambda: 0, lambda: 3)
    assert caught.value.exit_code == 6


def test_what_all_workers_complain_of_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    script = "echo out of memory >&2; exit 6"
    with pytest.raises(click.exceptions.Exit) as caught:
        oversee(started(script, script), lambda: 0, lambda: 1)
    assert caught.value.exit_code == 6
    assert capsys.readouterr().err == "out of memory\n"


def test_a_signal_is_passed_on_once_to_every_worker(capsys: pytest.CaptureFixture[str]) -> None:
    workers = started("exec sleep 60", "exec sleep 60")
    with pytest.raises(Interrupted, match="the same command goes on") as caught:
        oversee(workers, lambda: signal.SIGTERM, lambda: 2)
    assert caught.value.exit_code == 143
    assert [each.process.returncode for each in workers] == [-signal.SIGTERM] * 2
    assert capsys.readouterr().err == ""


def test_a_worker_whose_parent_has_gone_saves_and_ends() -> None:
    assert with_parent(lambda: 0, os.getppid())() == 0
    assert with_parent(lambda: 0, os.getppid() + 1)() == signal.SIGTERM
    assert with_parent(lambda: signal.SIGINT, os.getppid() + 1)() == signal.SIGINT
