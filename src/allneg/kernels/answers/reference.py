"""The definition of taking out and putting back, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def strike(scores: Tensor, place: Tensor, count: int) -> Tensor:
    if count < scores.shape[1]:
        scores[:, count:] = -torch.inf
    column, here = _inside(scores, place)
    old = scores.gather(1, column)
    scores.scatter_(1, column, torch.where(here, -torch.inf, old))
    return torch.where(here, old, -torch.inf).squeeze(1)


def put(slopes: Tensor, place: Tensor, values: Tensor) -> None:
    column, here = _inside(slopes, place)
    values = values.to(slopes.dtype).unsqueeze(1)
    slopes.scatter_(1, column, torch.where(here, values, slopes.gather(1, column)))


def _inside(scores: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Columns to look at, and whether the places are really there: (B, 1), (B, 1)."""
    width = scores.shape[1]
    place = place.unsqueeze(1)
    return place.clamp(0, width - 1), (place >= 0) & (place < width)
