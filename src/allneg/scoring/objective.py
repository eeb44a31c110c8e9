"""Queries → one number to minimise, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from allneg.graph.graph import Graph
from allneg.graph.known import KnownAnswers
from allneg.graph.queries import Queries
from allneg.kernels import dot
from allneg.models import Model
from allneg.recipe import Loss, Regularizer
from allneg.scoring.candidates import Drawn, compared
from allneg.scoring.loss import LOSSES
from allneg.scoring.penalty import penalties, row_size
from allneg.scoring.scores import query_of
from allneg.scoring.shard import NO_GROUP, Group
from allneg.scoring.streamed import Narrow, Rivals, losses
from allneg.scoring.tables import Looked, Tables


@dataclass(frozen=True)
class Objective:
    """The loss and the penalty of a recipe, over the answers known in train."""

    model: Model
    loss: Loss
    regularizer: Regularizer
    known: KnownAnswers | None  # of train; None where the loss does not need them
    entity_dropout: float = 0.0
    relation_dropout: float = 0.0
    narrow: bool = False  # matrix products of bfloat16 operands
    weights: Tensor | None = None  # (N,): of queries, by their answer

    def value(self, tables: Tables, queries: Queries, generator: Generator) -> Tensor:
        """The batch's mean loss and mean penalty: one number."""
        drawn = self.draw(tables, queries, generator)
        return next(self.parts(tables, queries, len(queries), drawn))

    def parts(self, tables: Tables, queries: Queries, size: int, drawn: Drawn) -> Iterator[Tensor]:
        """Numbers whose sum is `value`, each from `size` queries, to bound the memory."""
        share = self.shares(queries)
        spans = _spans(tables.shard.batch, len(queries), size)
        widest = None
        if self.sums_on_the_way(tables, len(queries), size):
            widest = max(1, tables.shard.batch.widest(len(queries)))
        coming = tables.fetch(queries.part(spans[0]))
        for i, some in enumerate(spans):
            asked = queries.part(some)
            fetched, coming = coming, None
            if i + 1 < len(spans):
                # The next part's rows are on their way while this part is compared.
                coming = tables.fetch(queries.part(spans[i + 1]))
            looked = tables.look(asked, fetched, widest, row_size(self.model, self.regularizer))
            each = self.losses(tables, asked, looked, drawn.part(some), widest is not None)
            if self.loss.relation_weight:
                more = self.relation_losses(tables, asked, looked)
                each = each + self.loss.relation_weight * more
            each = share[some] * each
            if self.regularizer.name != "none":
                cost = penalties(self.model, looked, self.regularizer)
                each = each.add(cost, alpha=1 / len(queries))
            value = each.sum()
            yield value if _takes_part(tables.shard.batch, len(queries)) else 0.0 * value

    def sums_on_the_way(self, tables: Tables, n_questions: int, size: int) -> bool:
        """Are the entities' gradients of a batch summed over its processes while blocks of rows are
        compared? Else that is left to do when every part has its gradients laid down.
        """
        batch = tables.shard.batch
        whole = batch.widest(n_questions) <= size
        return batch.size > 1 and whole and self.loss.negatives == "all"

    def losses(
        self, tables: Tables, asked: Queries, looked: Looked, drawn: Drawn, sums: bool = False
    ) -> Tensor:
        """The loss of each query: (B,); `sums` as `sums_on_the_way` says."""
        entity, relation = looked.entity, looked.relation
        if drawn.keep_entity is not None:
            entity = entity * drawn.keep_entity
        if drawn.keep_relation is not None:
            relation = relation * drawn.keep_relation
        query = query_of(self.model, entity, relation, asked.side, tables.reciprocal)
        if self.model.bias and self.loss.name == "softmax":
            # A question's own bias moves all its scores alike. Its gradient would be the rounding
            # of a zero, of which AdaGrad makes a whole step.
            query = torch.cat([query[:, :-1], query[:, -1:].detach()], dim=1)
        known = self.known if self.loss.mask_known else None
        rows, rivals = compared(tables, asked, drawn, known, self.loss)
        rivals = replace(
            rivals, elsewhere=tables.shard.rows, batch=tables.shard.batch if sums else NO_GROUP
        )
        narrow = self.narrow and self.model.kernel == "dot" and rows.dim() == 2
        rounded = tables.rounded if rows is tables.entities else None
        compare = Narrow(rounded) if narrow else self.model.compare
        loss = LOSSES[self.loss.name](self.loss, narrow)
        return losses(compare, query, rows, loss, rivals, self.loss.block)

    def relation_losses(self, tables: Tables, asked: Queries, looked: Looked) -> Tensor:
        """The loss of asking for each question's relation among all relation rows: (B,)."""
        head, tail, target = looked.entity, looked.answer, asked.relation
        if tables.reciprocal:
            # A head question's relation leads from its entity to its answer, too.
            target = target + tables.n_relations * asked.side
        else:
            tails = asked.side.unsqueeze(1) == 0
            head, tail = torch.where(tails, head, tail), torch.where(tails, tail, head)
        query = self.model.relation_query(head, tail)
        rivals = Rivals(target, len(tables.relations))
        return losses(dot, query, tables.relations, LOSSES["softmax"](Loss()), rivals, Loss.block)

    def draw(self, tables: Tables, queries: Queries, generator: Generator) -> Drawn:
        """Chance's part in this batch."""
        b, n, count = len(queries), tables.shard.total, self.loss.n_negatives or 0
        drawn = Drawn(
            keep_entity=_keep(b, self.model.entity_width, self.entity_dropout, generator),
            keep_relation=_keep(b, self.model.relation_width, self.relation_dropout, generator),
        )
        if self.loss.negatives == "shared":
            order = torch.randperm(n, generator=generator, device=generator.device)
            return replace(drawn, shared=order[:count], answers=queries.answer)
        if self.loss.negatives == "per_query":
            own = torch.randint(n, (b, count), generator=generator, device=generator.device)
            return replace(drawn, own=torch.cat([queries.answer.unsqueeze(1), own], dim=1))
        return drawn

    def shares(self, queries: Queries) -> Tensor:
        """Each question's share of the batch's loss: (B,), summing to 1."""
        if self.weights is not None:
            weight = self.weights.index_select(0, queries.answer)
            return weight / weight.sum()
        if not self.loss.subsampling:
            return torch.full_like(queries.entity, 1 / len(queries), dtype=torch.float32)
        # Counts start at 4 for a pair seen once, as in RotatE's code.
        often = self._known.counts(queries) + self._known.counts(queries.turned()) + 6
        weight = often.float().rsqrt()
        return weight / weight.sum()

    @property
    def _known(self) -> KnownAnswers:
        assert self.known is not None, "this loss looks up train's answers"
        return self.known


def _spans(batch: Group, n_questions: int, size: int) -> list[slice]:
    """The parts of a batch that this process sees, of `size` queries at most."""
    start, stop = batch.part(n_questions)
    # Where there are fewer queries than processes, the first query is taken for nothing, so
    # that every process takes part in every sum.
    return [slice(i, min(i + size, stop)) for i in range(start, stop, size)] or [slice(0, 1)]


def _takes_part(batch: Group, n_questions: int) -> bool:
    start, stop = batch.part(n_questions)
    return stop > start


def answer_weights(graph: Graph) -> Tensor:
    """DURA's class weights (Zhang et al., 2020): .1, and .9 by how often an entity is in train.

    The most frequent one has 1: (N,).
    """
    ends = torch.from_numpy(graph.train[:, [0, 2]]).flatten()
    often = torch.bincount(ends, minlength=graph.n_entities).float()
    return 0.1 + 0.9 * often / often.max().clamp(min=1)


def _keep(b: int, width: int, dropout: float, generator: Generator) -> Tensor | None:
    if not dropout:
        return None
    chance = torch.rand(b, width, generator=generator, device=generator.device)
    return (chance >= dropout).float() / (1 - dropout)
