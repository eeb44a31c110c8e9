"""Who is near whom."""

from __future__ import annotations

import torch

from allneg.models import MODELS
from allneg.scoring import Shard, Tables
from allneg.serving.space import Space


def test_a_bias_is_no_direction() -> None:
    model = MODELS["transe"](2, 0.1, 2, True, True)
    rows = torch.tensor([[1.0, 0.0, 3.0], [0.0, 1.0, 3.0], [1.0, 0.0, -3.0]])
    space = Space.of(model, Tables(rows, torch.zeros(1, 2), Shard.whole(3), False))
    assert space.nearest(0, 2) == [(2, 1.0), (1, 0.0)]
    assert space.likeness(0, [1, 2]) == [0.0, 1.0]
