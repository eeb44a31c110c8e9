"""What processes decide together after a step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from allneg.scoring.distributed import Pending
from allneg.training.launch import StepDecision


def test_a_save_that_is_under_way_is_not_requested_again() -> None:
    """The answer arrives one step later; until then the save is still due."""
    group = SimpleNamespace(start_max=lambda number: Pending())
    world: Any = SimpleNamespace(size=2, is_rank_zero=True, everyone=group)
    decision = StepDecision(world, lambda: 0)
    saves = [decision(is_due)[1] for is_due in (False, True, True, False, False, False)]
    assert saves == [False, False, True, False, False, False]
