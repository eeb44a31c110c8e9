"""What learns: tables, their optimiser, and the objective they are fitted to."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from allneg.errors import RecipeError
from allneg.graph.graph import Graph
from allneg.graph.known import KnownAnswers
from allneg.graph.queries import Queries
from allneg.recipe import Recipe
from allneg.runs import make_model
from allneg.runs.checkpoint import Checkpoint, State
from allneg.scoring import Objective, Shard, Tables
from allneg.scoring.candidates import Drawn
from allneg.scoring.host import HostTables
from allneg.scoring.objective import answer_weights
from allneg.scoring.shard import SINGLE_PROCESS, World
from allneg.scoring.tables import MULTIPLE
from allneg.training.captured import Captured, is_captured
from allneg.training.optimizer import (
    make_optimizer,
    optimizer_tensors,
    rate_at,
    restore_optimizer,
    set_rate,
)


def needs_known(recipe: Recipe) -> bool:
    """Does the loss look up train's answers? To sort those of a large graph takes gigabytes."""
    return recipe.loss.mask_known or recipe.loss.subsampling


def keeps_rounded(recipe: Recipe, device: torch.device) -> bool:
    """Does AdaGrad's step round the entities too, for the products of the next one?"""
    hardware = recipe.hardware
    return (
        device.type == "cuda"
        and (hardware.precision, hardware.table) == ("bf16", "device")
        and recipe.optimizer.name == "adagrad"
        and recipe.loss.negatives == "all"
        and make_model(recipe).kernel == "dot"
    )


class Trainer:
    """Takes steps, and can be put away in a checkpoint and taken out again."""

    def __init__(
        self, recipe: Recipe, graph: Graph, device: torch.device, world: World = SINGLE_PROCESS
    ) -> None:
        self.recipe = recipe
        self.model = make_model(recipe)
        tables = Tables.start(
            self.model,
            graph.n_relations,
            Shard.of(graph.n_entities, world),
            recipe.model.reciprocal,
            recipe.training.seed,
        )
        tables = tables.padded(1 if device.type == "cpu" else MULTIPLE)
        on_host = recipe.hardware.table == "host"
        if on_host and world.size > 1:
            raise RecipeError(
                "hardware.table host is for one process; many hold their rows on their devices"
            )
        self.tables = HostTables(tables, device) if on_host else tables.to(device)
        if keeps_rounded(recipe, device):
            self.tables.keep_rounded()
        self.optimizer = make_optimizer(recipe.optimizer, self.tables)
        known = None
        if needs_known(recipe):
            known = KnownAnswers.of([graph.train], graph.n_entities, graph.n_relations, device)
        self.objective = Objective(
            self.model,
            recipe.loss,
            recipe.regularizer,
            known,
            recipe.model.entity_dropout,
            recipe.model.relation_dropout,
            narrow=recipe.hardware.precision == "bf16",
            weights=answer_weights(graph).to(device) if recipe.loss.class_weights else None,
        )
        self.best: dict[str, Tensor] = {}  # the tables when valid was best; empty before that
        self._captured: Captured | None = None

    def step(self, queries: Queries, chance: Generator) -> Tensor:
        """Learn from a batch; its loss and penalty, one number, which may be overwritten later.

        On a CPU a batch whose loss is not finite is not learnt from, so the tables stay good;
        a GPU is not waited for.
        """
        drawn = self.objective.draw(self.tables, queries, chance)
        self.tables.round_again()
        whole = len(queries) == self.recipe.training.batch_size  # the last of an epoch may not be
        # Sums over processes are not captured: a process that has gone would go unseen.
        lone = self.tables.shard.world.size == 1
        if whole and lone and is_captured(self.recipe, self.tables.device):
            self._captured = self._captured or Captured(queries, drawn)
            return self._captured.step(self._step, queries, drawn)
        return self._step(queries, drawn)

    def _step(self, queries: Queries, drawn: Drawn) -> Tensor:
        total = self._gradients(queries, drawn)
        if total.device.type != "cpu" or total.isfinite():
            self.optimizer.step()
        return total

    def _gradients(self, queries: Queries, drawn: Drawn) -> Tensor:
        """Lay the batch's gradients down at the tables."""
        self.optimizer.zero_grad()
        size = self.recipe.training.micro_batch or len(queries)
        total: Tensor | None = None
        for value in self.objective.parts(self.tables, queries, size, drawn):
            value.backward()
            total = value.detach() if total is None else total + value.detach()
        assert total is not None
        if self.tables.shard.batch.size > 1:
            summed = self.objective.sums_on_the_way(self.tables, len(queries), size)
            self.tables.sum_gradients(total, entities=not summed)
        return total

    def set_rate(self, state: State) -> float:
        """The learning rate of the epoch after `state`, which the next steps take."""
        rate = rate_at(self.recipe.optimizer, state)
        set_rate(self.optimizer, rate)
        return rate

    def align(self) -> None:
        """Make the relation rows the same on every process, to the last bit.

        Each process works out their gradient by itself, and a GPU may add in another order.
        """
        if self.tables.device.type != "cpu":
            rows, relations = self.tables.shard.rows, self.tables.relations
            rows.first(relations.detach())
            for each in self.optimizer.state.get(relations, {}).values():
                if isinstance(each, Tensor) and each.dim():
                    rows.first(each)

    def keep(self) -> None:
        """Remember the tables as the best so far."""
        self.best = {name: each.clone() for name, each in self.tables.weights().items()}

    def return_to_best(self) -> None:
        """Put the best tables in place, where valid chose some."""
        if self.best:
            self.tables.load(self.best)

    def checkpoint(self, state: State) -> Checkpoint:
        # Right after the best ranking the tables are the best: no need to write them twice.
        best = {} if state.step == 0 and state.best_epoch == state.epoch else self.best
        memory = optimizer_tensors(self.optimizer, self.tables)
        return Checkpoint(state, self.tables.weights(), memory, best)

    def restore(self, saved: Checkpoint) -> None:
        self.tables.load(saved.tables)
        restore_optimizer(self.optimizer, self.tables, saved.optimizer)
        if saved.state.best_epoch:
            best = saved.best or saved.tables
            place = self.tables.entities.device
            self.best = {name: each.to(place) for name, each in best.items()}
