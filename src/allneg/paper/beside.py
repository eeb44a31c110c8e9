"""Our number beside the paper's: means and spreads over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allneg.evaluation.report import HITS
from allneg.paper.numbers import Number
from allneg.paper.results import Result


@dataclass(frozen=True)
class Beside:
    """A number, and what its result file says; nothing where there is none."""

    number: Number
    mrr: float | None = None  # mean over seeds
    mrrs: tuple[float, ...] = ()  # of each seed
    spread: float | None = None  # standard deviation over seeds, where there are several
    hits: Mapping[str, float] = field(default_factory=dict)  # means
    valid_mrr: float | None = None
    seeds: tuple[int, ...] = ()
    negatives: int = 0  # that its recipe compares with; 0: not known
    seconds: float | None = None  # mean of a seed's training
    peak_bytes: int | None = None
    device: str | None = None
    protocol: str | None = None  # in words

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, which has two digits."""
        if self.mrr is None or self.number.paper is None:
            return None
        return self.mrr - self.number.paper.mrr

    @property
    def prints_as_the_paper(self) -> bool:
        """Is it the paper's number, or more, in the two digits that the paper prints?"""
        if self.mrr is None or self.number.paper is None:
            return False
        return round(self.mrr, 2) >= self.number.paper.mrr

    def to_json(self) -> dict[str, Any]:
        paper = vars(self.number.paper) if self.number.paper else None
        about = {"part": self.number.part, "data": self.number.data, "row": self.number.row}
        ours = {name: value for name, value in vars(self).items() if name != "number"}
        return {**about, "paper": paper, "ours": ours, "difference": self.difference}


def beside(number: Number, result: Result | None) -> Beside:
    if result is None or not result.seeds:
        return Beside(number)
    mrrs = result.values("mrr")
    peaks = [each["peak_bytes"] for each in result.seeds if each["peak_bytes"] is not None]
    valid = [each["valid_mrr"] for each in result.seeds if each["valid_mrr"] is not None]
    return Beside(
        number,
        mrr=statistics.fmean(mrrs),
        mrrs=tuple(mrrs),
        spread=statistics.stdev(mrrs) if len(mrrs) > 1 else None,
        hits={str(k): statistics.fmean(result.values("hits", str(k))) for k in HITS},
        valid_mrr=statistics.fmean(valid) if valid else None,
        seeds=tuple(each["seed"] for each in result.seeds),
        negatives=result.negatives,
        seconds=statistics.fmean(result.values("seconds")),
        peak_bytes=max(peaks, default=None),
        device=", ".join(sorted({each["machine"]["device"] for each in result.seeds})),
        protocol=str(result.seeds[0]["protocol"]["in_words"]),
    )
