"""Whom an answer is compared with: every entity, a batch's sample, or a question's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from allneg.graph.known import KnownAnswers
from allneg.graph.queries import Queries
from allneg.recipe import Loss
from allneg.scoring.shard import Shard
from allneg.scoring.streamed import Rivals
from allneg.scoring.tables import Tables

_NOWHERE = -1  # the column of an answer that another process holds


@dataclass(frozen=True)
class Drawn:
    """What chance decides for a batch, drawn once so that every part of the batch sees it.

    Its shapes depend on the recipe alone, so a step that was recorded can be played with others.
    """

    shared: Tensor | None = None  # int64 (C,): entities drawn for the batch, nobody twice
    answers: Tensor | None = None  # int64 (B,): the whole batch's, candidates beside those drawn
    own: Tensor | None = None  # int64 (B, C): candidates of each query, the answer first
    keep_entity: Tensor | None = None  # (B, W): dropout's factors
    keep_relation: Tensor | None = None  # (B, V)

    def part(self, some: slice) -> Drawn:
        by_question = ("own", "keep_entity", "keep_relation")
        cut = {name: getattr(self, name) for name in by_question}
        return replace(self, **{k: v[some] for k, v in cut.items() if v is not None})


def compared(
    tables: Tables, asked: Queries, drawn: Drawn, known: KnownAnswers | None, loss: Loss
) -> tuple[Tensor, Rivals]:
    """The rows held here that are compared, and what their scores mean.

    With `known`, a question's other known answers are no rivals.
    """
    if drawn.own is not None:
        return _own(tables, asked, drawn.own, known)
    pairs = known.pairs(asked) if known is not None else None
    if drawn.shared is not None:
        return _shared(tables, asked, drawn, pairs, loss)
    shard = tables.shard
    if shard.rows.size == 1:
        return tables.entities, Rivals(asked.answer, len(shard), pairs)
    if pairs is not None:
        here = shard.holds(pairs[1])
        pairs = pairs[0][here], pairs[1][here] - shard.start
    column = _column(shard, asked.answer, asked.answer - shard.start)
    return tables.entities, Rivals(column, len(shard), pairs)


def _own(
    tables: Tables, asked: Queries, own: Tensor, known: KnownAnswers | None
) -> tuple[Tensor, Rivals]:
    hidden = own == asked.answer.unsqueeze(1)
    if known is not None:
        hidden |= known.contains(asked, own)
    if tables.shard.rows.size > 1:
        hidden |= ~tables.shard.holds(own)
    first = _column(tables.shard, asked.answer, torch.zeros_like(asked.answer))
    offset = torch.zeros(own.shape, device=own.device).masked_fill_(hidden, -torch.inf)
    return tables.held_rows(own), Rivals(first, own.shape[1], offset=offset)


def _shared(
    tables: Tables,
    asked: Queries,
    drawn: Drawn,
    pairs: tuple[Tensor, Tensor] | None,
    loss: Loss,
) -> tuple[Tensor, Rivals]:
    shard = tables.shard
    assert drawn.shared is not None
    assert drawn.answers is not None
    shared = torch.cat([drawn.shared, drawn.answers])
    column = torch.arange(len(shared), device=shared.device)
    nowhere = column.new_full((shard.total,), len(shared))
    first = nowhere.scatter_reduce(0, shared, column, "amin")  # (N,): the column to look in
    rival = first[shared] == column  # or one who was drawn twice would count twice
    if loss.correction:
        offset = _correction(shared, drawn.answers, rival, shard.total)
    else:
        offset = torch.zeros(len(shared), device=shared.device)
    if not loss.in_batch_negatives:
        rival &= column < len(drawn.shared)
    offset = offset.masked_fill(~rival, -torch.inf)
    if shard.rows.size > 1:
        here = shard.holds(shared)
        shared, offset = shared[here], offset[here]
        if pairs is not None:
            held = shard.holds(pairs[1])
            pairs = pairs[0][held], pairs[1][held]
        # Columns of those held here, which are some of the columns before.
        first = torch.cat([here.cumsum(0) - 1, nowhere[:1]])[first]
    if pairs is not None:
        place = first[pairs[1]]
        there = place < len(column)
        pairs = pairs[0][there], place[there]
    target = _column(shard, asked.answer, first[asked.answer])
    count = len(shared)
    if not count:
        # No candidate is held here: a row that counts as padding stands in for one.
        shared, offset = shared.new_full((1,), shard.start), offset.new_zeros(1)
    return tables.held_rows(shared), Rivals(target, count, pairs, offset)


def _correction(shared: Tensor, answers: Tensor, rival: Tensor, n: int) -> Tensor:
    """log of how many entities each candidate stands for, so that Σ exp estimates the whole sum.

    The batch's answers are always there and stand for themselves; those drawn stand for all
    the others.
    """
    answered = torch.zeros(n, dtype=torch.bool, device=shared.device).index_fill(0, answers, True)
    is_answer = answered[shared]
    drawn = (rival & ~is_answer).sum().clamp(min=1)
    return torch.where(is_answer, 0.0, ((n - answered.sum()) / drawn).log())


def _column(shard: Shard, answer: Tensor, column: Tensor) -> Tensor:
    """`column` of the answers that are held here."""
    return column if shard.rows.size == 1 else torch.where(shard.holds(answer), column, _NOWHERE)
