"""Training of some rows; all others stay as they are, bit by bit."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from allneg.graph.graph import Graph
from allneg.graph.queries import SIDES, KnownAnswers, Queries, batches
from allneg.recipe import Recipe
from allneg.runs.checkpoint import Checkpoint, State
from allneg.runs.parents import Parent
from allneg.scoring.contrast import contrast, scan
from allneg.scoring.distributed import World
from allneg.scoring.negatives import Candidates, NegativeSample
from allneg.scoring.tables import MULTIPLE, mixed_seed
from allneg.training.features import FeatureTrainer, split_features
from allneg.training.trainer import Trainer


@dataclass(frozen=True)
class SplitQueries(Queries):
    """Moving queries, whose entity or relation is trained, then fixed ones, which do not change."""

    states: Tensor | None = None  # (n, 1 + k): of fixed queries and rows that are not trained


class PartialTrainer(Trainer):
    """Trains the rows that `Parent.touched` names, on the facts with such a row and on others.

    The gradient of every other row is 0, and so is its part of the optimizer's state: such a step
    changes nothing. Checkpoints have the state that the parent left for these rows.

    The scores of a fixed query change only at trained rows. So where the recipe allows it, fixed
    queries are compared with the other rows once, and with the trained rows in every step.
    """

    def __init__(
        self, recipe: Recipe, graph: Graph, device: torch.device, world: World, parent: Parent
    ) -> None:
        super().__init__(recipe, graph, device, world, is_restored=True)
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
        self._trained = entities.to(device), relations.to(device)  # (N,), (R,)
        self._n_trained = int(entities.sum())
        # The rows of trained entities; on a GPU, padded like a table.
        self._rows = entities.nonzero().squeeze(1).to(device)
        if device.type != "cpu":
            self._rows = F.pad(self._rows, (0, -len(self._rows) % MULTIPLE))
        n_before = self._trained[0].cumsum(0) - 1
        self._column = torch.where(self._trained[0], n_before, -1)  # (N,): where it is in `_rows`
        self._items = self._chosen(graph, parent.facts(graph), device)
        self._inherited: Mapping[str, Tensor] = {}
        plan, loss = self.plan, recipe.loss
        varies = plan.splits_batch or plan.draws_sample or loss.mask_known or loss.distillation > 0
        stored = not (plan.host_table or plan.by_attention or world.size > 1)
        self._splits = stored and not (varies or loss.grouped)
        self._split: tuple[Queries, Queries, Tensor] | None = None  # see `_split_queries`
        self._states: Tensor | None = None  # of the step's fixed queries
        if self._splits:
            self._contrast_all, self.contrast = self.contrast, self._contrast_split

    def _chosen(self, graph: Graph, facts: np.ndarray[Any, Any], device: torch.device) -> Tensor:
        """The triples of an epoch, or its distinct queries: those of `facts`, and as many others.

        In the others, new entities are negatives only, so that they do not get high scores where
        they do not belong.
        """
        recipe, n, chosen = self.recipe, len(graph.train), torch.from_numpy(facts).to(device)
        if recipe.loss.grouped:
            sizes = graph.n_entities, graph.n_relations
            some = KnownAnswers.of([graph.train[facts]], *sizes, device)
            assert self.known is not None
            n, chosen = len(self.known.keys), torch.searchsorted(self.known.keys, some.keys)
        count = max(recipe.training.batch_size, len(chosen))
        generator = Generator(device).manual_seed(mixed_seed(recipe.training.seed, 5))
        others = torch.randint(n, (count,), generator=generator, device=device)
        found: Tensor = torch.cat([chosen, others]).unique()
        return found

    def batches(self, triples: Tensor, generator: Generator) -> tuple[int, Iterator[Queries]]:
        """As in `Trainer`, of the chosen triples or queries."""
        size, items = self.recipe.training.batch_size, self._items
        if self._splits:
            return self._split_batches(triples, generator)
        if self.recipe.loss.grouped:
            assert self.known is not None
            return self.known.batches(size, generator, items, padded=self.plan.is_captured)
        weights = None if self.weights is None else self.weights[items]
        n_batches = math.ceil(2 * len(items) / size)
        return n_batches, batches(triples[items], size, generator, weights)

    def _split_batches(
        self, triples: Tensor, generator: Generator
    ) -> tuple[int, Iterator[Queries]]:
        """Batches with equal numbers of moving and of fixed queries, except for the last ones."""
        if self._split is None:
            self._split = self._split_queries(triples)
        moving, fixed, states = self._split
        least = math.ceil((len(moving) + len(fixed)) / self.recipe.training.batch_size)
        n_moving = math.ceil(len(moving) / least)
        n_batches = math.ceil(len(moving) / n_moving)
        n_fixed = math.ceil(len(fixed) / n_batches)
        self.captured_size = n_moving + n_fixed
        orders = [
            torch.randperm(len(part), generator=generator, device=triples.device)
            for part in (moving, fixed)
        ]
        moving, fixed, states = moving[orders[0]], fixed[orders[1]], states[orders[1]]

        def made() -> Iterator[Queries]:
            for i in range(n_batches):
                some, more = (slice(i * n, (i + 1) * n) for n in (n_moving, n_fixed))
                yield SplitQueries(**_joined(moving[some], fixed[more]), states=states[more])

        return n_batches, made()

    @torch.no_grad()
    def _split_queries(self, triples: Tensor) -> tuple[Queries, Queries, Tensor]:
        """Moving and fixed queries of the chosen triples, and states of the latter: (n, 1 + k)."""
        entities, relations = self._trained
        weight = None if self.weights is None else self.weights[self._items]
        both = [Queries.of(triples[self._items], side) for side in SIDES]
        queries = Queries(**_joined(*(replace(one, weight=weight) for one in both)))
        is_moving = entities[queries.entity] | relations[queries.relation]
        moving, fixed = queries[is_moving], queries[~is_moving]
        if not entities.any():
            fixed = fixed[:0]  # there is nothing that they could train
        rows = self.tables.entities.detach()[: len(entities)][~entities]
        column = torch.where(entities, -1, (~entities).cumsum(0) - 1)
        states = [torch.zeros(0, 1, device=triples.device)]
        for start in range(0, len(fixed), self.plan.queries):
            some = fixed[start : start + self.plan.queries]
            query = self._query(self.tables.gather(some), some, NegativeSample())
            candidates = Candidates(rows, column[some.answer], len(rows))
            states.append(scan(self.kernel, query, candidates, self.loss, self.plan.block).T)
        return moving, fixed, torch.cat(states[1:] or states)

    def _contrast_split(
        self, query: Tensor, candidates: Candidates, weight: Tensor, bf16_copy: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `contrast`; row gradients are right for trained rows, query gradients where moving."""
        assert self._states is not None
        n = len(query) - len(self._states)
        some = replace(candidates, target=candidates.target[:n])
        losses, d_query, d_rows = self._contrast_all(
            query[:n], some, weight=weight[:n], bf16_copy=bf16_copy
        )
        if n == len(query):
            return losses, d_query, d_rows
        column = self._column[candidates.target[n:]]
        trained = Candidates(candidates.rows[self._rows], column, self._n_trained)
        more, _, d_trained = contrast(
            self.kernel, query[n:], trained, self.loss, weight[n:], elsewhere=self._states.T
        )
        d_rows.index_add_(0, self._rows, d_trained)
        return torch.cat([losses, more]), F.pad(d_query, (0, 0, 0, len(more))), d_rows

    def gradients(self, queries: Queries, sample: NegativeSample) -> Tensor:
        self._states = getattr(queries, "states", None)
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


def _joined(*parts: Queries) -> dict[str, Tensor]:
    """The columns of several parts, one part after the other."""
    names = [name for name, column in vars(parts[0]).items() if column is not None]
    return {name: torch.cat([getattr(part, name) for part in parts]) for name in names}


def make_trainer(
    recipe: Recipe,
    graph: Graph,
    device: torch.device,
    world: World,
    parents: tuple[Parent, ...],
    is_restored: bool = False,
) -> Trainer:
    """The trainer of a run: of all rows, or of those that an extension touches.

    With `is_restored`, rows are 0 until `restore` is called.
    """
    if parents and not np.concatenate(parents[-1].touched(graph)).all():
        return PartialTrainer(recipe, graph, device, world, parents[-1])
    kind = Trainer if recipe.model.features is None else FeatureTrainer
    return kind(recipe, graph, device, world, is_restored)
