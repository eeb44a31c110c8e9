"""Sets of questions with held-out answers: read from a file, and ranked.

Easy answers follow from the splits before the held-out one; hard answers do not. The program
benchmarks/make_queries.py makes such files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from allneg.errors import AllnegError, DataError
from allneg.evaluation.report import metrics_of
from allneg.graph.graph import Vocabulary
from allneg.kernels.fused import count_ranks
from allneg.predict.ask import Search
from allneg.predict.question import Question
from allneg.runs.files import parse_json


class Asked(NamedTuple):
    """A question with its answers."""

    shape: str
    question: Question
    easy: Sequence[int]
    hard: Sequence[int]


def read_queries(path: Path, names: Vocabulary) -> list[Asked]:
    """The questions in a file, which has one JSON object per line."""
    found: list[Asked] = []
    try:
        for line in path.read_bytes().splitlines():
            content = parse_json(line)
            easy, hard = (list(map(names.entity, content[kind])) for kind in ("easy", "hard"))
            question = Question.parse(content["question"], names)
            found.append(Asked(str(content["shape"]), question, easy, hard))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError, AllnegError) as error:
        needed = "expected a JSON object with shape, question, easy and hard"
        why = error if isinstance(error, AllnegError) else needed
        raise DataError(f"{path.name}:{len(found) + 1}: {why}") from None
    if not any(asked.hard for asked in found):
        raise DataError(f"{path}: no hard answers to rank")
    return found


@torch.no_grad()
def evaluate_queries(search: Search, asked: Sequence[Asked]) -> dict[str, dict[str, Any]]:
    """The metrics of each shape. Every question counts the same, however many hard answers it has.

    A hard answer is ranked among all entities that are no answers; ties share the middle place.
    """
    asked = [item for item in asked if item.hard]
    ranks: list[npt.NDArray[np.float64]] = [np.zeros(0)] * len(asked)
    for members, value, _ in search.values([item.question for item in asked]):
        hard = [(b, e) for b, i in enumerate(members) for e in asked[i].hard]
        easy = [(b, e) for b, i in enumerate(members) for e in asked[i].easy]
        pairs = torch.tensor(hard + easy, device=value.device).view(-1, 2)
        row, answer = pairs[: len(hard), 0], value[tuple(pairs[: len(hard)].T)]
        value[tuple(pairs.T)] = torch.nan  # neither above an answer nor equal to it
        parts = (part.split(search.size(1)) for part in (row, answer))
        counts = torch.cat([count_ranks(value[r], a) for r, a in zip(*parts, strict=True)])
        better, equal = counts.T.cpu().numpy()
        ends = np.cumsum([len(asked[i].hard) for i in members])
        for i, of_question in zip(members, np.split(1 + better + equal / 2, ends), strict=False):
            ranks[i] = of_question
    found = {}
    for shape in dict.fromkeys(item.shape for item in asked):
        some = [r for r, item in zip(ranks, asked, strict=True) if item.shape == shape]
        weights = np.concatenate([np.full(len(r), 1 / len(r)) for r in some])
        found[shape] = {**metrics_of(np.concatenate(some), weights), "questions": len(some)}
    return found
