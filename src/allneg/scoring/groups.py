"""Distinct queries with all of their answers: each query is compared with all entities once.

The loss of a query with the answers A is that of all candidates minus the scores of A:

    softmax     |A| log Σ_e exp s_e - Σ_A s_a                           Σ_A of -log softmax(s)_a
    logistic    Σ_e softplus s_e - Σ_A s_a      as softplus(-s) = softplus(s) - s: KvsAll's loss

Both are sums over answers, so a query's answers may be in several parts of a batch.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from allneg.graph.queries import KnownAnswers, Queries
from allneg.kernels import Kernel
from allneg.scoring.losses import Loss
from allneg.scoring.negatives import Candidates

Compare = Callable[..., tuple[Tensor, Tensor, Tensor]]


def contrast_groups(
    compare: Compare,
    kernel: Kernel,
    loss: Loss,
    query: Tensor,
    answer: Tensor,
    queries: Queries,
    known: KnownAnswers,
    candidates: Candidates,
    weight: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `contrast`, where equal queries follow each other: (B,), (B, W), like rows.

    `compare` is `contrast` with all arguments but queries, candidates and `weight`. The gradients
    of the answer rows (B, W) are added to `answer.grad`.
    """
    first, group = queries.distinct()
    distinct, rows = query[first], answer.detach().unsqueeze(1)
    no_target = torch.full_like(first, -1)
    total = torch.zeros_like(weight[first]).index_add_(0, group, weight)
    candidates = replace(candidates, target=no_target)
    values, d_distinct, d_rows = compare(distinct, candidates, weight=total)
    # `weight` is a share of all candidates' loss; an answer's score counts once in any case.
    times = known.counts(queries).to(weight.dtype) if loss.once_per_query else 1.0
    repeated = distinct[group]
    scores = kernel.scores(repeated, rows)
    kept = scores.clone() if kernel.keeps_scores else None
    d_repeated, d_answer = kernel.gradients(-(times * weight).unsqueeze(1), repeated, rows, kept)
    d_distinct.index_add_(0, group, d_repeated)
    d_answer = d_answer.squeeze(1)
    answer.grad = d_answer if answer.grad is None else answer.grad.add_(d_answer)
    losses = values[group] - times * (scores.squeeze(1) + loss.settings.margin)
    return losses, torch.zeros_like(query).index_copy_(0, first, d_distinct), d_rows
