"""The definition in plain PyTorch, with all scores in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from allneg.kernels.distances import fp32
from allneg.kernels.fused.reference import count_ranks

if TYPE_CHECKING:
    from allneg.kernels.attention import Negatives


def attend(query: Tensor, rows: Tensor, negatives: Negatives) -> tuple[Tensor, Tensor]:
    scores = _scores(query, rows, negatives)
    log_sum, (held, answer) = scores.logsumexp(1), _answers(rows, negatives)
    share = (scores - log_sum.clamp(min=torch.finfo(scores.dtype).min).unsqueeze(1)).exp_()
    score = torch.where(held, (fp32(query) * answer).sum(1), -torch.inf)
    return torch.stack([score, log_sum]), share @ fp32(rows)


def query_gradients(
    query: Tensor, rows: Tensor, negatives: Negatives, mean: Tensor, log_sum: Tensor,
    state: Tensor, weight: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    log_total, (held, answer) = torch.logaddexp(state[1], state[0]), _answers(rows, negatives)
    share = weight * torch.where(log_sum.isneginf(), 0.0, (log_sum - log_total).exp())
    slope = torch.where(held, -weight * torch.sigmoid(state[1] - state[0]), 0.0).unsqueeze(1)
    shift = torch.where(log_total.isneginf(), torch.inf, log_total - weight.log())
    return share.unsqueeze(1) * mean + slope * answer, slope * fp32(query), shift


def row_gradients(query: Tensor, rows: Tensor, negatives: Negatives, shift: Tensor) -> Tensor:
    share = _scores(query, rows, negatives).sub_(shift.unsqueeze(1)).exp_()
    return share.T @ fp32(query)


def pair_scores(query: Tensor, rows: Tensor, of_query: Tensor, of_row: Tensor) -> Tensor:
    scores = (fp32(query) @ fp32(rows).T)[of_query, of_row.clamp(min=0)]
    return torch.where(of_row >= 0, scores, -torch.inf)


def count_better(query: Tensor, rows: Tensor, answer: Tensor, group: Tensor) -> Tensor:
    return count_ranks(fp32(query) @ fp32(rows).T, answer, None, group)


def _answers(rows: Tensor, negatives: Negatives) -> tuple[Tensor, Tensor]:
    """Which answers are among the rows, and theirs, any row for the others: (B,), (B, W)."""
    held = (negatives.target >= 0) & (negatives.target < negatives.count)
    return held, fp32(rows[torch.where(held, negatives.target, 0)])


def _scores(query: Tensor, rows: Tensor, negatives: Negatives) -> Tensor:
    """The scores of the negatives, -inf for all other rows: (B, N)."""
    scores = fp32(query) @ fp32(rows).T
    if negatives.offset is not None:
        scores += negatives.offset
    row = torch.arange(len(rows), device=rows.device)
    hidden = (row == negatives.target.unsqueeze(1)) | (row >= negatives.count)
    if negatives.bits is not None:
        words = negatives.bits.T.repeat_interleave(64, dim=1)[:, : len(rows)]
        hidden |= (words >> row % 64 & 1).bool()
    return scores.masked_fill_(hidden, -torch.inf)
