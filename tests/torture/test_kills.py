"""A few rounds of `make torture`."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from kills import kill_in_saving, kill_in_training


@pytest.mark.battery(21)
def test_a_run_killed_at_random_moments_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    tally = kill_in_training(4, tmp_path, random.Random(0))
    assert tally.failures == ()
    assert tally.kills == 4


@pytest.mark.battery(22)
def test_a_process_killed_at_random_moments_of_saving_leaves_a_complete_run(tmp_path: Path) -> None:
    tally = kill_in_saving(8, tmp_path, random.Random(0))
    assert tally.failures == ()
    assert tally.kills == 8
    assert tally.in_saves > 0
