"""A power cut at any moment of a save leaves a complete run."""

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

Cut = Callable[..., Any]  # (action, folder, number of calls) -> the disk after the cut

ONE, TWO, THREE = (f"epoch-{epoch:06d}-step-00000000" for epoch in (1, 2, 3))


def made(epoch: int) -> Checkpoint:
    rows = {"entities": torch.full((3, 2), float(epoch)), "relations": torch.zeros(1, 2)}
    return Checkpoint(State(epoch=epoch), rows, {"entities.sum": rows["entities"] + 1})


def epoch_of(folder: Path) -> int:
    saved = load(folder)
    assert saved is not None
    assert saved.tables["entities"].eq(saved.state.epoch).all()
    return saved.state.epoch


@pytest.mark.battery(23)
def test_a_power_cut_during_a_save_leaves_the_old_or_the_new_checkpoint(
    tmp_path: Path, cut_disk: Cut
) -> None:
    seen, states = set(), set()
    for calls in itertools.count():
        folder = tmp_path / str(calls)
        save(folder, ONE, made(1))
        save(folder, TWO, made(2))
        disk = cut_disk(lambda folder=folder: save(folder, THREE, made(3)), folder, calls)
        if disk is None:
            break
        for left in disk.all_after_the_cut(tmp_path / f"left-{calls}", states):
            seen.add(epoch_of(left))
            save(left, THREE, made(3))
            assert epoch_of(left) == 3
    assert calls > 15
    assert len(states) > 30
    assert seen == {2, 3}


@pytest.mark.battery(23)
def test_a_power_cut_during_the_first_save_leaves_it_or_nothing(
    tmp_path: Path, cut_disk: Cut
) -> None:
    seen, states = set(), set()
    for calls in itertools.count():
        folder = tmp_path / str(calls)
        folder.mkdir()
        disk = cut_disk(lambda folder=folder: save(folder, ONE, made(1)), folder, calls)
        if disk is None:
            break
        for left in disk.all_after_the_cut(tmp_path / f"left-{calls}", states):
            seen.add(load(left) and epoch_of(left))
    assert calls > 15
    assert len(states) > 30
    assert seen == {None, 1}


@pytest.mark.battery(23)
def test_a_run_resumed_after_a_power_cut_ends_like_an_uninterrupted_one(
    tmp_path: Path, cut_disk: Cut, tiny_graph: Graph, quick: Callable[..., Recipe]
) -> None:
    recipe = quick("training.save_seconds=0", "training.epochs=2", "training.batch_size=20")
    straight = Run.create(tmp_path / "straight", recipe, tiny_graph)
    fit(straight)
    for calls in itertools.count(0, 7):
        run = Run.create(tmp_path / f"cut-{calls}", recipe, tiny_graph)
        disk = cut_disk(lambda run=run: fit(run), run.folder, calls)
        if disk is None:
            break
        left = tmp_path / f"left-{calls}"
        names, content = ("none", "half", "all", "newest"), ("nothing", "half", "zeros")
        disk.after_the_cut(left, names[calls % 4], content[calls % 3])
        resumed = Run.open(left)
        fit(resumed)
        assert resumed.tables().entities.equal(straight.tables().entities)
        assert [entry["loss"] for entry in resumed.metrics()] == [
            entry["loss"] for entry in straight.metrics()
        ]
    assert calls > 50


@pytest.mark.battery(23)
def test_a_power_cut_while_a_run_is_created_leaves_a_complete_run_or_none(
    tmp_path: Path, cut_disk: Cut, tiny_graph: Graph, quick: Callable[..., Recipe]
) -> None:
    opened, states = 0, set()
    for calls in itertools.count():
        folder = tmp_path / f"run-{calls}"
        folder.mkdir()
        disk = cut_disk(
            lambda folder=folder: Run.create(folder, quick(), tiny_graph), folder, calls
        )
        if disk is None:
            break
        for left in disk.all_after_the_cut(tmp_path / f"left-{calls}", states):
            try:
                run = Run.open(left)
            except RunError as error:
                assert "not a run" in str(error)  # noqa: PT017
                continue
            assert run.graph.vocabulary == tiny_graph.vocabulary
            assert run.recipe == quick()
            opened += 1
    assert calls > 15
    assert len(states) > 30
    assert opened > 0
