"""Scores that count as equal: what is within a protocol's tolerance, and what is just outside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from allneg.evaluation.protocol import Protocol
from allneg.evaluation.ranks import places
from allneg.graph.known import KnownAnswers
from allneg.graph.queries import Queries

ELSEWHERE = KnownAnswers.of([np.array([[1, 0, 2]])], 6, 1)
ANSWER = 4.0


@pytest.mark.parametrize(
    "relative, absolute",
    [(0.0, 0.5), (0.125, 0.0), (0.0625, 0.25)],
    ids=["absolute", "relative", "both"],
)
def test_a_score_at_the_edge_of_the_tolerance_is_equal(relative: float, absolute: float) -> None:
    """Each rule says that 0.5 is near enough to 4; all numbers are exact."""
    rule = Protocol("mine", "middle", relative=relative, absolute=absolute)
    # The answer comes first: two rivals at the edges, two just outside, one far below.
    values = torch.tensor([[ANSWER, 4.5, 3.5, 4.5625, 3.4375, -9.0]])
    queries = Queries.of(torch.tensor([[3, 0, 0]]), "tail")
    assert places(values, queries, ELSEWHERE, rule).tolist() == [[1, 2]]
