"""The definition of counting rivals, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def counts(scores: Tensor, answer: Tensor, slack: Tensor | None) -> Tensor:
    answer = answer.unsqueeze(1)
    if slack is None:
        better, equal = scores > answer, scores == answer
    else:
        equal = (scores - answer).abs() <= slack.unsqueeze(1)
        better = (scores > answer) & ~equal
    return torch.stack([better.sum(1), equal.sum(1)], dim=1)
