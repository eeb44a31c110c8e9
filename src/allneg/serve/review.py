"""Facts to accept or reject: missing ones, which a run finds, and suspicious ones of an audit."""

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from allneg.errors import DataError, printable
from allneg.evaluation.within import Within
from allneg.graph.lines import split_line
from allneg.predict.complete import Completion
from allneg.predict.query_files import read_errors, read_lines
from allneg.serve import schemas
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.server import ApiError

_MOST_PRODUCTS = 1 << 35  # of numbers, per request: some seconds on two cores
_MOST_SECONDS = 10.0  # a model that has learned little takes longer
_PER_SCORE = 256  # products that take as long as all else that is done with a score
_COLUMNS = [field.name for field in fields(schemas.SuspiciousFact)]


def missing(
    run: LoadedRun, relation: str, within: str | None, least: float, start: int, k: int
) -> schemas.Missing:
    """The `k` most probable new facts with a relation and a probability of at least `least`.

    The work is bounded: only as many heads are asked as it allows, from number `start` on. Heads
    with more known facts come first. The search is exact for them, unless time runs out.
    """
    began = time.perf_counter()
    r, predictor = run.relation_id(relation), run.predictor
    restriction = None if within is None else _within(run, within)
    heads = np.argsort(-run.facts.degree, kind="stable")
    if restriction is not None:
        heads = heads[restriction.allowed(1, r).cpu().numpy()[heads]]
    per_head = len(run.facts.degree) * (predictor.model.entity_width + _PER_SCORE)
    size = max(1, _MOST_PRODUCTS // per_head)
    asked, facts, stop, exact = heads[start : start + size], [], start, True
    if len(asked):
        search = Completion(predictor, [r], k, least, restriction, torch.from_numpy(asked))

        def is_late() -> bool:
            return search.done > 0 and time.perf_counter() - began > _MOST_SECONDS

        exact = search.run(stopped_by=is_late)
        facts, stop = list(search.facts()), start + search.done
    labels = run.labels_of(name for fact in facts for name in (fact.head, fact.tail))
    seconds = time.perf_counter() - began
    return schemas.Missing(facts, labels, start, stop, len(heads), exact, seconds)


def _within(run: LoadedRun, text: str) -> Within:
    if text == "seen":
        return Within(text, train=run.predictor.known["train"])
    if not text.startswith("type="):  # else it would name a file of the server
        raise ApiError("bad_parameter", "within: write seen or type=RELATION:OBJECT")
    return Within.parse(text, run.graph, run.predictor.tables.device)


def suspicious(
    run: LoadedRun,
    facts: Sequence[schemas.SuspiciousFact],
    relation: str | None,
    start: int,
    k: int,
) -> schemas.Suspicious:
    """`k` facts of an audit with a relation, or with any, from number `start` on."""
    found = [fact for fact in facts if relation in (None, fact.relation)]
    some = found[start : start + k]
    labels = run.labels_of(name for fact in some for name in (fact.head, fact.tail))
    counts = Counter(fact.relation for fact in facts)
    return schemas.Suspicious(some, labels, len(found), dict(counts))


def read_suspicious(path: Path) -> list[schemas.SuspiciousFact]:
    """The facts in a .tsv, .csv or .jsonl file of `allneg audit`."""
    with read_errors(path):
        lines = read_lines(path)
    found, separator = [], "," if path.suffix == ".csv" else "\t"
    for number, line in enumerate(lines, 1):
        try:
            if path.suffix == ".jsonl":
                row = json.loads(line)
                values = [row[name] for name in _COLUMNS]
            else:
                values, _ = split_line(line, separator)
            if separator == "," and values == _COLUMNS:
                continue
            head, relation, tail, *numbers, expected, reason = map(str, values)
            probability, head_rank, tail_rank = map(float, numbers)
            if not math.isfinite(probability + head_rank + tail_rank):
                raise ValueError
            fact = head, relation, tail, probability, head_rank, tail_rank, expected, reason
            found.append(schemas.SuspiciousFact(*fact))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DataError(
                f"{path.name}:{number}: not a line of a file that `allneg audit` writes: "
                f"{printable(line)}"
            ) from None
    return found
