"""The definition in plain PyTorch, with all scores in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from allneg.kernels.distances import fp32

if TYPE_CHECKING:
    from allneg.kernels.attention import Negatives


def attend(query: Tensor, rows: Tensor, negatives: Negatives) -> tuple[Tensor, Tensor]:
    scores = _scores(query, rows, negatives)
    log_sum = scores.logsumexp(1)
    share = (scores - log_sum.clamp(min=torch.finfo(scores.dtype).min).unsqueeze(1)).exp_()
    return log_sum, share @ fp32(rows)


def row_gradients(
    query: Tensor, rows: Tensor, negatives: Negatives, log_sum: Tensor, weight: Tensor
) -> Tensor:
    scores = _scores(query, rows, negatives)
    share = scores.sub_(log_sum.unsqueeze(1)).exp_().mul_(weight.unsqueeze(1))
    return share.T @ fp32(query)


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
