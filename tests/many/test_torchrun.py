"""The command under torchrun: killed, restarted, told to stop, and taken up by one process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training import fit

SETTINGS = (
    "model.dim=4", "training.batch_size=8", "training.epochs=400", "training.save_seconds=0.3",
    "evaluation.every=400", "optimizer.name=sgd", "optimizer.learning_rate=0.1",
    "hardware.device=cpu", "hardware.threads=1",
)  # fmt: skip
SECONDS = 100


def options(*settings: str) -> list[str]:
    return [text for setting in settings for text in ("--set", setting)]


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """The processes that a process started, oldest first."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def torchrun(log: Path, data: Path, out: Path, *flags: str) -> subprocess.Popen[bytes]:
    with log.open("a") as said:
        return subprocess.Popen(
            [
                sys.executable, "-m", "torch.distributed.run", "--max-restarts", "1", *flags,
                "-m", "allneg", "train", data, "--out", out, "--mesh", "rows=2",
                *options(*SETTINGS),
            ],
            stdout=said, stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


def goes_on_without(launcher: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
    """Kill the last process that a launcher started, once the run was saved, and wait for more."""
    last = folder / "checkpoints" / "last"
    until(last.exists, log.read_text())
    first = children(launcher.pid)
    os.kill(first[-1], signal.SIGKILL)
    until(lambda: "does not answer any more" in log.read_text(), log.read_text())
    saved = last.read_text()
    until(lambda: last.read_text() != saved, log.read_text())
    assert not set(children(launcher.pid)) & set(first)


def test_a_killed_process_is_started_anew_and_the_run_goes_on_to_the_same_end(
    tiny_folder: Path, tmp_path: Path
) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    launcher = torchrun(log, tiny_folder, folder, "--nproc-per-node", "2", "--standalone")
    try:
        goes_on_without(launcher, folder, log)
        launcher.send_signal(signal.SIGTERM)
        launcher.wait(SECONDS)
    finally:
        launcher.kill()
    assert "stopped and saved" in log.read_text()
    run = Run.open(folder)
    assert run.status["state"] == "interrupted"
    assert 0 < run.status["epoch"] < 400

    done = subprocess.run(
        [sys.executable, "-m", "allneg", "resume", folder, "--json"],
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    straight = Run.create(tmp_path / "straight", Recipe().with_settings(SETTINGS), run.graph)
    fit(straight)
    assert [entry["epoch"] for entry in run.metrics()] == list(range(1, 401))
    losses = [[entry["loss"] for entry in each.metrics()] for each in (run, straight)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert json.loads(done.stdout)["mrr"] == straight.report.mrr


def test_processes_of_two_machines_are_started_anew(tiny_folder: Path, tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = ("--master-addr", "127.0.0.1", "--master-port", str(free.getsockname()[1]))
    with ExitStack() as stack:
        machines = []
        for number in "01":
            flags = ("--nproc-per-node", "1", "--nnodes", "2", "--node-rank", number, *place)
            machines.append(torchrun(log, tiny_folder, folder, *flags))
            stack.callback(machines[-1].kill)
        goes_on_without(machines[1], folder, log)
        for each in machines:
            each.send_signal(signal.SIGTERM)
        for each in machines:
            each.wait(SECONDS)
    assert "exists already" not in log.read_text()
    assert Run.open(folder).status["state"] == "interrupted"
