"""Functions that tests run in several processes; the first argument is the world they run in."""

from __future__ import annotations

import errno
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

import processes
from allneg.errors import Diverged, Interrupted, ResourceError
from allneg.evaluation import PROTOCOLS
from allneg.evaluation.ranks import rank
from allneg.graph import Graph
from allneg.recipe import Recipe
from allneg.runs import Run, disk
from allneg.runs.checkpoint import State
from allneg.scoring.distributed import World
from allneg.training import execution
from allneg.training.loop import run_training
from allneg.training.trainer import Trainer

PLAIN = (
    "model.dim=3", "model.scale=0.7", "training.batch_size=30", "hardware.device=cpu",
    "optimizer.name=sgd", "optimizer.learning_rate=1", "regularizer.weight=0.1",
)  # fmt: skip


def steps(world: World, graph: Graph, settings: tuple[str, ...]) -> tuple[Any, ...]:
    """The losses of some steps, this process's first row, its entity rows, and the relations."""
    recipe = Recipe().with_settings([*PLAIN, *settings])
    trainer = Trainer(recipe, graph, torch.device("cpu"), world)
    order, generator = Generator().manual_seed(1), Generator()
    values = []
    for i, queries in enumerate(trainer.batches(torch.from_numpy(graph.train), order)[1]):
        values.append(float(trainer.step(queries, generator.manual_seed(i))))
        if i == 1:
            break
    rows = trainer.tables.weights()
    return values, trainer.tables.shard.start, rows["entities"], rows["relations"]


def steps_by_attention(world: World, graph: Graph, settings: tuple[str, ...]) -> tuple[Any, ...]:
    """As `steps`, without scores in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "attention_pays", lambda *_: True)
        return steps(world, graph, settings)


def ranked(world: World, graph: Graph, settings: tuple[str, ...], rules: str) -> tuple[Any, ...]:
    """How many candidates score higher than each answer of test, and how many the same."""
    recipe = Recipe().with_settings([*PLAIN, *settings])
    trainer = Trainer(recipe, graph, torch.device("cpu"), world)
    if "model.scale=0.9" in settings:
        # Whole numbers: every score is exact, and many are equal.
        for rows in trainer.tables.parameters():
            rows.data = rows.data.round().clamp(-1, 1)
    found = rank(trainer.model, trainer.tables, graph, "test", PROTOCOLS[rules], block=2000)
    return found.better, found.equal, found.n_candidates


def diverged(world: World, graph: Graph) -> str:
    """The error when one row, which one process holds, is not finite."""
    trainer = Trainer(Recipe().with_settings(PLAIN), graph, torch.device("cpu"), world)
    if trainer.tables.shard.stop == graph.n_entities:
        trainer.tables.entities.data[-1] = torch.nan
    with pytest.raises(Diverged) as caught:
        rank(trainer.model, trainer.tables, graph, "test", PROTOCOLS["allneg"], block=2000)
    return str(caught.value)


def trained(world: World, folder: Path, epochs: int | None, stop_after: int | None) -> str:
    """Train a run; stop it after so many epochs, or by a signal of one process after some steps."""
    run = Run.open(folder, writes=world.is_rank_zero)
    if epochs is not None:
        queries, size = 2 * len(run.graph.train), run.recipe.training.batch_size
        stop_after = epochs * math.ceil(queries / size)
    is_stopped = stop_after is not None and world.rank == world.size - 1
    stopped_by = processes.stop_after(stop_after) if is_stopped else lambda: 0
    try:
        run_training(run, stopped_by=stopped_by, world=world)
    except Interrupted:
        return "done" if epochs is not None else "interrupted"
    return "done"


def save_to_full_disk(world: World, folder: Path, rank: int, operation: str) -> str:
    """The error of a save when the disk of one process is full at `operation`."""
    trainer = Trainer(Run.open(folder).recipe, Run.open(folder).graph, torch.device("cpu"), world)
    real = getattr(disk, operation)
    if world.rank == rank:
        setattr(disk, operation, full)
    try:
        with pytest.raises(ResourceError) as caught:
            Run.open(folder).save(trainer.checkpoint(State(epoch=99)), world)
    finally:
        setattr(disk, operation, real)
    return str(caught.value)


def full(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, "no space left")
