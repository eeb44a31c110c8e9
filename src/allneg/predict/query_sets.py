"""Sets of questions with held-out answers: read from a file, and ranked.

Easy answers follow from the splits before the held-out one; hard answers do not.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from allneg.errors import AllnegError, DataError
from allneg.evaluation.report import metrics_of
from allneg.graph.graph import Vocabulary
from allneg.kernels.fused import count_ranks
from allneg.predict.ask import Search
from allneg.predict.query_files import read_errors
from allneg.predict.question import Question
from allneg.runs.files import parse_json

_EXPECTED = "expected a JSON object with shape, question, and lists of easy and hard answers"


class Asked(NamedTuple):
    """A question with its answers."""

    shape: str
    question: Question
    easy: Sequence[int]
    hard: Sequence[int]


def read_queries(path: Path, names: Vocabulary) -> list[Asked]:
    """The questions in a file, which has one JSON object per line."""
    with read_errors(path):
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    found = list[Asked]()
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                found.append(_asked(parse_json(line), names))
        except (KeyError, TypeError, ValueError, AllnegError) as error:
            why = str(error) if isinstance(error, AllnegError) else _EXPECTED
            raise DataError(f"{path.name}:{number}: {why}") from None
    if not any(asked.hard for asked in found):
        raise DataError(f"{path}: no hard answers to rank")
    return found


def _asked(content: Any, names: Vocabulary) -> Asked:
    shape, easy, hard = content["shape"], content["easy"], content["hard"]
    if not (isinstance(shape, str) and isinstance(easy, list) and isinstance(hard, list)):
        raise TypeError(_EXPECTED)
    question = Question.parse(content["question"], names)
    easy, hard = (list(map(names.entity, answers)) for answers in (easy, hard))
    if len({*easy, *hard}) < len(easy) + len(hard):
        raise DataError("an answer appears twice in easy and hard")
    return Asked(shape, question, easy, hard)


@torch.no_grad()
def evaluate_queries(search: Search, asked: Sequence[Asked]) -> dict[str, dict[str, Any]]:
    """The metrics of each shape. Every question counts the same, however many hard answers it has.

    A hard answer is ranked among all entities that are no answers; ties share the middle place.
    """
    asked = [item for item in asked if item.hard]
    of_rank, ranks = list[Asked](), []
    for members, value, _ in search.values([item.question for item in asked]):
        hard = [(b, e) for b, i in enumerate(members) for e in asked[i].hard]
        easy = [(b, e) for b, i in enumerate(members) for e in asked[i].easy]
        pairs = torch.tensor(hard + easy, device=value.device)
        row, answer = pairs[: len(hard), 0], value[tuple(pairs[: len(hard)].T)]
        value[tuple(pairs.T)] = torch.nan  # neither above an answer nor equal to it
        for r, own in zip(*(part.split(search.size(1)) for part in (row, answer)), strict=True):
            better, equal = count_ranks(value, own, row=r).double().T
            ranks.append(1 + better + equal / 2)
        of_rank += [asked[members[b]] for b, _ in hard]
    rank, weight = torch.cat(ranks).cpu().numpy(), np.array([1 / len(a.hard) for a in of_rank])
    found = {}
    for shape in dict.fromkeys(item.shape for item in asked):
        some = np.array([item.shape == shape for item in of_rank])
        metrics = metrics_of(rank[some], weight[some])
        found[shape] = {**metrics, "questions": round(weight[some].sum())}
    return found
