"""Whom an answer is compared with: every entity, a batch's sample, or a question's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from allneg.graph.known import KnownAnswers
from allneg.graph.questions import Questions
from allneg.scoring.shard import Shard
from allneg.scoring.streamed import Rivals
from allneg.scoring.tables import Tables

_NOWHERE = -1  # the column of an answer that another process holds


@dataclass(frozen=True)
class Drawn:
    """What chance decides for a batch, drawn once so that every part of the batch sees it."""

    shared: Tensor | None = None  # int64 (C,): candidates of the batch, sorted
    offset: Tensor | None = None  # (C,): added to their scores, the sample's correction
    no_rivals: Tensor | None = None  # int64: columns of `shared` that were not drawn
    own: Tensor | None = None  # int64 (B, C): candidates of each question, the answer first
    keep_entity: Tensor | None = None  # (B, W): dropout's factors
    keep_relation: Tensor | None = None  # (B, V)

    def part(self, some: slice) -> Drawn:
        by_question = ("own", "keep_entity", "keep_relation")
        cut = {name: getattr(self, name) for name in by_question}
        return replace(self, **{k: v[some] for k, v in cut.items() if v is not None})


def compared(
    tables: Tables, asked: Questions, drawn: Drawn, known: KnownAnswers | None
) -> tuple[Tensor, Rivals]:
    """The rows held here that are compared, and what their scores mean.

    With `known`, a question's other known answers are no rivals.
    """
    if drawn.own is not None:
        return _own(tables, asked, drawn.own, known)
    pairs = known.pairs(asked) if known is not None else None
    if drawn.shared is not None:
        return _shared(tables, asked, drawn, pairs)
    shard = tables.shard
    if shard.rows.size == 1:
        return tables.entities, Rivals(asked.answer, len(shard), pairs)
    if pairs is not None:
        here = shard.holds(pairs[1])
        pairs = pairs[0][here], pairs[1][here] - shard.start
    column = _column(shard, asked.answer, asked.answer - shard.start)
    return tables.entities, Rivals(column, len(shard), pairs)


def _own(
    tables: Tables, asked: Questions, own: Tensor, known: KnownAnswers | None
) -> tuple[Tensor, Rivals]:
    hidden = own == asked.answer.unsqueeze(1)
    if known is not None:
        hidden |= known.contains(asked, own)
    if tables.shard.rows.size > 1:
        hidden |= ~tables.shard.holds(own)
    first = _column(tables.shard, asked.answer, torch.zeros_like(asked.answer))
    question, column = hidden.nonzero(as_tuple=True)
    return tables.held_rows(own), Rivals(first, own.shape[1], (question, column))


def _shared(
    tables: Tables, asked: Questions, drawn: Drawn, pairs: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Rivals]:
    shard, shared, offset, no_rivals = tables.shard, drawn.shared, drawn.offset, drawn.no_rivals
    assert shared is not None
    if shard.rows.size > 1:
        here = shard.holds(shared)
        if no_rivals is not None:
            # Columns of those held here, which are some of the columns before.
            no_rivals = (here.cumsum(0) - 1)[no_rivals[here[no_rivals]]]
        shared, offset = shared[here], None if offset is None else offset[here]
    count = len(shared)
    if not count:
        # No candidate is held here: a row that counts as padding stands in for one.
        shared, offset, pairs = shared.new_full((1,), shard.start), None, None
    if pairs is not None:
        place = torch.searchsorted(shared, pairs[1]).clamp(max=count - 1)
        there = shared[place] == pairs[1]
        pairs = pairs[0][there], place[there]
    if no_rivals is not None:
        pairs = _also(pairs, len(asked), no_rivals)
    column = _column(shard, asked.answer, torch.searchsorted(shared, asked.answer))
    return tables.held_rows(shared), Rivals(column, count, pairs, offset)


def _also(pairs: tuple[Tensor, Tensor] | None, b: int, columns: Tensor) -> tuple[Tensor, Tensor]:
    """(question, column) pairs, and those of every question with these columns."""
    question = torch.arange(b, device=columns.device).repeat_interleave(len(columns))
    column = columns.repeat(b)
    if pairs is None:
        return question, column
    return torch.cat([pairs[0], question]), torch.cat([pairs[1], column])


def _column(shard: Shard, answer: Tensor, column: Tensor) -> Tensor:
    """`column` of the answers that are held here."""
    return column if shard.rows.size == 1 else torch.where(shard.holds(answer), column, _NOWHERE)
