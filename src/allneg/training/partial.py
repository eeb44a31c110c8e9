"""Training of some rows; all others stay as they are, bit by bit."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from allneg.graph.graph import Graph
from allneg.graph.queries import KnownAnswers, Queries, batches
from allneg.recipe import Recipe
from allneg.runs.checkpoint import Checkpoint, State
from allneg.runs.parents import Parent
from allneg.scoring.distributed import World
from allneg.scoring.negatives import NegativeSample
from allneg.training.features import FeatureTrainer, split_features
from allneg.training.trainer import Trainer


class PartialTrainer(Trainer):
    """Trains the rows that `Parent.touched` names, on the facts with such a row.

    The gradient of every other row is 0, and so is its part of the optimizer's state: such a step
    changes nothing. Checkpoints have the state that the parent left for these rows.
    """

    def __init__(
        self, recipe: Recipe, graph: Graph, device: torch.device, world: World, parent: Parent
    ) -> None:
        super().__init__(recipe, graph, device, world)
        entities, relations = map(torch.from_numpy, parent.touched(graph))
        tables, shard = self.tables, self.tables.shard
        own = entities[shard.start : shard.stop]
        trained = {
            "entities": F.pad(own, (0, len(tables.entities) - len(own))),
            "relations": relations.repeat(2 if tables.reciprocal else 1),
        }
        self._frozen = {
            name: ~trained[name].to(table.device).unsqueeze(1)
            if name in trained
            else torch.ones(table.shape, dtype=torch.bool, device=table.device)
            for name, table in tables.named_parameters()
        }
        facts = parent.facts(graph)
        # Of an epoch: triples, or distinct queries.
        self._items = torch.from_numpy(facts).to(device)
        if recipe.loss.grouped:
            sizes = graph.n_entities, graph.n_relations
            some = KnownAnswers.of([graph.train[facts]], *sizes, device)
            assert self.known is not None
            self._items = torch.searchsorted(self.known.keys, some.keys)
        self._inherited: Mapping[str, Tensor] = {}

    def batches(self, triples: Tensor, generator: Generator) -> tuple[int, Iterator[Queries]]:
        """As in `Trainer`, of the facts with a trained row and as many others.

        In the others, new entities are negatives only, so that they do not get high scores where
        they do not belong.
        """
        size = self.recipe.training.batch_size
        groups = self.known if self.recipe.loss.grouped else None
        n = len(triples if groups is None else groups.keys)
        count = max(size, len(self._items))
        others = torch.randint(n, (count,), generator=generator, device=self._items.device)
        some = torch.cat([self._items, others]).unique()
        if groups is not None:
            return groups.batches(size, generator, some, padded=self.plan.is_captured)
        weights = None if self.weights is None else self.weights[some]
        return -(-2 * len(some) // size), batches(triples[some], size, generator, weights)

    def gradients(self, queries: Queries, sample: NegativeSample) -> Tensor:
        total = super().gradients(queries, sample)
        for name, table in self.tables.named_parameters():
            if table.grad is not None:
                table.grad.masked_fill_(self._frozen[name], 0.0)
        return total

    def checkpoint(self, state: State) -> Checkpoint:
        saved, frozen = super().checkpoint(state), self.tables.unpadded(self._frozen)
        optimizer = {**self._inherited, **saved.optimizer}
        for name, old in split_features(self._inherited)[0].items():
            if old.dim():
                is_old = frozen[name.rpartition(".")[0]]
                optimizer[name] = torch.where(is_old, old.to(is_old.device), optimizer[name])
        return replace(saved, optimizer=optimizer)

    def restore(self, saved: Checkpoint) -> None:
        frozen = self.tables.unpadded(self._frozen)
        self._inherited = saved.optimizer
        optimizer = {
            name: tensor.masked_fill(frozen[name.rpartition(".")[0]].cpu(), 0.0)
            if tensor.dim()
            else tensor
            for name, tensor in split_features(saved.optimizer)[0].items()
        }
        super().restore(replace(saved, optimizer=optimizer))


def make_trainer(
    recipe: Recipe,
    graph: Graph,
    device: torch.device,
    world: World,
    parents: tuple[Parent, ...],
) -> Trainer:
    """The trainer of a run: of all rows, or of those that an extension touches."""
    if parents and not np.concatenate(parents[-1].touched(graph)).all():
        return PartialTrainer(recipe, graph, device, world, parents[-1])
    kind = Trainer if recipe.model.features is None else FeatureTrainer
    return kind(recipe, graph, device, world)
