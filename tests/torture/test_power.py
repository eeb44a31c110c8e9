"""The power goes at every moment of a save: what is left on the disk is a whole run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from allneg.errors import RunError
from allneg.graph import Graph
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import Checkpoint, State, load, save
from allneg.training import fit

Cut = Callable[..., Any]  # an action, a folder and a number of calls to the disk that was cut
NAMES = ("none", "half", "all", "newest")
CONTENT = ("nothing", "half", "zeros", "all")


def made(epoch: int) -> Checkpoint:
    rows = {"entities": torch.full((3, 2), float(epoch)), "relations": torch.zeros(1, 2)}
    return Checkpoint(State(epoch=epoch), rows, {"entities.sum": rows["entities"] + 1})


def epoch_of(folder: Path) -> int:
    saved = load(folder)
    assert saved is not None
    assert saved.tables["entities"].eq(saved.state.epoch).all()
    return saved.state.epoch


@pytest.mark.battery(23)
def test_a_power_cut_at_any_moment_of_a_save_leaves_the_old_or_the_new(
    tmp_path: Path, cut_disk: Cut
) -> None:
    seen = set()
    for calls in itertools.count():
        folder = tmp_path / str(calls)
        save(folder, "one", made(1))
        save(folder, "two", made(2))
        disk = cut_disk(lambda folder=folder: save(folder, "three", made(3)), folder, calls)
        if disk is None:
            break
        for names, content in itertools.product(NAMES, CONTENT):
            left = tmp_path / f"{calls}-{names}-{content}"
            disk.after_the_cut(left, names, content)
            seen.add(epoch_of(left))
            save(left, "three", made(3))
            assert epoch_of(left) == 3
    assert calls > 15
    assert seen == {2, 3}


@pytest.mark.battery(23)
def test_a_power_cut_at_any_moment_of_the_first_save_leaves_it_or_nothing(
    tmp_path: Path, cut_disk: Cut
) -> None:
    seen = set()
    for calls in itertools.count():
        folder = tmp_path / str(calls)
        folder.mkdir()
        disk = cut_disk(lambda folder=folder: save(folder, "one", made(1)), folder, calls)
        if disk is None:
            break
        for names, content in itertools.product(NAMES, CONTENT):
            left = tmp_path / f"{calls}-{names}-{content}"
            disk.after_the_cut(left, names, content)
            seen.add(load(left) and epoch_of(left))
    assert calls > 15
    assert seen == {None, 1}


@pytest.mark.battery(23)
def test_a_power_cut_in_training_loses_one_interval_at_most(
    tmp_path: Path, cut_disk: Cut, tiny_graph: Graph, quick: Callable[..., Recipe]
) -> None:
    """Resumed after any cut, the run ends as the one that was never cut, metrics included."""
    recipe = quick("training.save_seconds=0", "training.epochs=2", "training.batch_size=20")
    straight = Run.create(tmp_path / "straight", recipe, tiny_graph)
    fit(straight)
    for calls in itertools.count(0, 7):
        run = Run.create(tmp_path / f"cut-{calls}", recipe, tiny_graph)
        disk = cut_disk(lambda run=run: fit(run), run.folder, calls)
        if disk is None:
            break
        left = tmp_path / f"left-{calls}"
        disk.after_the_cut(left, NAMES[calls % 4], CONTENT[calls % 3])
        resumed = Run.open(left)
        fit(resumed)
        assert resumed.tables().entities.equal(straight.tables().entities)
        assert [entry["loss"] for entry in resumed.metrics()] == [
            entry["loss"] for entry in straight.metrics()
        ]
    assert calls > 50


@pytest.mark.battery(23)
def test_a_power_cut_while_a_run_is_made_leaves_a_whole_run_or_none(
    tmp_path: Path, cut_disk: Cut, tiny_graph: Graph, quick: Callable[..., Recipe]
) -> None:
    opened = 0
    for calls in itertools.count():
        folder = tmp_path / f"run-{calls}"
        folder.mkdir()
        disk = cut_disk(
            lambda folder=folder: Run.create(folder, quick(), tiny_graph), folder, calls
        )
        if disk is None:
            break
        for names, content in itertools.product(NAMES, CONTENT):
            left = tmp_path / f"{calls}-{names}-{content}"
            disk.after_the_cut(left, names, content)
            try:
                run = Run.open(left)
            except RunError as problem:
                assert "not a run" in str(problem)  # noqa: PT017
                continue
            assert run.graph.vocabulary == tiny_graph.vocabulary
            assert run.recipe == quick()
            opened += 1
    assert calls > 15
    assert opened > 0
