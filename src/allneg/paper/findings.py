"""docs/findings.md."""

from __future__ import annotations

from collections.abc import Sequence

from allneg.paper.numbers import Number
from allneg.paper.results import Results


def findings(results: Results, numbers: Sequence[Number]) -> str:
    return "# Findings\n"
