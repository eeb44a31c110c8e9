"""Vectors of entities from elsewhere: as a start, or as features through a learned linear map."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.errors import DataError, counted
from allneg.graph.graph import Graph
from allneg.graph.queries import Queries
from allneg.graph.vectors import read_vectors
from allneg.recipe import Recipe
from allneg.runs.checkpoint import Checkpoint, State
from allneg.scoring import Shard, Tables
from allneg.scoring.negatives import NegativeSample
from allneg.training.optimizers import (
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    set_rate,
    zero_state,
)
from allneg.training.trainer import Trainer

PREFIX = "features."  # of tensors in a checkpoint's optimizer
_RIDGE = 0.01  # penalty of a fitted map, relative to the mean square of a vector's number


def with_vectors(
    start: Checkpoint, recipe: Recipe, graph: Graph, is_new: Tensor, tell: Callable[[str], None]
) -> Checkpoint:
    """The start of a run, with the vectors that its recipe names, for the new entities (N,).

    The rows of the others are those of an earlier run. If there are none, `model.start` begins
    with the principal components of its vectors; else with the map that gives these rows best.
    """
    before = start.optimizer.get(f"{PREFIX}map")
    begins = recipe.model.start if is_new.any() else None
    features = recipe.model.features if is_new.any() or before is None else None
    if begins is None and features is None:
        return start
    entities = start.tables["entities"].clone()
    if begins is not None:
        ids, vectors = _vectors(begins, graph, is_new, tell)
        wanted, is_old = is_new[ids], ~is_new[ids]
        if is_old.any():
            fitted = _fitted(vectors[is_old], entities[ids[is_old]])
            entities[ids[wanted]] = F.pad(vectors[wanted], (0, 1), value=1.0) @ fitted
        else:
            parts = _components(vectors, entities.shape[1]) * recipe.model.scale
            entities[ids, : parts.shape[1]] = parts
    optimizer = dict(start.optimizer)
    if features is not None:
        if before is None:  # the map is 0 at first, so known entities keep their rows
            is_new = torch.ones_like(is_new)
        ids, vectors = _vectors(features, graph, is_new, tell)
        vectors = F.normalize(vectors)
        shape = vectors.shape[1], entities.shape[1]
        if before is not None and before.shape != shape:
            raise DataError(
                f"{features}: vectors of {shape[0]} numbers; those of the run have {len(before)}"
            )
        rows = optimizer.get(f"{PREFIX}rows", torch.zeros(graph.n_entities, shape[0]))
        rows[ids[is_new[ids]]] = vectors[is_new[ids]]
        tables = _map_tables(torch.zeros(shape) if before is None else before)
        state = {f"{PREFIX}{k}": v for k, v in zero_state(recipe.optimizer, tables).items()}
        optimizer = {**state, f"{PREFIX}map": tables.entities.detach(), **optimizer}
        optimizer[f"{PREFIX}rows"] = rows
        entities[is_new] += rows[is_new] @ tables.entities.detach()
    return replace(start, tables={**start.tables, "entities": entities}, optimizer=optimizer)


def _vectors(
    path: str, graph: Graph, is_new: Tensor, tell: Callable[[str], None]
) -> tuple[Tensor, Tensor]:
    """The entities that a file has vectors of, and these: (n,), (n, d)."""
    names, vectors = read_vectors(Path(path))
    ids = graph.vocabulary.entity_ids
    rows = {ids[name]: row for row, name in enumerate(names) if name in ids}
    if not rows:
        raise DataError(f"{path}: has none of the entities of {graph.name}")
    found = torch.tensor(list(rows))
    what = "entity" if is_new.all() else "new entity"
    n_found, n_new = int(is_new[found].sum()), int(is_new.sum())
    tell(f"{path}: has vectors of {n_found:,} of {counted(n_new, what)}")
    return found, torch.from_numpy(vectors)[list(rows.values())]


def _fitted(vectors: Tensor, rows: Tensor) -> Tensor:
    """The linear map, with a constant, that gives rows best: (n, d), (n, W) -> (d + 1, W)."""
    given = F.pad(vectors, (0, 1), value=1.0)
    square = given.T @ given
    ridge = _RIDGE * square.diagonal().mean() * torch.eye(len(square))
    found: Tensor = torch.linalg.solve(square + ridge, given.T @ rows)
    return found


def _components(vectors: Tensor, most: int) -> Tensor:
    """Principal components with variance 1 on average: (n, d) -> (n, at most `most`)."""
    centred = vectors - vectors.mean(0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    parts: Tensor = centred @ axes[:most].T
    return parts / parts.std(correction=0).clamp(min=1e-12)


def _map_tables(linear: Tensor) -> Tables:
    """The map as a table, so that it has the optimizer of a table."""
    return Tables(linear, torch.zeros(1, 1, device=linear.device), Shard.whole(len(linear)), False)


class FeatureTrainer(Trainer):
    """Trains rows that are an own part plus a learned linear map of the entity's features.

    The table of entities holds the sum. Of the gradient g of the rows, the own parts get g and the
    map gets featuresᵀ g. Each has its own optimizer state.
    """

    def restore(self, saved: Checkpoint) -> None:
        own, mine = split_features(saved.optimizer)
        table, settings = self.tables.entities, self.recipe.optimizer
        rows = mine.pop("rows")
        self.features = F.pad(rows, (0, 0, 0, len(table) - len(rows))).to(table.device)
        self.map = _map_tables(mine.pop("map").to(table.device))
        self.map_optimizer = make_optimizer(settings, self.map)
        restore_optimizer(settings, self.map_optimizer, self.map, mine)
        self._captured = None  # a captured step would not change the map
        super().restore(replace(saved, optimizer=own))

    def checkpoint(self, state: State) -> Checkpoint:
        saved = super().checkpoint(state)
        mine = optimizer_tensors(self.map_optimizer, self.map)
        rows = self.features[: len(self.tables.shard)]
        mine |= {"rows": rows, "map": self.map.entities.detach()}
        named = {f"{PREFIX}{name}": tensor for name, tensor in mine.items()}
        return replace(saved, optimizer={**saved.optimizer, **named})

    def set_rate(self, state: State) -> float:
        rate = super().set_rate(state)
        set_rate(self.map_optimizer, rate)
        return rate

    @torch.no_grad()
    def _step(self, queries: Queries, sample: NegativeSample) -> Tensor:
        with torch.enable_grad():
            total = self.gradients(queries, sample)
        if total.device.type != "cpu" or total.isfinite():
            table, linear = self.tables.entities, self.map.entities
            assert table.grad is not None
            linear.grad = self.features.T @ table.grad
            self.map.relations.grad = torch.zeros_like(self.map.relations)
            before = linear.clone()
            self.optimizer.step()
            self.map_optimizer.step()
            table.add_(self.features @ (linear - before))
        return total


def split_features(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The optimizer's own tensors, and those of features, without their prefix."""
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}
    mine = {
        name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name not in own
    }
    return own, mine
