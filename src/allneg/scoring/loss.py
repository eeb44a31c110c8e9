"""Scores → losses: one number a question, from its answer's score and its rivals'."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.recipe import Loss


def losses(scores: Tensor, target: Tensor, hidden: Tensor | None, settings: Loss) -> Tensor:
    """The loss of each question: (B, C) -> (B,).

    `target` (B,) is the answer's column. `hidden` (B, C) marks columns that are no rivals;
    what it says of the answer's own column does not matter.
    """
    answer = scores.gather(1, target.unsqueeze(1))
    if settings.name == "softmax":
        return _softmax(scores, answer, target, hidden, settings.smoothing)
    rival = torch.ones_like(scores, dtype=torch.bool) if hidden is None else ~hidden
    rival = rival.scatter(1, target.unsqueeze(1), False)
    return _BY_NAME[settings.name](scores, answer.squeeze(1), rival, settings)


def _softmax(
    scores: Tensor, answer: Tensor, target: Tensor, hidden: Tensor | None, smoothing: float
) -> Tensor:
    """-log of the answer's share; `smoothing` of the label is spread over all candidates."""
    if hidden is not None:
        hidden = hidden.scatter(1, target.unsqueeze(1), False)
        scores = scores.masked_fill(hidden, -torch.inf)
    if not smoothing:
        return F.cross_entropy(scores, target, reduction="none")
    total = scores.logsumexp(1)
    if hidden is None:
        mean = scores.mean(1)
    else:
        mean = scores.masked_fill(hidden, 0.0).sum(1) / (~hidden).sum(1)
    return total - (1 - smoothing) * answer.squeeze(1) - smoothing * mean


def _margin(scores: Tensor, answer: Tensor, rival: Tensor, settings: Loss) -> Tensor:
    """The paper's TransE loss: the answer's distance, plus a hinge for every rival's."""
    return -answer + _sum((scores + settings.margin).relu(), rival)


def _logistic(scores: Tensor, answer: Tensor, rival: Tensor, settings: Loss) -> Tensor:
    """-log sigmoid of the answer, and of minus every rival."""
    rivals = _sum(F.softplus(scores + settings.margin), rival)
    return F.softplus(-(answer + settings.margin)) + rivals


def _self_adversarial(scores: Tensor, answer: Tensor, rival: Tensor, settings: Loss) -> Tensor:
    """RotatE's loss (Sun et al., 2019): rivals weigh as their softmax, which has no gradient."""
    tempered = (settings.temperature * scores.detach()).masked_fill(~rival, -torch.inf)
    weight = tempered.softmax(1).nan_to_num(0.0)  # a question without rivals has no weights
    rivals = _sum(weight * F.softplus(scores + settings.margin), rival)
    return (F.softplus(-(answer + settings.margin)) + rivals) / 2


_BY_NAME = {"margin": _margin, "logistic": _logistic, "self-adversarial": _self_adversarial}


def _sum(values: Tensor, where: Tensor) -> Tensor:
    return values.masked_fill(~where, 0.0).sum(1)
