"""The command under torchrun: killed, restarted, stopped, and resumed by one process.

The slow test starts torchrun itself, whose five processes import torch for seconds. The other forks
torchrun's agent, which forks the command.
"""

from __future__ import annotations

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

from allneg.runs import Run
from allneg.training import fit
from processes import run_under_torchrun, start

ENDLESS = 1_000_000
SETTINGS = (
    "model.dim=4", "training.batch_size=8", f"training.epochs={ENDLESS}",
    "training.save_seconds=0.05", f"evaluation.every={ENDLESS}", "hardware.device=cpu",
    "hardware.threads=1",
)  # fmt: skip
SECONDS = 100


def options(*settings: str) -> list[str]:
    return [text for setting in settings for text in ("--set", setting)]


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """The processes that a process started, oldest first."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command(data: Path, out: Path) -> list[str]:
    return ["train", str(data), "--out", str(out), "--mesh", "rows=2", *options(*SETTINGS)]


def torchrun(log: Path, data: Path, out: Path, *flags: str) -> subprocess.Popen[bytes]:
    with log.open("a") as output:
        return subprocess.Popen(
            [
                sys.executable, "-m", "torch.distributed.run", "--max-restarts", "1", *flags,
                "-m", "allneg", *command(data, out),
            ],
            stdout=output, stderr=output, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


def kill_one_and_wait(launcher: int, folder: Path, log: Path) -> None:
    """Kill the last process of a launcher after the first save, and wait for the next save."""
    last = folder / "checkpoints" / "last"
    wait_for(last.exists, log.read_text())
    first = children(launcher)
    os.kill(first[-1], signal.SIGKILL)
    wait_for(lambda: "no longer responds" in log.read_text(), log.read_text())
    saved = last.read_text()
    wait_for(lambda: last.read_text() != saved, log.read_text())
    assert not set(children(launcher)) & set(first)


def test_a_killed_process_is_restarted_and_the_run_ends_as_an_uninterrupted_one(
    tiny_folder: Path, tmp_path: Path
) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    log.touch()
    launcher = start(run_under_torchrun, command(tiny_folder, folder), out=log, err=log)
    try:
        kill_one_and_wait(launcher.pid, folder, log)
        launcher.terminate()
        launcher.join(SECONDS)
    finally:
        launcher.kill()
    assert "stopped and saved" in log.read_text()
    run = Run.open(folder)
    assert run.status["state"] == "interrupted"
    epochs = run.status["epoch"] + 2
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace(f"epochs = {ENDLESS}", f"epochs = {epochs}"))

    report = fit(Run.open(folder))  # in one process
    recipe = run.recipe.with_settings(["hardware.mesh=", f"training.epochs={epochs}"])
    uninterrupted = Run.create(tmp_path / "uninterrupted", recipe, run.graph)
    fit(uninterrupted)
    assert [entry["epoch"] for entry in run.metrics()] == list(range(1, epochs + 1))
    losses = [[entry["loss"] for entry in one.metrics()] for one in (run, uninterrupted)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][-1] < losses[0][0]
    assert report.mrr == uninterrupted.report.mrr


@pytest.mark.slow
def test_processes_of_two_machines_are_restarted(tiny_folder: Path, tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = ("--master-addr", "127.0.0.1", "--master-port", str(free.getsockname()[1]))
    with ExitStack() as stack:
        machines = []
        for number in "01":
            flags = ("--nproc-per-node", "1", "--nnodes", "2", "--node-rank", number, *address)
            machines.append(torchrun(log, tiny_folder, folder, *flags))
            stack.callback(machines[-1].kill)
        kill_one_and_wait(machines[1].pid, folder, log)
        for machine in machines:
            machine.send_signal(signal.SIGTERM)
        for machine in machines:
            machine.wait(SECONDS)
    assert "already exists" not in log.read_text()
    assert Run.open(folder).status["state"] == "interrupted"
