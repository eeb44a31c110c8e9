"""The candidates an answer is compared with: every entity, or a sample of negatives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from allneg.graph.queries import KnownAnswers, Queries
from allneg.models import Model
from allneg.recipe import Loss, Recipe
from allneg.scoring.distributed import Shard
from allneg.scoring.tables import Tables

_NOT_HERE = -1  # the column of an answer that another process holds


@dataclass(frozen=True)
class Answers:
    """The answers of grouped queries; their scores are subtracted from the loss."""

    query: Tensor  # int64 (A,)
    column: Tensor  # int64 (A,)
    weight: Tensor  # float32 (A,): of the score; 0 for padding, which may name any pair


@dataclass(frozen=True)
class Candidates:
    """Rows to compare with a batch of queries, and what the columns of their scores mean."""

    rows: Tensor  # (n, W): a table, or (B, K, W): each query's own rows
    target: Tensor  # int64 (B,): the column of each query's answer; (A,) of all, before `grouped`
    count: int  # columns; rows beyond are padding
    masked: tuple[Tensor, Tensor] | None = None  # (query, column) pairs that are not negatives
    offset: Tensor | None = None  # (columns,) or (B, columns): added to negatives' scores
    ids: Tensor | None = None  # the entities of the rows; None where they are the whole table
    answers: Answers | None = None  # of grouped queries, which have no `target`

    def columns(self, start: int) -> tuple[Tensor, int]:
        """`target` and `count`, seen from a block that begins at a column."""
        return (self.target - start if start else self.target), self.count - start


@dataclass(frozen=True)
class NegativeSample:
    """The negatives and dropout masks of a batch, drawn once for all of its parts.

    The shapes depend only on the recipe, so a captured step can be replayed with another sample.
    """

    shared: Tensor | None = None  # int64 (C,): entities drawn for the batch, each once
    answers: Tensor | None = None  # int64 (B,): of the whole batch, also candidates
    per_query: Tensor | None = None  # int64 (B, K): candidates of each query, the answer first
    entity_mask: Tensor | None = None  # (B, W): factors of dropout
    relation_mask: Tensor | None = None  # (B, V)

    def __getitem__(self, part: slice) -> NegativeSample:
        """The sample of some of the queries."""
        names = ("per_query", "entity_mask", "relation_mask")
        tensors = {name: getattr(self, name) for name in names}
        return replace(self, **{k: v[part] for k, v in tensors.items() if v is not None})


def draw_sample(
    recipe: Recipe, model: Model, queries: Queries, n: int, generator: Generator
) -> NegativeSample:
    """The dropout masks of a batch, and its negatives among `n` entities where they are drawn."""
    settings, count, device = recipe.model, recipe.loss.n_negatives or 0, generator.device
    sample, batch = NegativeSample(), len(queries.entity)
    if settings.entity_dropout:
        mask = _dropout(batch, model.entity_width, settings.entity_dropout, generator)
        sample = replace(sample, entity_mask=mask)
    if settings.relation_dropout:
        mask = _dropout(batch, model.relation_width, settings.relation_dropout, generator)
        sample = replace(sample, relation_mask=mask)
    if recipe.loss.negatives == "shared":
        order = torch.randperm(n, generator=generator, device=device)
        return replace(sample, shared=order[:count], answers=queries.answer)
    if recipe.loss.negatives == "per_query":
        drawn = torch.randint(n, (batch, count), generator=generator, device=device)
        return replace(sample, per_query=torch.cat([queries.answer.unsqueeze(1), drawn], dim=1))
    return sample


def _dropout(n: int, width: int, rate: float, generator: Generator) -> Tensor:
    uniform = torch.rand(n, width, generator=generator, device=generator.device)
    return (uniform >= rate).float() / (1 - rate)


def find_candidates(
    tables: Tables, queries: Queries, sample: NegativeSample, known: KnownAnswers | None, loss: Loss
) -> Candidates:
    """The rows held here that queries are compared with.

    With `known`, a query's other known answers are not negatives.
    """
    if sample.per_query is not None:
        return _per_query(tables, queries, sample.per_query, known)
    masked = known.pairs(queries) if known is not None else None
    if sample.shared is not None:
        return _shared(tables, queries, sample, masked, loss)
    rows, shard = tables.entities.detach(), tables.shard
    if tables.is_sharded:
        return _of_shard(rows, shard, queries, masked)
    return Candidates(rows, queries.answer, shard.total, masked)


def _of_shard(
    rows: Tensor, shard: Shard, queries: Queries, masked: tuple[Tensor, Tensor] | None
) -> Candidates:
    masked = None if masked is None else shard.held_pairs(masked)
    return Candidates(rows, shard.columns(queries.answer), len(shard), masked)


def _per_query(
    tables: Tables, queries: Queries, ids: Tensor, known: KnownAnswers | None
) -> Candidates:
    hidden = ids == queries.answer.unsqueeze(1)
    if known is not None:
        hidden |= known.contains(queries, ids)
    if tables.is_sharded:
        hidden |= ~tables.shard.holds(ids)
    target = _target(tables.shard, queries.answer, torch.zeros_like(queries.answer))
    offset = torch.zeros(ids.shape, device=ids.device).masked_fill_(hidden, -torch.inf)
    return Candidates(tables.held_rows(ids), target, ids.shape[1], offset=offset, ids=ids)


def _shared(
    tables: Tables,
    queries: Queries,
    sample: NegativeSample,
    masked: tuple[Tensor, Tensor] | None,
    loss: Loss,
) -> Candidates:
    shard = tables.shard
    assert sample.shared is not None
    assert sample.answers is not None
    ids = torch.cat([sample.shared, sample.answers])
    column = torch.arange(len(ids), device=ids.device)
    none = column.new_full((shard.total,), len(ids))
    first = none.scatter_reduce(0, ids, column, "amin")  # (N,): the column of each entity
    is_negative = first[ids] == column  # an entity drawn twice counts once
    if loss.correction:
        offset = _correction(ids, sample.answers, is_negative, shard.total)
    else:
        offset = torch.zeros(len(ids), device=ids.device)
    if not loss.in_batch_negatives:
        is_negative &= column < len(sample.shared)
    offset = offset.masked_fill(~is_negative, -torch.inf)
    if shard.is_part:
        here = shard.holds(ids)
        ids, offset = ids[here], offset[here]
        if masked is not None:
            held = shard.holds(masked[1])
            masked = masked[0][held], masked[1][held]
        # The columns that are held here, numbered again.
        first = torch.cat([here.cumsum(0) - 1, none[:1]])[first]
    if masked is not None:
        columns = first[masked[1]]
        found = columns < len(column)
        masked = masked[0][found], columns[found]
    target = _target(shard, queries.answer, first[queries.answer])
    count = len(ids)
    if not count:
        # No candidate is held here: use one row of padding instead.
        ids, offset = ids.new_full((1,), shard.start), offset.new_zeros(1)
    return Candidates(tables.held_rows(ids), target, count, masked, offset, ids)


def _correction(ids: Tensor, answers: Tensor, is_negative: Tensor, n: int) -> Tensor:
    """log of how many entities each candidate represents, so that Σ exp estimates the whole sum.

    The batch's answers are always included and count once; drawn entities represent all others.
    """
    answered = torch.zeros(n, dtype=torch.bool, device=ids.device).index_fill(0, answers, True)
    is_answer = answered[ids]
    drawn = (is_negative & ~is_answer).sum().clamp(min=1)
    return torch.where(is_answer, 0.0, ((n - answered.sum()) / drawn).log())


def _target(shard: Shard, answer: Tensor, column: Tensor) -> Tensor:
    """`column` of the answers that are held here."""
    return torch.where(shard.holds(answer), column, _NOT_HERE) if shard.is_part else column
