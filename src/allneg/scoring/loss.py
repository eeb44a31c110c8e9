"""Scores → losses: each loss as a fold over blocks of rivals' scores, and its slopes.

A block of scores (B, c) comes with everything that is no rival, the answer included, struck
out as -inf; the answer's score `a` (B,) comes apart. So every loss sees its rivals a block at
a time, keeps a few numbers a query, and gives the slope of the loss at any score later:

    memory = loss.fold(memory, scores)   over all blocks
    memory = loss.merged(memories)       of processes that each saw some of the rivals
    loss.value(memory, a)                the loss of each query
    loss.slopes(memory, a, w, scores, p) w · d loss / d scores of a block, in place of them,
                                         and w · d loss / d a at each answer's place p
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.kernels.answers import put
from allneg.kernels.softmax import log_sum_exp, shares, slopes
from allneg.recipe import Loss as Settings


@dataclass(frozen=True)
class Loss(ABC):
    """One loss a query. `memory` is (k, B): what the fold keeps of the rivals so far."""

    settings: Settings
    narrow: bool = False  # the slopes go into narrow products, and may come as bfloat16

    @abstractmethod
    def fold(self, memory: Tensor | None, scores: Tensor) -> Tensor: ...

    def merged(self, memories: Tensor) -> Tensor:
        """One memory of all rivals, from those of several processes: (P, k, B) -> (k, B)."""
        return memories.sum(0)

    @abstractmethod
    def value(self, memory: Tensor, answer: Tensor) -> Tensor: ...

    def slopes(
        self, memory: Tensor, answer: Tensor, weight: Tensor, scores: Tensor, place: Tensor
    ) -> Tensor:
        """A place outside the columns (B,) belongs to another block."""
        out = self.rival_slopes(memory, answer, weight, scores)
        put(out, place, weight * self.answer_slope(memory, answer))
        return out

    @abstractmethod
    def rival_slopes(
        self, memory: Tensor, answer: Tensor, weight: Tensor, scores: Tensor
    ) -> Tensor: ...

    @abstractmethod
    def answer_slope(self, memory: Tensor, answer: Tensor) -> Tensor: ...


class Softmax(Loss):
    """-log of the answer's share of Σ exp; `smoothing` of the label is spread over all candidates.

    The memory is the log-sum-exp of the rivals and, with smoothing, their sum and number.
    """

    def fold(self, memory: Tensor | None, scores: Tensor) -> Tensor:
        total = log_sum_exp(scores)
        if not self.settings.label_smoothing:
            new = total.unsqueeze(0)
        else:
            there = scores > -torch.inf
            new = torch.stack([total, scores.masked_fill(~there, 0.0).sum(1), there.sum(1)])
        if memory is None:
            return new
        return torch.cat([torch.logaddexp(memory[:1], new[:1]), memory[1:] + new[1:]])

    def merged(self, memories: Tensor) -> Tensor:
        return torch.cat([memories[:, :1].logsumexp(0), memories[:, 1:].sum(0)])

    def value(self, memory: Tensor, answer: Tensor) -> Tensor:
        # log(exp R + exp a) - a, with R the rivals' log-sum-exp.
        plain = F.softplus(memory[0] - answer)
        if not self.settings.label_smoothing:
            return plain
        mean = (memory[1] + answer) / (memory[2] + 1)
        return plain + self.settings.label_smoothing * (answer - mean)

    def slopes(
        self, memory: Tensor, answer: Tensor, weight: Tensor, scores: Tensor, place: Tensor
    ) -> Tensor:
        if self.settings.label_smoothing:  # which the two functions below add
            return super().slopes(memory, answer, weight, scores, place)
        return slopes(scores, place, answer, memory[0], weight, self.narrow)

    def rival_slopes(
        self, memory: Tensor, answer: Tensor, weight: Tensor, scores: Tensor
    ) -> Tensor:
        total = torch.logaddexp(memory[0], answer)
        flat = (weight * self.settings.label_smoothing / (memory[2] + 1)).unsqueeze(1)
        flat = torch.where(scores > -torch.inf, flat, 0.0)
        return shares(scores, total, weight).sub_(flat)

    def answer_slope(self, memory: Tensor, answer: Tensor) -> Tensor:
        flat = self.settings.label_smoothing * (1 - 1 / (memory[2] + 1))
        return flat - torch.sigmoid(memory[0] - answer)


class Margin(Loss):
    """The paper's TransE loss: the answer's distance, plus a hinge for every rival's."""

    def fold(self, memory: Tensor | None, scores: Tensor) -> Tensor:
        new = (scores + self.settings.margin).relu_().sum(1).unsqueeze(0)
        return new if memory is None else memory + new

    def value(self, memory: Tensor, answer: Tensor) -> Tensor:
        return memory[0] - answer

    def rival_slopes(
        self, memory: Tensor, answer: Tensor, weight: Tensor, scores: Tensor
    ) -> Tensor:
        return scores.add_(self.settings.margin).gt_(0).mul_(weight.unsqueeze(1))

    def answer_slope(self, memory: Tensor, answer: Tensor) -> Tensor:
        return torch.full_like(answer, -1.0)


