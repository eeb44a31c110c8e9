"""kill -9 at random moments of training and saving: `python tests/torture/kills.py 100 100`.

The parent, which has imported torch, forks one child per round, so a round is short. The child
records the start and end of each save in memory that it shares with the parent.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from allneg.graph import Graph, read_graph
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import Checkpoint, State
from allneg.runs.files import TEMPORARY
from allneg.scoring.distributed import SINGLE_PROCESS, World
from allneg.training import fit

ENDLESS = 1_000_000
SETTINGS = (
    "model.dim=16",
    "training.batch_size=100",
    f"training.epochs={ENDLESS}",
    "training.save_seconds=0.2",
    "evaluation.every=3",
    f"evaluation.patience={ENDLESS}",
    "hardware.device=cpu",
    "hardware.threads=1",
)
_MOMENT = struct.Struct("qqqq")  # epoch and step of the save begun last, and of the one ended


@dataclass(frozen=True)
class Tally:
    """The results of a loop of kills."""

    kills: int = 0
    in_saves: int = 0  # kills while a save was under way
    leftovers: int = 0  # temporary files and folders found and deleted
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.in_saves} of them within a save, {self.leftovers} leftovers"
            f" deleted, {len(self.failures)} failures"
        )


class _RecordedRun(Run):
    """A run that records its saves for the parent."""

    def save(self, saved: Checkpoint, world: World = SINGLE_PROCESS) -> None:
        moment = (saved.state.epoch, saved.state.step)
        _note(begun=moment)
        super().save(saved, world)
        _note(ended=moment)


_shared = mmap.mmap(-1, _MOMENT.size)


def _note(begun: tuple[int, int] | None = None, ended: tuple[int, int] | None = None) -> None:
    now = _MOMENT.unpack_from(_shared)
    _MOMENT.pack_into(_shared, 0, *(begun or now[:2]), *(ended or now[2:]))


def kill_in_training(kills: int, folder: Path, rng: random.Random) -> Tally:
    """Train, kill, resume, …; the run ends like one that was never killed."""
    graph = _graph()
    run = Run.create(folder / "killed", Recipe().with_settings(SETTINGS), graph)
    tally = _loop(kills, run, lambda: _train(run.folder), lambda: rng.uniform(0, 0.5))
    reached = run.last()
    recipe = run.folder / "recipe.toml"
    epochs = (reached.state.epoch if reached else 0) + 1
    recipe.write_text(recipe.read_text().replace(f"epochs = {ENDLESS}", f"epochs = {epochs}"))
    resumed = Run.open(run.folder)
    fit(resumed)
    straight = Run.create(folder / "straight", resumed.recipe, graph)
    fit(straight)
    if _learnt(resumed) != _learnt(straight):
        return replace(
            tally, failures=(*tally.failures, "differs from the run that was never killed")
        )
    return tally


def kill_in_saving(kills: int, folder: Path, rng: random.Random) -> Tally:
    """Save one state after another, and kill; the last one is always complete."""
    run = Run.create(folder / "saved", Recipe().with_settings(SETTINGS), _graph())
    return _loop(kills, run, lambda: _save(run.folder), lambda: rng.uniform(0, 0.06))


def _graph() -> Graph:
    graph = read_graph("countries")
    return replace(graph, train=graph.train[:1000], valid=graph.valid[:50], test=graph.test[:50])


def _train(folder: Path) -> None:
    fit(_RecordedRun.open(folder))


def _save(folder: Path) -> None:
    run = _RecordedRun.open(folder)
    with run.locked():
        saved = run.last()
        epoch = saved.state.epoch if saved else 0
        rows = {
            "entities": torch.zeros(run.graph.n_entities, 32),
            "relations": torch.zeros(2 * run.graph.n_relations, 32),
        }
        while True:
            epoch += 1
            filled = {name: tensor.fill_(epoch) for name, tensor in rows.items()}
            run.save(Checkpoint(State(epoch=epoch), filled, filled, filled))


def _loop(kills: int, run: Run, action: Callable[[], None], delay: Callable[[], float]) -> Tally:
    tally, failures = Tally(), []
    _note(begun=(0, 0), ended=(0, 0))
    for _ in range(kills):
        before = _MOMENT.unpack_from(_shared)
        _kill(action, delay())
        begun, ended = _MOMENT.unpack_from(_shared)[:2], _MOMENT.unpack_from(_shared)[2:]
        left = [*run.folder.glob(TEMPORARY + "*"), *run.folder.glob(f"checkpoints/{TEMPORARY}*")]
        tally = replace(
            tally,
            kills=tally.kills + 1,
            in_saves=tally.in_saves + (begun != ended),
            leftovers=tally.leftovers + len(left),
        )
        try:
            found = _check(Run.open(run.folder), begun, ended)
        except Exception as wrong:
            failures.append(f"{before}: {type(wrong).__name__}: {wrong}")
            break
        _note(begun=found, ended=found)  # a save may be complete before the child records it
    return replace(tally, failures=tuple(failures))


def _kill(action: Callable[[], None], delay: float) -> None:
    """Run `action` in a child, and kill it `delay` seconds after its first save begins."""
    started = _MOMENT.unpack_from(_shared)
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(1)  # an endless action that ends is a failure
    deadline = time.monotonic() + 60
    while _MOMENT.unpack_from(_shared) == started and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != -signal.SIGKILL:
        raise RuntimeError(f"the child ended by itself, with {code}")


def _check(run: Run, begun: tuple[int, ...], ended: tuple[int, ...]) -> tuple[int, int]:
    """The save on the disk; it must be the one begun last or the one ended last."""
    with run.locked():
        pass  # deletes leftovers
    left = [path for path in run.folder.rglob("*") if path.name.startswith(TEMPORARY)]
    assert not left, f"not deleted: {left}"
    saved = run.last()
    found = (saved.state.epoch, saved.state.step) if saved else (0, 0)
    assert found in (begun, ended), f"{found} is neither {begun} nor {ended}"
    if saved and saved.best:
        run.tables()
    epochs = [entry["epoch"] for entry in run.metrics()]
    assert epochs == list(range(1, len(epochs) + 1)), "metrics lack an epoch"
    return found


def _learnt(run: Run) -> tuple[object, ...]:
    tables = {name: tensor.numpy().tobytes() for name, tensor in run.tables().weights().items()}
    metrics = [{**entry, "seconds": None} for entry in run.metrics()]
    return tables, metrics, run.report.to_json()


def main() -> None:
    in_training, in_saving = map(int, sys.argv[1:3])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else time.time_ns()
    torch.set_num_threads(1)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        loops = {"training": (kill_in_training, in_training), "saving": (kill_in_saving, in_saving)}
        tallies = []
        for name, (loop, kills) in loops.items():
            start = time.monotonic()
            tallies.append(loop(kills, Path(folder), random.Random(seed)))
            print(f"{name}: {tallies[-1]} ({time.monotonic() - start:.0f} s)")
            for failure in tallies[-1].failures:
                print("  " + failure)
    sys.exit(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    main()
