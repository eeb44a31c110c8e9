"""What processes decide together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from allneg.scoring.shard import Pending
from allneg.training.launch import StepDecision


def test_what_is_about_to_be_saved_is_not_saved_twice() -> None:
    """An answer comes a step late: until then it is still time to save."""
    alone = SimpleNamespace(begin_most=lambda number: Pending())
    world: Any = SimpleNamespace(size=2, leads=True, everyone=alone)
    decision = StepDecision(world, lambda: 0)
    saves = [decision(is_due)[1] for is_due in (False, True, True, False, False, False)]
    assert saves == [False, False, True, False, False, False]
