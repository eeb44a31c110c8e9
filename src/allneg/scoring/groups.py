"""Distinct queries with all of their answers: each query is compared with all entities once.

The loss of a query with the answers A is that of all candidates minus the scores of A:

    softmax     |A| log Σ_e exp s_e - Σ_A s_a                           Σ_A of -log softmax(s)_a
    logistic    Σ_e softplus s_e - Σ_A s_a      as softplus(-s) = softplus(s) - s: KvsAll's loss

Both are sums over answers, so a query's answers may be in several batches. With label smoothing,
the mean score of all candidates has a share of the weight of each answer's score.
"""

from dataclasses import replace

import torch
from torch import Tensor

from allneg.graph.queries import KnownAnswers, Queries
from allneg.scoring.distributed import Group
from allneg.scoring.losses import Loss
from allneg.scoring.negatives import Answers, Candidates


def grouped(
    candidates: Candidates, queries: Queries, loss: Loss, known: KnownAnswers, weight: Tensor
) -> tuple[Candidates, Tensor]:
    """Candidates of grouped queries, and the weight of each query: (B,).

    `weight` (A,) is that of each answer.
    """
    assert queries.group is not None
    # Label smoothing takes its share of the label from the answer, and gives it to all candidates.
    own = (1 - loss.settings.label_smoothing) * weight
    # `weight` is a share of all candidates' loss; an answer's score counts once in any case.
    if loss.once_per_query:
        own = own * known.counts(queries)[queries.group]
    answers = Answers(queries.group, candidates.target, own)
    none = torch.full_like(queries.entity, -1)
    return replace(candidates, target=none, answers=answers), queries.sums(weight)


def answers_part(
    loss: Loss, answers: Answers, parts: list[Tensor], weight: Tensor, rows_group: Group
) -> Tensor:
    """What the answers' scores subtract from the loss of each query: (B,).

    Each of the `parts` (A,), and each process of `rows_group`, has the scores of some answers, and
    0 for the others.
    """
    scores = torch.stack(parts).sum(0)
    if rows_group.size > 1:
        scores = rows_group.sum(scores)
    values = answers.weight * (scores + loss.settings.margin)
    total = torch.zeros_like(weight).index_add_(0, answers.query, values)
    return total / torch.where(weight > 0, weight, 1.0)
