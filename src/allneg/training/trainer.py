"""The training step: gather, contrast, backward, scatter, update."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from allneg.errors import RecipeError
from allneg.graph.graph import Graph
from allneg.graph.queries import KnownAnswers, Queries, batches
from allneg.kernels import dot
from allneg.kernels.fused import scatter_add
from allneg.recipe import Loss as LossSettings
from allneg.recipe import Mesh, Recipe
from allneg.runs import make_model
from allneg.runs.checkpoint import Checkpoint, State
from allneg.scoring import Shard, Tables, attention
from allneg.scoring.contrast import contrast
from allneg.scoring.distillation import divergences, pruned
from allneg.scoring.distributed import NO_GROUP, SINGLE_PROCESS, World
from allneg.scoring.groups import grouped
from allneg.scoring.losses import Softmax, loss_class
from allneg.scoring.negatives import Candidates, NegativeSample, draw_sample, find_candidates
from allneg.scoring.regularizers import Share, make_regularizer
from allneg.scoring.tables import BatchRows, padding_multiple
from allneg.training.capture import CapturedStep
from allneg.training.execution import ExecutionPlan
from allneg.training.optimizers import (
    make_optimizer,
    optimizer_tensors,
    rate_at,
    restore_optimizer,
    set_rate,
)


class Trainer:
    """Takes training steps, and can be saved in a checkpoint and restored."""

    def __init__(
        self,
        recipe: Recipe,
        graph: Graph,
        device: torch.device,
        world: World = SINGLE_PROCESS,
        is_restored: bool = False,
    ) -> None:
        self.recipe, self.world = recipe, world
        self.model = make_model(recipe)
        shard = Shard.of(graph.n_entities, world)
        mesh = Mesh(world.rows.size, world.batch.size)
        self.plan = ExecutionPlan.decide(recipe, self.model, len(shard), device, mesh)
        reciprocal, seed = recipe.model.reciprocal, recipe.training.seed
        given = None if is_restored else seed  # random rows would be replaced by `restore`
        tables = Tables.create(self.model, graph.n_relations, shard, reciprocal, given)
        tables = tables.padded(padding_multiple(len(shard), device))
        self.tables = tables.on_host(device) if self.plan.host_table else tables.to(device)
        if self.plan.keeps_bf16_copy:
            self.tables.keep_bf16_copy()
        self.kernel = self.model.kernel.bind(device, self.plan.bf16)
        self.loss = loss_class(recipe.loss)(recipe.loss, self.plan.bf16_operands)
        # Queries, candidates, `weight` and `bf16_copy` to losses and both gradients.
        self.contrast: Callable[..., tuple[Tensor, Tensor, Tensor]] = attention.contrast
        if not self.plan.by_attention:
            self.contrast = partial(contrast, self.kernel, block=self.plan.block)
        batch_group = world.batch if self.plan.overlaps_sums else NO_GROUP
        self.contrast = partial(
            self.contrast, loss=self.loss, rows_group=world.rows, batch_group=batch_group
        )
        self.regularizer = make_regularizer(recipe.regularizer, reciprocal)
        self.optimizer = make_optimizer(recipe.optimizer, self.tables)
        self.known: KnownAnswers | None = None  # answers known in train
        if self.plan.needs_known:
            self.known = KnownAnswers.of_splits(graph, ["train"], device)
        self.weights: Tensor | None = None  # (n,): of the triples of train
        if graph.weights is not None:
            check_weights(recipe, graph)
            self.weights = torch.from_numpy(graph.weights).to(device)
        self.class_weights: Tensor | None = None  # (N,)
        if recipe.loss.class_weights:
            self.class_weights = class_weights(graph).to(device)
        batch = min(recipe.training.batch_size, 2 * len(graph.train))
        self._uniform_weight = torch.full((batch,), 1 / batch, device=device)
        self.best: dict[str, Tensor] = {}  # the tables with the best validation MRR so far
        self.distils = False  # in this epoch
        self._captured = CapturedStep() if self.plan.is_captured else None
        self.captured_size = recipe.training.batch_size

    def batches(self, triples: Tensor, generator: Generator) -> tuple[int, Iterator[Queries]]:
        """The number of batches of an epoch, and the batches in random order."""
        size, loss = self.recipe.training.batch_size, self.recipe.loss
        if loss.grouped:
            assert self.known is not None
            padded = self.plan.is_captured
            return self.known.batches(size, generator, loss.max_answers, padded=padded)
        n_batches = math.ceil(2 * len(triples) / size)
        return n_batches, batches(triples, size, generator, self.weights)

    def step(self, queries: Queries, generator: Generator) -> Tensor:
        """Learn from a batch; returns its loss plus penalty, which a later step may overwrite.

        On a CPU, a batch whose loss is not finite changes nothing. A GPU would have to wait for it.
        """
        sample = NegativeSample()
        if self.plan.draws_sample:
            n = self.tables.shard.total
            sample = draw_sample(self.recipe, self.model, queries, n, generator)
        if self.plan.keeps_bf16_copy:
            self.tables.refresh_bf16_copy()
        # The last batch of an epoch may be smaller than the one that was captured.
        if self._captured and len(queries.entity) == self.captured_size:
            return self._captured(self._step, queries, sample)
        return self._step(queries, sample)

    def _step(self, queries: Queries, sample: NegativeSample) -> Tensor:
        total = self.gradients(queries, sample)
        if total.device.type != "cpu" or total.isfinite():
            self.optimizer.step()
        return total

    def gradients(self, queries: Queries, sample: NegativeSample) -> Tensor:
        """Set the gradients of all tables; returns the batch's mean loss plus penalty."""
        self.optimizer.zero_grad()
        n, weight = len(queries.entity), self._uniform_weight
        if n != len(weight):
            weight = torch.full((n,), 1 / n, device=weight.device)
        share: Share = 1 / n
        if queries.weight is not None:
            weight = share = queries.weight / queries.weight.sum()
        if self.plan.weighs_queries:
            weight = self.query_weights(queries)
        if self.plan.splits_batch:
            return self._gradients_in_parts(queries, sample, weight, share)
        total = self._add_gradients(self.tables, queries, sample, weight, share)
        return total + self._distil(queries, sample, weight, share) if self.distils else total

    def _gradients_in_parts(
        self, queries: Queries, sample: NegativeSample, weight: Tensor, share: Share
    ) -> Tensor:
        """As `gradients`, for this process's queries, and some of them at a time."""
        n, size = len(queries.entity), self.plan.queries
        start, stop = self.world.batch.part(n)
        if start == stop:
            # With fewer queries than processes, this process joins all sums with weight 0.
            start, stop, weight, share = 0, 1, torch.zeros_like(weight), share * 0.0
        values = []
        for first in range(start, stop, size):
            part = slice(first, min(first + size, stop))
            answers = queries.answers_of(part)
            some = queries[part], sample[part], weight[answers]
            of_part = share[answers] if isinstance(share, Tensor) else share
            values.append(self._add_gradients(self.tables, *some, of_part))
        total = torch.stack(values).sum()
        if self.world.batch.size > 1:
            self._sum_gradients(total)
        return total

    def _add_gradients(
        self, tables: Tables, queries: Queries, sample: NegativeSample, weight: Tensor, share: Share
    ) -> Tensor:
        """Add the gradients of some queries to those of the tables; returns loss plus penalty.

        `weight` is that of each answer's loss, and `share` that of its penalty.
        """
        settings, rows = self.recipe.loss, tables.gather(queries)
        query = self._query(rows, queries, sample)
        known = self.known if settings.mask_known else None
        candidates = find_candidates(tables, queries, sample, known, settings)
        bf16_copy, of_query = tables.bf16_copy if candidates.ids is None else None, weight
        if settings.grouped:
            assert self.known is not None
            candidates, of_query = grouped(candidates, queries, self.loss, self.known, weight)
        given = query.detach(), candidates
        losses, d_query, d_candidates = self.contrast(*given, weight=of_query, bf16_copy=bf16_copy)
        if self.model.bias and self.loss.shift_invariant:
            # The bias of the query shifts all its scores, so its gradient is 0. AdaGrad would turn
            # the rounding error of this 0 into a full step.
            d_query[:, -1] = 0.0
        losses = of_query * losses
        if settings.relation_weight:
            losses += queries.sums(weight * self._relation_loss(tables, rows, queries, weight))
        (query * d_query).sum().backward()  # `query.backward(d_query)` would import SymPy
        if self.regularizer is not None:
            self.regularizer.backward(self.model, rows, queries, share, losses)
        self._scatter(tables, rows, queries, candidates.ids, d_candidates)
        return losses.sum()

    def _distil(
        self, queries: Queries, sample: NegativeSample, weight: Tensor, share: Share
    ) -> Tensor:
        """Add the gradients of self-distillation; returns the losses of student and divergence."""
        student, n = pruned(self.tables), len(self.tables.shard)
        both, factor = (self.tables, student), self.recipe.loss.distillation * weight
        total = self._add_gradients(student, queries, sample, weight, share)
        rows = [tables.gather(queries) for tables in both]
        vectors = [self._query(some, queries, sample) for some in rows]
        entities = [tables.entities.detach()[:n] for tables in both]
        values, d_vectors, d_entities = divergences(
            self.kernel, [vector.detach() for vector in vectors], entities, factor, self.plan.block
        )
        for i, tables in enumerate(both):
            vectors[i].backward(d_vectors[i])
            padding = len(tables.entities) - n
            d_table = F.pad(d_entities[i], (0, 0, 0, padding))
            self._scatter(tables, rows[i], queries, None, d_table)
        for table, kept in zip(self.tables.parameters(), student.parameters(), strict=True):
            assert kept.grad is not None
            _accumulate(table, kept.grad.masked_fill(kept == 0, 0.0))
        return total + (factor * values).sum()

    def _query(self, rows: BatchRows, queries: Queries, sample: NegativeSample) -> Tensor:
        """The query vectors of a batch, with dropout: (B, W)."""
        entity, relation = rows.entity, rows.relation
        if sample.entity_mask is not None:
            entity = entity * sample.entity_mask
        if sample.relation_mask is not None:
            relation = relation * sample.relation_mask
        if rows.shared is not None:
            relation = self.model.combine(relation, rows.shared)
        return self.model.query(entity, relation, queries.side, self.tables.reciprocal)

    def _relation_loss(
        self, tables: Tables, rows: BatchRows, queries: Queries, weight: Tensor
    ) -> Tensor:
        """The loss of (head, ?, tail) against all relations, with its gradients: like `weight`."""
        factor = self.recipe.loss.relation_weight
        head, tail, ids, side = rows.entity, rows.answer, rows.relation_ids, queries.side
        if queries.group is not None:
            head, ids, side = (x.index_select(0, queries.group) for x in (head, ids, side))
        if not tables.reciprocal:  # a reciprocal relation also leads from the entity to the answer
            tails = side.unsqueeze(1) == 0
            head, tail = torch.where(tails, head, tail), torch.where(tails, tail, head)
        query = self.model.relation_query(head, tail)
        table = tables.relations.detach().to(query.device)
        candidates = Candidates(table, ids, len(table))
        loss = Softmax(LossSettings())
        losses, d_query, d_relations = contrast(
            dot, query.detach(), candidates, loss, factor * weight
        )
        (query * d_query).sum().backward()
        _accumulate(tables.relations, d_relations)
        return factor * losses

    def _scatter(
        self, tables: Tables, rows: BatchRows, queries: Queries, candidates: Tensor | None,
        d_candidates: Tensor,
    ) -> None:  # fmt: skip
        """Add the gradients of gathered rows and candidates to those of the tables.

        `candidates` are the entities of their rows; None for the whole table.
        """
        if candidates is None:
            _accumulate(tables.entities, d_candidates)
        else:
            tables.scatter(candidates, d_candidates)
        for ids, grad in ((queries.entity, rows.entity.grad), (queries.answer, rows.answer.grad)):
            if grad is not None:
                if self.plan.overlaps_sums:
                    ids, grad = self._gather_batch(ids, grad)
                tables.scatter(ids, grad)
        if rows.relation.grad is not None:
            gradient, home = torch.zeros_like(tables.relations), tables.relations.device
            scatter_add(gradient, rows.relation_ids.to(home), rows.relation.grad.to(home))
            _accumulate(tables.relations, gradient)
        if rows.shared is not None and rows.shared.grad is not None:
            assert tables.shared is not None
            _accumulate(tables.shared, rows.shared.grad)

    def _gather_batch(self, ids: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """The row gradients of all processes that hold the same rows, padded with zeros."""
        batch = self.world.batch
        more = self.plan.queries - len(ids)
        ids = batch.all_gather(F.pad(ids, (0, more)))
        return ids.flatten(), batch.all_gather(F.pad(grad, (0, 0, 0, more))).flatten(0, 1)

    def _sum_gradients(self, total: Tensor) -> None:
        """Sum what is not summed yet over the processes with other queries."""
        done = self.tables.entities if self.plan.overlaps_sums else None
        grads = [p.grad for p in self.tables.parameters() if p is not done and p.grad is not None]
        for pending in [self.world.batch.start_sum(tensor) for tensor in (*grads, total)]:
            pending.wait()

    def query_weights(self, queries: Queries) -> Tensor:
        """Each answer's share of the batch's loss, where they differ: (A,), with sum 1."""
        queries = queries.single()
        if self.class_weights is not None:
            weight = self.class_weights.index_select(0, queries.answer)
        elif self.recipe.loss.grouped and self.loss.once_per_query:
            assert self.known is not None
            weight = self.known.counts(queries).float().reciprocal()
        else:
            assert self.known is not None
            # Counts start at 4 for a pair that occurs once, as in RotatE's code.
            count = self.known.counts(queries) + self.known.counts(queries.other_side()) + 6
            weight = count.float().rsqrt()
        if queries.weight is not None:
            weight = weight * queries.weight
        return weight / weight.sum()

    def begin_epoch(self, state: State) -> float:
        """Prepare the epoch after `state`; returns its learning rate."""
        loss = self.recipe.loss
        self.distils = loss.distillation > 0 and state.epoch >= loss.distillation_start
        self.align()
        return self.set_rate(state)

    def set_rate(self, state: State) -> float:
        """Set and return the learning rate of the epoch after `state`."""
        rate = rate_at(self.recipe.optimizer, state, self.recipe.training.epochs)
        set_rate(self.optimizer, rate)
        return rate

    def align(self) -> None:
        """Make the parameters that all processes hold bit-identical.

        Each process computes their gradients, and GPUs may sum in different orders.
        """
        if self.tables.device.type != "cpu":
            for name, parameter in self.tables.named_parameters():
                if name != "entities":
                    self.world.rows.broadcast(parameter.detach())
                    for tensor in self.optimizer.state.get(parameter, {}).values():
                        if isinstance(tensor, Tensor) and tensor.dim():
                            self.world.rows.broadcast(tensor)

    @torch.no_grad()
    def update_average(self, epoch: int) -> None:
        """Add the tables after an epoch to their weighted mean, if `training.average` is set.

        An epoch counts `training.average` times the one after it. The mean is a part of the
        optimizer's state, as in PyTorch's ASGD, so it is saved, restored and split with it.
        """
        decay = self.recipe.training.average
        if not decay:
            return
        total = epoch if decay == 1 else (1 - decay**epoch) / (1 - decay)  # of all counts
        for parameter in self.tables.parameters():
            state = self.optimizer.state[parameter]
            if epoch == 1:
                state["average"] = torch.zeros_like(parameter, requires_grad=False)
            state["average"].lerp_(parameter, 1 / total)

    def average(self) -> Tables | None:
        """The mean of the tables, if `training.average` is set."""
        if not self.recipe.training.average:
            return None
        tables, states = self.tables.named_parameters(), self.optimizer.state
        return self.tables.replaced({name: states[table]["average"] for name, table in tables})

    def keep_best(self, tables: Tables) -> None:
        """Remember these tables as the best so far."""
        self.best = {name: tensor.clone() for name, tensor in tables.weights().items()}

    def return_to_best(self) -> None:
        """Restore the tables with the best validation MRR, if there are any."""
        if self.best:
            self.tables.load(self.best)

    def checkpoint(self, state: State) -> Checkpoint:
        # Directly after the best ranking the tables are the best: no need to write them twice.
        is_best = state.step == 0 and state.best_epoch == state.epoch
        best = {} if is_best and not self.recipe.training.average else self.best
        tensors = optimizer_tensors(self.optimizer, self.tables)
        return Checkpoint(state, self.tables.weights(), tensors, best)

    def restore(self, saved: Checkpoint) -> None:
        self.tables.load(saved.tables)
        settings, averaged = self.recipe.optimizer, self.recipe.training.average > 0
        averaged = averaged and saved.state.epoch > 0  # the first epoch begins the average
        restore_optimizer(settings, self.optimizer, self.tables, saved.optimizer, averaged)
        if saved.state.best_epoch:
            best, device = saved.best or saved.tables, self.tables.entities.device
            self.best = {name: tensor.to(device) for name, tensor in best.items()}


def check_weights(recipe: Recipe, graph: Graph) -> None:
    """Raise a `RecipeError` if triples have weights and the recipe cannot use them."""
    if graph.weights is not None and recipe.loss.grouped:
        raise RecipeError(
            f"loss.grouped does not work with weights of triples, which {graph.name} has; "
            "add `--set loss.grouped=false`"
        )


def class_weights(graph: Graph) -> Tensor:
    """DURA's weights (Zhang et al., 2020) of queries by their answer: (N,).

    .1, plus .9 times an entity's frequency in train relative to that of the most frequent one.
    """
    ends, weights = torch.from_numpy(graph.train[:, [0, 2]]).flatten(), None
    if graph.weights is not None:
        weights = torch.from_numpy(graph.weights).repeat_interleave(2)
    count = torch.bincount(ends, weights, graph.n_entities).float()
    return 0.1 + 0.9 * count / count.max().clamp(min=1)


def _accumulate(parameter: torch.nn.Parameter, gradient: Tensor) -> None:
    gradient = gradient.to(parameter.device)
    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