class Logistic(Loss):
    """-log sigmoid of the answer, and of minus every rival, each with the margin added."""

    def fold(self, memory: Tensor | None, scores: Tensor) -> Tensor:
        new = F.softplus(scores + self.settings.margin).sum(1).unsqueeze(0)
        return new if memory is None else memory + new

    def value(self, memory: Tensor, answer: Tensor) -> Tensor:
        return memory[0] + F.softplus(-(answer + self.settings.margin))

    def rival_slopes(
        self, memory: Tensor, answer: Tensor, weight: Tensor, scores: Tensor
    ) -> Tensor:
        return scores.add_(self.settings.margin).sigmoid_().mul_(weight.unsqueeze(1))

    def answer_slope(self, memory: Tensor, answer: Tensor) -> Tensor:
        return -torch.sigmoid(-(answer + self.settings.margin))


class SelfAdversarial(Loss):
    """RotatE's loss (Sun et al., 2019): rivals weigh as their softmax, which has no slope.

    The memory is the log-sum-exp of the tempered rivals, and their weighted mean loss.
    """

    def fold(self, memory: Tensor | None, scores: Tensor) -> Tensor:
        tempered = scores * self.settings.temperature
        total = log_sum_exp(tempered)
        # A block without rivals weighs nothing; -inf - -inf would be NaN.
        weight = shares(tempered, _anchor(total), torch.ones_like(total))
        mean = (weight * F.softplus(scores + self.settings.margin)).sum(1)
        new = torch.stack([total, mean])
        if memory is None:
            return new
        both = torch.logaddexp(memory[0], total)
        old_share, new_share = (memory[0] - _anchor(both)).exp(), (total - _anchor(both)).exp()
        return torch.stack([both, memory[1] * old_share + mean * new_share])

    def merged(self, memories: Tensor) -> Tensor:
        total, mean = memories.unbind(1)
        whole = total.logsumexp(0)
        return torch.stack([whole, ((total - _anchor(whole)).exp() * mean).sum(0)])

    def value(self, memory: Tensor, answer: Tensor) -> Tensor:
        return (memory[1] + F.softplus(-(answer + self.settings.margin))) / 2

    def rival_slopes(
        self, memory: Tensor, answer: Tensor, weight: Tensor, scores: Tensor
    ) -> Tensor:
        slope = torch.sigmoid(scores + self.settings.margin)
        tempered = scores.mul_(self.settings.temperature)
        return shares(tempered, _anchor(memory[0]), weight / 2).mul_(slope)

    def answer_slope(self, memory: Tensor, answer: Tensor) -> Tensor:
        return -torch.sigmoid(-(answer + self.settings.margin)) / 2


LOSSES: dict[str, type[Loss]] = {
    "softmax": Softmax,
    "margin": Margin,
    "logistic": Logistic,
    "self-adversarial": SelfAdversarial,
}


def _anchor(total: Tensor) -> Tensor:
    return torch.where(total > -torch.inf, total, 0.0)
