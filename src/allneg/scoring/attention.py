"""The softmax of dot products against candidates by attention: no scores are stored."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels.attention import Negatives, attend, bit_mask, query_gradients, row_gradients
from allneg.kernels.fused import scatter_add
from allneg.scoring.distributed import NO_GROUP, Group
from allneg.scoring.groups import answers_part
from allneg.scoring.losses import Loss, SmoothedSoftmax, Softmax
from allneg.scoring.negatives import Answers, Candidates


def contrast(
    query: Tensor,
    candidates: Candidates,
    loss: Loss,
    weight: Tensor,
    bf16_copy: Tensor | None = None,
    rows_group: Group = NO_GROUP,
    batch_group: Group = NO_GROUP,
) -> tuple[Tensor, Tensor, Tensor]:
    """As contrast.py's, for a softmax of dot products."""
    assert isinstance(loss, Softmax)
    query = query.bfloat16() if loss.bf16 else query
    rows = (candidates.rows if bf16_copy is None else bf16_copy).to(query.dtype)
    target, count = candidates.columns(0)
    bits = None
    if candidates.masked is not None:
        bits = bit_mask(candidates.masked, len(query), len(rows))
    negatives = Negatives(target, count, candidates.offset, bits)
    here, mean = attend(query, rows, negatives)
    state, smoothing = here, loss.settings.label_smoothing
    if smoothing:  # the sum and the number of the negatives' scores
        held, row_sum = (target >= 0) & (target < count), rows[:count].sum(0, dtype=mean.dtype)
        total = query.to(mean.dtype) @ row_sum - torch.where(held, here[0], 0.0)
        state = torch.cat([here, torch.stack([total, count - held.to(total.dtype)])])
    if rows_group.size > 1:
        state = loss.merge(rows_group.all_gather(state))
    d_query, d_answers, shift = query_gradients(
        query, rows, negatives, mean, here[1], state[:2], weight
    )
    losses = loss.value(state)
    column = target.clamp(0, len(rows) - 1)  # of an answer elsewhere: its gradient is 0
    if candidates.answers is not None:
        answers = candidates.answers
        column, scores, d_answers = _grouped_answers(answers, query, rows, count, d_query)
        losses -= answers_part(loss, answers, [scores], weight, rows_group)
    d_rows = row_gradients(query, rows, negatives, shift)
    if smoothing:
        assert isinstance(loss, SmoothedSoftmax)
        # The score of every candidate has this gradient, too, and that of the answer one more.
        flat = -weight * smoothing / loss.candidates(state)
        d_query += flat.unsqueeze(1) * row_sum
        d_rows[:count] += flat @ query.to(mean.dtype)
        if candidates.answers is None:
            more = (weight * smoothing * held).unsqueeze(1)
            d_query += more * rows[column]
            d_answers += more * query
    scatter_add(d_rows, column, d_answers)
    sums = [rows_group.start_sum(d_query), batch_group.start_sum(d_rows)]
    for pending in sums:
        pending.wait()
    return losses, d_query, d_rows


def _grouped_answers(
    answers: Answers, query: Tensor, rows: Tensor, count: int, d_query: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of the answers of grouped queries, their scores and gradients: (A,), (A,), (A, W).

    Adds the gradients of the queries to `d_query`.
    """
    held = (answers.column >= 0) & (answers.column < count)
    column, slope = torch.where(held, answers.column, 0), torch.where(held, -answers.weight, 0.0)
    vectors, own = query[answers.query].to(d_query.dtype), rows[column].to(d_query.dtype)
    d_query.index_add_(0, answers.query, slope.unsqueeze(1) * own)
    scores = torch.where(held, (vectors * own).sum(1), 0.0)
    return column, scores, slope.unsqueeze(1) * vectors
