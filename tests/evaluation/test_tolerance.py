"""Scores within a protocol's tolerance are equal; scores just outside are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from allneg.evaluation.ranks import Protocol, count_candidates
from allneg.graph.queries import KnownAnswers, Queries
from allneg.scoring import Shard

ELSEWHERE = KnownAnswers.of([np.array([[1, 0, 2]])], 6, 1)
ANSWER = 4.0


@pytest.mark.parametrize(
    "relative, absolute",
    [(0.0, 0.5), (0.125, 0.0), (0.0625, 0.25)],
    ids=["absolute", "relative", "both"],
)
def test_a_score_at_the_edge_of_the_tolerance_is_equal(relative: float, absolute: float) -> None:
    """Under each protocol 0.5 is the tolerance at 4; all numbers are exact."""
    rule = Protocol("mine", "middle", relative=relative, absolute=absolute)
    # The answer is first; then two scores at the edges, two just outside, one far below.
    values = torch.tensor([[ANSWER, 4.5, 3.5, 4.5625, 3.4375, -9.0]])
    queries = Queries.of(torch.tensor([[3, 0, 0]]), "tail")
    assert count_candidates(values, queries, ELSEWHERE, rule, Shard.whole(6)).tolist() == [[1, 2]]
