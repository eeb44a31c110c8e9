"""The softmax of dot products against candidates by attention: no scores are stored."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels.attention import Negatives, attend, bit_mask, row_gradients
from allneg.kernels.fused import scatter_add
from allneg.scoring.distributed import Group
from allneg.scoring.losses import Loss, Softmax
from allneg.scoring.negatives import Candidates


def contrast(
    query: Tensor,
    rows: Tensor,
    candidates: Candidates,
    loss: Loss,
    weight: Tensor,
    rows_group: Group,
    batch_group: Group,
) -> tuple[Tensor, Tensor, Tensor]:
    """As contrast.py's, for a softmax; `rows` are those of the candidates, or a copy of them."""
    assert isinstance(loss, Softmax)
    rows = rows.to(query.dtype)
    target, count = candidates.columns(0)
    bits = None
    if candidates.masked is not None:
        bits = bit_mask(candidates.masked, len(query), len(rows))
    negatives = Negatives(target, count, candidates.offset, bits)
    log_sum, mean = attend(query, rows, negatives)
    held = (target >= 0) & (target < count)
    column, q = torch.where(held, target, 0), query.to(mean.dtype)
    answer = rows[column].to(mean.dtype)
    score = torch.where(held, (q * answer).sum(1), -torch.inf)
    state = torch.stack([score, log_sum])
    smoothing = loss.settings.label_smoothing
    if smoothing:  # the sum and the number of the negatives' scores
        row_sum = rows[:count].sum(0, dtype=mean.dtype)
        total = q @ row_sum - torch.where(held, score, 0.0)
        state = torch.cat([state, torch.stack([total, count - held.to(total.dtype)])])
    if rows_group.size > 1:
        state = loss.merge(rows_group.all_gather(state))
    log_total = torch.logaddexp(state[1], state[0])
    d_rows = row_gradients(query, rows, negatives, log_total, weight)
    share = weight * (log_sum - log_total).exp()
    d_answer = torch.where(held, weight * loss.grad_answer(state), 0.0)
    d_query = share.unsqueeze(1) * mean + d_answer.unsqueeze(1) * answer
    if smoothing:
        # Every negative's score has this gradient, too: that of all rows, less the answer's.
        flat = -weight * smoothing / (state[3] + 1)
        d_query += flat.unsqueeze(1) * (row_sum - torch.where(held.unsqueeze(1), answer, 0.0))
        d_rows[:count] += flat @ q
        d_answer -= torch.where(held, flat, 0.0)
    scatter_add(d_rows, column, d_answer.unsqueeze(1) * q)
    sums = [rows_group.start_sum(d_query), batch_group.start_sum(d_rows)]
    for pending in sums:
        pending.wait()
    return loss.value(state), d_query, d_rows
