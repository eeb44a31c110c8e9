"""The softmax of dot products against candidates by attention: no scores are stored."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from allneg.kernels.attention import (
    Negatives,
    RowGradients,
    attend,
    bit_mask,
    query_gradients,
    row_gradients,
)
from allneg.kernels.fused import scatter_add
from allneg.scoring.distributed import NO_GROUP, Group
from allneg.scoring.losses import Loss, Softmax
from allneg.scoring.negatives import Candidates


def contrast(
    query: Tensor,
    candidates: Candidates,
    loss: Loss,
    weight: Tensor,
    bf16_copy: Tensor | None = None,
    rows_group: Group = NO_GROUP,
    batch_group: Group = NO_GROUP,
    defer: Callable[[RowGradients], None] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """As contrast.py's, for a softmax of dot products.

    With `defer`, which takes them uncomputed, the gradients of rows are empty: for a single process
    without label smoothing.
    """
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
    column = target.clamp(0, len(rows) - 1)  # of an answer elsewhere: its gradient is 0
    if defer is not None:
        defer(RowGradients(query, rows, negatives, shift, [(column, d_answers)]))
        return loss.value(state), d_query, d_query[:0]
    d_rows = row_gradients(query, rows, negatives, shift)
    if smoothing:
        # The score of every candidate has this gradient, too, and that of the answer one more.
        flat, more = -weight * smoothing / (state[3] + 1), weight * smoothing * held
        d_query += flat.unsqueeze(1) * row_sum + more.unsqueeze(1) * rows[column]
        d_rows[:count] += flat @ query.to(mean.dtype)
        d_answers += more.unsqueeze(1) * query
    scatter_add(d_rows, column, d_answers)
    sums = [rows_group.start_sum(d_query), batch_group.start_sum(d_rows)]
    for pending in sums:
        pending.wait()
    return loss.value(state), d_query, d_rows
