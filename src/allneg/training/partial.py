"""Training of some rows; all others stay as they are, bit by bit."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from allneg.graph.graph import Graph
from allneg.graph.queries import SIDES, KnownAnswers, Queries, batches
from allneg.kernels import dot
from allneg.kernels.dot import DotOfSome
from allneg.models import Model
from allneg.recipe import Recipe
from allneg.runs import make_model
from allneg.runs.checkpoint import Checkpoint, State
from allneg.runs.parents import Parent
from allneg.scoring.contrast import contrast, scan
from allneg.scoring.distributed import World
from allneg.scoring.negatives import Candidates, NegativeSample
from allneg.scoring.tables import MULTIPLE, Tables, mixed_seed
from allneg.training.features import FeatureTrainer, split_features
from allneg.training.trainer import Trainer

# On a GPU and on a CPU, so many operations with other facts take about a second, or less.
_OPERATIONS = {True: 1e13, False: 2e10}
# Of the time for facts of trained rows. With a quarter, MRRs of new entities were up to .003 lower.
_SHARE = 0.5
_NUMBERS = 1 << 26  # in memory, for the other facts of a step
_MEASURED = 1 << 16  # other facts whose distances are computed
AT_ONCE = 1 << 12  # queries whose rows are in memory
_FEW = 20  # queries with the mean distance of all, which are added to those of each relation
_LEAST = 1e-4  # of mean distances: smaller ones count as this, or a fact could count without limit


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
        # The facts with a trained row, or their distinct queries, by index.
        facts = parent.facts(graph)
        self._own = torch.from_numpy(facts).to(device)
        if recipe.loss.grouped:
            assert self.known is not None
            sizes = graph.n_entities, graph.n_relations
            some = KnownAnswers.of([graph.train[facts]], *sizes, device)
            self._own = torch.searchsorted(self.known.keys, some.keys)
        is_placed = parent.touch == "new" and self.model.is_distance
        self._weighs_facts = is_placed and not recipe.loss.grouped
        self._share: Tensor | None = None  # of each own fact; from the first batch on
        self._most_others = max(1, _NUMBERS // (self._n_trained + 6 * tables.entities.shape[1]))
        self._inherited: Mapping[str, Tensor] = {}
        plan, loss = self.plan, recipe.loss
        varies = plan.splits_batch or plan.draws_sample or loss.mask_known or loss.distillation > 0
        stored = not (plan.host_table or plan.by_attention or world.size > 1)
        self._splits = stored and len(facts) > 0 and not (varies or loss.grouped)
        self._split: list[tuple[Queries, Tensor]] | None = None  # see `_split_queries`
        self._states: Tensor | None = None  # of the step's fixed queries
        if self._splits:
            self._contrast_all, self.contrast = self.contrast, self._contrast_split
            if device.type == "cpu" and self.kernel is dot and plan.block is None:
                # Other rows do not need the product that gives their gradients.
                self._contrast_all = partial(contrast, DotOfSome(self._rows), loss=self.loss)

    @staticmethod
    def _others(own: Tensor, n: int, count: int, generator: Generator) -> tuple[Tensor, float]:
        """At most `count` random indices below `n` that are not `own`, and what each counts."""
        drawn = torch.arange(n, device=own.device)
        if count < n:
            drawn = torch.randint(n, (count,), generator=generator, device=own.device).unique()
        others = drawn[~torch.isin(drawn, own)]
        return others, (n - len(own)) / max(1, len(others))

    def batches(self, triples: Tensor, generator: Generator) -> tuple[int, Iterator[Queries]]:
        """As in `Trainer`, of the facts of trained rows and of a sample of all others.

        In the others, trained entities are negatives only. Each stands for several, so that the
        loss is that of all facts, and no row gets high scores where it does not belong.
        """
        if self._share is None:
            self._share = self._shares(triples)
        if self._splits:
            return self._split_batches(triples, generator, self._share)
        size, own, n = self.recipe.training.batch_size, self._own, len(triples)
        if self.recipe.loss.grouped:
            assert self.known is not None
            n = len(self.known.keys)
        others, factor = self._others(own, n, max(size, len(own)), generator)
        items = torch.cat([own, others])
        weights = torch.cat([self._share, self._share.new_full((len(others),), factor)])
        if self.recipe.loss.grouped:
            assert self.known is not None
            most, padded = self.recipe.loss.max_answers, self.plan.is_captured
            return self.known.batches(size, generator, most, items, weights, padded)
        if self.weights is not None:
            weights *= self.weights[items]
        return math.ceil(2 * len(items) / size), batches(triples[items], size, generator, weights)

    def _shares(self, triples: Tensor) -> Tensor:
        """What each fact of a trained row counts, or each of their distinct queries."""
        if not self._weighs_facts:
            return torch.ones(len(self._own), device=triples.device)
        is_own = torch.zeros(len(triples), dtype=torch.bool, device=triples.device)
        is_own[self._own] = True
        return shares(self.model, self.tables, triples, is_own)

    def _split_batches(
        self, triples: Tensor, generator: Generator, share: Tensor
    ) -> tuple[int, Iterator[Queries]]:
        """Batches with equal numbers of each kind of queries, except for the last ones.

        There are as many as if half of each batch were queries of facts of trained rows.
        """
        if self._split is None:
            self._split = self._split_queries(triples, share)
        n_moving, n_fixed, _ = (len(queries) for queries, _ in self._split)
        n_batches = math.ceil(2 * (n_moving + n_fixed) / self.recipe.training.batch_size)
        n_batches = math.ceil(n_moving / math.ceil(n_moving / n_batches))
        sizes = [math.ceil(len(queries) / n_batches) for queries, _ in self._split]
        sizes[2] = min(sizes[2], self._most_others)
        self.captured_size = sum(sizes)
        parts = []
        for (queries, states), size in zip(self._split, sizes, strict=True):
            order = torch.randperm(len(queries), generator=generator, device=triples.device)
            order = order[: size * n_batches]
            some = queries[order]
            assert some.weight is not None
            factor = len(queries) / max(1, len(order))
            parts.append((replace(some, weight=some.weight * factor), states[order]))

        def made() -> Iterator[Queries]:
            for i in range(n_batches):
                cut = [slice(i * size, (i + 1) * size) for size in sizes]
                some = [queries[part] for (queries, _), part in zip(parts, cut, strict=True)]
                states = [of[part] for (_, of), part in zip(parts[1:], cut[1:], strict=True)]
                yield SplitQueries(**vars(joined(*some)), states=torch.cat(states))

        return n_batches, made()

    @torch.no_grad()
    def _split_queries(self, triples: Tensor, share: Tensor) -> list[tuple[Queries, Tensor]]:
        """Moving queries, fixed ones with a trained row as answer, and those of other facts.

        Each with the states of its queries, which the moving ones do not have: (n, 1 + k).
        """
        entities, relations = self._trained
        seed = mixed_seed(self.recipe.training.seed, 5)
        generator = Generator(triples.device).manual_seed(seed)
        count = self._n_others() if self._n_trained else 0  # they train nothing else
        others, factor = self._others(self._own, len(triples), count, generator)
        own = self._queries(triples, self._own, share)
        rest = self._queries(
            triples, others, torch.full(others.shape, factor, device=others.device)
        )
        is_moving = entities[own.entity] | relations[own.relation]
        moving, fixed = own[is_moving], own[~is_moving]
        nothing = torch.zeros(len(moving), 0, device=triples.device)
        of_fixed, of_rest = self._scan(joined(fixed, rest)).split([len(fixed), len(rest)])
        return [(moving, nothing), (fixed, of_fixed), (rest, of_rest)]

    def _n_others(self) -> int:
        """How many other facts to compare: they take half as long as the facts of trained rows, or
        a second.
        """
        n, width = self._column.shape[0], self.tables.entities.shape[1]
        # A query is compared in three products per epoch, and a fixed one with all rows once.
        epochs = self.recipe.training.epochs
        own = 2 * len(self._own) * 3 * epochs * n
        operations = max(_SHARE * own, _OPERATIONS[self.plan.device.type != "cpu"] / width)
        count = operations / (2 * (n + 3 * epochs * self._n_trained))
        return max(self.recipe.training.batch_size, int(count))

    def _queries(self, triples: Tensor, items: Tensor, weight: Tensor) -> Queries:
        """Both queries of some triples, with what each counts."""
        if self.weights is not None:
            weight = weight * self.weights[items]
        both = [Queries.of(triples[items], side) for side in SIDES]
        return joined(*(replace(one, weight=weight) for one in both))

    def _scan(self, fixed: Queries) -> Tensor:
        """The states of fixed queries and rows that are not trained: (n, 1 + k)."""
        entities, _ = self._trained
        rows = self.tables.entities.detach()[: len(entities)][~entities]
        column = torch.where(entities, -1, (~entities).cumsum(0) - 1)
        states = []
        for start in range(0, max(1, len(fixed)), self.plan.queries):
            some = fixed[start : start + self.plan.queries]
            query = self._query(self.tables.gather(some), some, NegativeSample())
            candidates = Candidates(rows, column[some.answer], len(rows))
            states.append(scan(self.kernel, query, candidates, self.loss, self.plan.block).T)
        return torch.cat(states)

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


def shares(model: Model, tables: Tables, triples: Tensor, is_own: Tensor) -> Tensor:
    """What each fact of some rows counts where the rows of a distance model follow from facts.

    `is_own` (m,) marks these facts among the `triples` (m, 3).

    A fact and its mirror image, as symmetric relations have them, imply the same point. Each counts
    half, or neighbours with one of both facts, whose other one may be missing, would count less.

    The closer the other facts of a relation fit, the more exactly its facts imply a point, and
    the more they count: by 1 / √(mean distance). The root makes this weaker, because rows fit the
    facts that they were trained on closer than new ones.
    """
    facts = triples[is_own]
    share: Tensor = _distances(model, tables, triples, ~is_own, facts[:, 1]).rsqrt_()
    return share.div_(share.mean()).div_(mirror_images(facts, tables.shard.total))


def mirror_images(facts: Tensor, n_entities: int) -> Tensor:
    """How many facts (n, 3) are the same as each but for the order of the entities: (n,)."""
    head, relation, tail = facts.unbind(1)
    pair = torch.minimum(head, tail) * n_entities + torch.maximum(head, tail)
    # `unique` of numbers is many times faster than that of rows. Numbered pairs avoid an overflow.
    pair = pair.unique(return_inverse=True)[1]
    key = relation * len(facts) + pair
    _, index, count = key.unique(return_inverse=True, return_counts=True)
    times: Tensor = count[index]
    return times


@torch.no_grad()
def _distances(
    model: Model, tables: Tables, triples: Tensor, is_other: Tensor, relation: Tensor
) -> Tensor:
    """The mean distance in the other facts (m, 3) of each of some relations (n,): (n,).

    Each relation has a few more facts with the mean of all, as a mean of few says little.
    """
    is_asked = torch.zeros(tables.n_relations, dtype=torch.bool, device=tables.device)
    is_asked[relation] = True
    others = (is_other & is_asked[triples[:, 1]]).nonzero().squeeze(1)
    facts = triples[others[:: len(others) // _MEASURED + 1]]  # no copy of all triples is made
    total = torch.zeros(tables.n_relations, device=tables.device)
    for side in SIDES:
        for some in facts.split(AT_ONCE):
            queries = Queries.of(some, side)
            rows = tables.gather(queries)
            point = model.query(rows.entity, rows.relation, queries.side, tables.reciprocal)
            distance = -model.kernel.scores(point, rows.answer.unsqueeze(1)).squeeze(1)
            if model.bias:
                distance += point[:, -1] + rows.answer[:, -1]
            total.index_add_(0, queries.relation, distance)
    count = 2 * torch.bincount(facts[:, 1], minlength=len(total))
    mean = total.sum() / count.sum().clamp(min=1)
    return ((total + _FEW * mean) / (count + _FEW)).clamp_(min=_LEAST)[relation]


def joined(*parts: Queries) -> Queries:
    """The queries of several parts, one part after the other."""
    names = [name for name, column in vars(parts[0]).items() if column is not None]
    return Queries(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


def bytes_of_others(recipe: Recipe, graph: Graph) -> int:
    """The memory that the other facts of a step take, at most."""
    per_query = graph.n_entities + 6 * make_model(recipe).entity_width
    return 4 * min(_NUMBERS, 2 * len(graph.train) * per_query)


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
