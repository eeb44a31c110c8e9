"""A few inputs of the fuzz target for whole run folders; `make fuzz-folders` runs 100,000."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from folders import ACTIONS, CHANGES, Fuzzer


@pytest.mark.battery(55)
def test_a_run_changed_at_random_is_used_or_refused_and_nothing_else_changes(
    tmp_path: Path,
) -> None:
    fuzzer = Fuzzer(tmp_path)
    for seed in range(120):
        fuzzer.run(seed)
    assert fuzzer.outcomes.total() == 120
    done = {outcome.partition(" ")[0] for outcome in fuzzer.outcomes}
    assert done == set(ACTIONS)
    assert {"used", "refused with 4"} <= {outcome.partition(" ")[2] for outcome in fuzzer.outcomes}
    assert fuzzer.changes.keys() == set(CHANGES)
