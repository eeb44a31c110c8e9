"""What tests hand to the processes: functions whose first argument is the world they run in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator

from allneg.graph import Graph
from allneg.graph.questions import batches
from allneg.recipe import Recipe
from allneg.scoring.shard import World
from allneg.training.learner import Learner

PLAIN = (
    "model.dim=3", "model.scale=0.7", "training.batch_size=30", "hardware.device=cpu",
    "optimizer.name=sgd", "optimizer.learning_rate=1", "penalty.weight=0.1",
)  # fmt: skip


def steps(world: World, graph: Graph, settings: tuple[str, ...]) -> tuple[Any, ...]:
    """The losses of an epoch's steps, then this process's first row, its rows, the relations'."""
    recipe = Recipe().with_settings([*PLAIN, *settings])
    learner = Learner(recipe, graph, torch.device("cpu"), world)
    order, chance = Generator().manual_seed(1), Generator()
    values = []
    for i, questions in enumerate(
        batches(torch.from_numpy(graph.train), recipe.training.batch_size, order)
    ):
        values.append(float(learner.step(questions, chance.manual_seed(i))))
        if i == 3:
            break
    rows = learner.tables.weights()
    return values, learner.tables.shard.start, rows["entities"], rows["relations"]
