"""Scores → losses and their gradients, one block of candidates at a time.

A block holds the scores (B, c) of some candidates; `target` (B,) is the column of each query's
answer, outside 0..c-1 where the answer is in another block. All other columns are negatives,
except those from `count` on and those that are -inf. A loss scans every block and keeps a few
numbers per query, its state; afterwards it gives the gradient at the scores of any block:

    state = loss.scan(scores, target, count)        (1 + k, B): the answer's score, and k numbers
    state = loss.merge(states)                      of several blocks, or several processes
    loss.value(state)                               the loss of each query: (B,)
    loss.grad_scores(state, scores, target, count, weight)      weight · d loss / d scores

With `loss.grouped`, no column is an answer: the value is that of all candidates, and
scoring/groups.py subtracts the scores of the answers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.kernels.fused import exp_weights, log_sum_exp, mask_out, put, softmax_gradient
from allneg.recipe import Loss as Settings


@dataclass(frozen=True)
class Loss(ABC):
    """A new loss implements the four methods below `grad_scores`, and is added to LOSSES."""

    settings: Settings
    bf16: bool = False  # gradients at the scores may be bfloat16

    uses: ClassVar[tuple[str, ...]] = ()  # its settings, such as "margin"; others are refused
    needs_margin: ClassVar[str] = ""  # "always", or "distance": with distance models
    once_per_query: ClassVar[bool] = False  # where grouped, all candidates count once per query
    shift_invariant: ClassVar[bool] = False  # adding a number to all scores changes nothing
    score_copies: ClassVar[float] = 0.0  # copies of a block of scores at the peak of memory

    def scan(self, scores: Tensor, target: Tensor, count: int) -> Tensor:
        """The numbers that the loss needs from a block, which it may overwrite: (1 + k, B)."""
        answer = mask_out(scores, target, count)
        return torch.cat([answer.unsqueeze(0), self.reduce(scores)])

    def merge(self, states: Tensor) -> Tensor:
        """One state from those of several blocks or processes: (P, 1 + k, B) -> (1 + k, B)."""
        return torch.cat([states[:, :1].amax(0), self.merge_negatives(states[:, 1:])])

    def grad_scores(
        self, state: Tensor, scores: Tensor, target: Tensor, count: int, weight: Tensor
    ) -> Tensor:
        """weight · d loss / d scores of a block, in place of the scores."""
        mask_out(scores, target, count)
        grad = self.grad_negatives(scores, state, weight)
        put(grad, target, weight * self.grad_answer(state))
        return grad

    @abstractmethod
    def reduce(self, scores: Tensor) -> Tensor:
        """k numbers per query from its negatives' scores (-inf: no negative): (B, c) -> (k, B)."""

    def merge_negatives(self, states: Tensor) -> Tensor:
        """(P, k, B) -> (k, B)."""
        return states.sum(0)

    @abstractmethod
    def value(self, state: Tensor) -> Tensor:
        """The loss of each query; state[0] is the answer's score: (1 + k, B) -> (B,)."""

    @abstractmethod
    def grad_negatives(self, scores: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        """weight · d loss / d negative scores, in place of them; 0 where they are -inf: (B, c)."""

    @abstractmethod
    def grad_answer(self, state: Tensor) -> Tensor:
        """d loss / d answer's score: (B,)."""


class Softmax(Loss):
    """-log of the answer's share of Σ exp over all candidates: the exact cross-entropy.

    State: the log-sum-exp of the negatives.
    """

    shift_invariant = True
    uses = ("label_smoothing", "correction", "grouped", "distillation")

    scan = staticmethod(log_sum_exp)

    def grad_scores(
        self, state: Tensor, scores: Tensor, target: Tensor, count: int, weight: Tensor
    ) -> Tensor:
        return softmax_gradient(scores, target, count, state, weight, self.bf16)

    def reduce(self, scores: Tensor) -> Tensor:
        return scores.logsumexp(1).unsqueeze(0)

    def merge_negatives(self, states: Tensor) -> Tensor:
        return states.logsumexp(0)

    def value(self, state: Tensor) -> Tensor:
        if self.settings.grouped:
            return state[1]
        return F.softplus(state[1] - state[0])  # log(exp total + exp answer) - answer

    def grad_negatives(self, scores: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        return exp_weights(scores, torch.logaddexp(state[1], state[0]), weight)

    def grad_answer(self, state: Tensor) -> Tensor:
        return -torch.sigmoid(state[1] - state[0])


class SmoothedSoftmax(Softmax):
    """Softmax with `label_smoothing` of the label spread over all candidates.

    State: the log-sum-exp, the sum and the number of the negatives.
    """

    score_copies = 3.0
    scan = Loss.scan
    grad_scores = Loss.grad_scores

    def reduce(self, scores: Tensor) -> Tensor:
        counts = scores > -torch.inf
        total = scores.masked_fill(~counts, 0.0).sum(1)
        return torch.cat([super().reduce(scores), torch.stack([total, counts.sum(1)])])

    def merge_negatives(self, states: Tensor) -> Tensor:
        return torch.cat([states[:, :1].logsumexp(0), states[:, 1:].sum(0)])

    def value(self, state: Tensor) -> Tensor:
        answer = 0.0 if self.settings.grouped else state[0]
        mean = (state[2] + answer) / self.candidates(state)
        return super().value(state) + self.settings.label_smoothing * (answer - mean)

    def candidates(self, state: Tensor) -> Tensor:
        """Their number, with the answer: (B,)."""
        return state[3] if self.settings.grouped else state[3] + 1

    def grad_negatives(self, scores: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        flat = (weight * self.settings.label_smoothing / self.candidates(state)).unsqueeze(1)
        flat = torch.where(scores > -torch.inf, flat, 0.0)
        return super().grad_negatives(scores, state, weight).sub_(flat)

    def grad_answer(self, state: Tensor) -> Tensor:
        flat = self.settings.label_smoothing * (1 - 1 / (state[3] + 1))
        return flat + super().grad_answer(state)


class Margin(Loss):
    """The paper's TransE loss: the answer's distance, plus a hinge for every negative's."""

    uses = ("margin",)
    needs_margin = "always"
    score_copies = 1.0

    def reduce(self, scores: Tensor) -> Tensor:
        return (scores + self.settings.margin).relu_().sum(1).unsqueeze(0)

    def value(self, state: Tensor) -> Tensor:
        return state[1] - state[0]

    def grad_negatives(self, scores: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        return scores.add_(self.settings.margin).gt_(0).mul_(weight.unsqueeze(1))

    def grad_answer(self, state: Tensor) -> Tensor:
        return torch.full_like(state[0], -1.0)


class Logistic(Loss):
    """-log sigmoid of the answer, and of minus every negative, each with the margin added.

    Grouped, this is KvsAll: the binary cross-entropy with all answers of a query as labels.
    """

    uses = ("margin", "grouped")
    once_per_query = True
    needs_margin = "distance"
    score_copies = 2.0

    def reduce(self, scores: Tensor) -> Tensor:
        return F.softplus(scores + self.settings.margin).sum(1).unsqueeze(0)

    def value(self, state: Tensor) -> Tensor:
        if self.settings.grouped:
            return state[1]
        return state[1] + F.softplus(-(state[0] + self.settings.margin))

    def grad_negatives(self, scores: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        return scores.add_(self.settings.margin).sigmoid_().mul_(weight.unsqueeze(1))

    def grad_answer(self, state: Tensor) -> Tensor:
        return -torch.sigmoid(-(state[0] + self.settings.margin))


class SelfAdversarial(Loss):
    """RotatE's loss (Sun et al., 2019): negatives are weighted by their softmax.

    The weights have no gradient. State: the log-sum-exp of the negatives' scores times the
    temperature, and the weighted mean of their losses.
    """

    uses = ("margin", "temperature")
    needs_margin = "distance"
    score_copies = 3.0

    def reduce(self, scores: Tensor) -> Tensor:
        scaled = scores * self.settings.temperature
        none = torch.full((len(scores),), -1, device=scores.device)  # no target
        total = log_sum_exp(scaled, none, scores.shape[1])[1]
        weight = exp_weights(scaled, total, torch.ones_like(total))
        return torch.stack([total, weight.mul_(F.softplus(scores + self.settings.margin)).sum(1)])

    def merge_negatives(self, states: Tensor) -> Tensor:
        total, mean = states.unbind(1)
        whole = total.logsumexp(0)
        share = (total - torch.where(whole > -torch.inf, whole, 0.0)).exp()  # no -inf - -inf
        return torch.stack([whole, (share * mean).sum(0)])

    def value(self, state: Tensor) -> Tensor:
        return (state[2] + F.softplus(-(state[0] + self.settings.margin))) / 2

    def grad_negatives(self, scores: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        slope = (scores + self.settings.margin).sigmoid_()
        scaled = scores.mul_(self.settings.temperature)
        return exp_weights(scaled, state[1], weight / 2).mul_(slope)

    def grad_answer(self, state: Tensor) -> Tensor:
        return -torch.sigmoid(-(state[0] + self.settings.margin)) / 2


LOSSES: dict[str, type[Loss]] = {
    "softmax": Softmax,
    "margin": Margin,
    "logistic": Logistic,
    "self-adversarial": SelfAdversarial,
}


def loss_class(settings: Settings) -> type[Loss]:
    """The class that computes the loss of a recipe."""
    found = LOSSES[settings.name]
    return SmoothedSoftmax if found is Softmax and settings.label_smoothing else found
