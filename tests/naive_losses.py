"""The losses written plainly, one query at a time."""

import torch
from torch import Tensor

from allneg.recipe import Loss


def one_loss(answer: Tensor, negatives: Tensor, settings: Loss) -> Tensor:
    """The loss of one query, from its answer's score and those of its negatives."""
    if settings.name == "softmax":
        log_shares = torch.cat([answer.view(1), negatives]).log_softmax(0)
        smoothing = settings.label_smoothing
        return -(1 - smoothing) * log_shares[0] - smoothing * log_shares.mean()
    if settings.name not in ("margin", "logistic", "self-adversarial"):
        raise NotImplementedError(f"write the formula of {settings.name} here")
    if settings.name == "margin":
        return (negatives + settings.margin).clamp(min=0).sum() - answer
    positive = -torch.sigmoid(answer + settings.margin).log()
    negative = -torch.sigmoid(-negatives - settings.margin).log()
    if settings.name == "logistic":
        return positive + negative.sum()
    weights = (settings.temperature * negatives.detach()).softmax(0)
    return (positive + (weights * negative).sum()) / 2
