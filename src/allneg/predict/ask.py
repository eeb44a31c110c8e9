"""Questions of several hops → answers with reasons (complex query decomposition, arXiv 2011.03459).

The probability of an answer is a t-norm of the probabilities of all links, for the entities of the
other variables that make it highest. From each variable, only the `beam` most probable entities are
followed, or more where many are about as probable; if these are all entities, the result is exact.
The t-conorm joins alternatives. Values are logarithms of probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from allneg.errors import DataError, UsageError
from allneg.graph.queries import SIDES, Queries
from allneg.predict.predictor import Predictor, check_finite
from allneg.predict.question import CONSTANT, Link, Question

NORMS = ("product", "minimum")
SCORES = ("calibrated", "softmax")
_BLOCK = {"cuda": 1 << 27}  # scores in memory at once
_CPU_BLOCK = 1 << 22
_NEAR, _WIDEST = -math.log(2), 8  # when the beam is wider, and how many times


@dataclass(frozen=True)
class Step:
    """A fact that an answer rests on."""

    head: str
    relation: str
    tail: str
    probability: float  # of the fact; if negated, that it is false
    known: str | None  # the split that holds the fact; None for an inferred one
    negated: bool

    def __str__(self) -> str:
        fact = f"{'not: ' * self.negated}{self.head} {self.relation} {self.tail}"
        known = f", known from {self.known}" if self.known else ""
        return f"{fact} (probability {self.probability:.2f}{known})"


@dataclass(frozen=True)
class Answer:
    """An answer to a question, and the facts of its best derivation, as the question has them."""

    entity: str
    probability: float
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "steps": [dict(vars(step)) for step in self.steps]}


def text_facts(answers: Sequence[Answer]) -> list[str]:
    """The distinct facts that answers rest on, as lines for the prompt of a language model."""
    return list(dict.fromkeys(str(step) for answer in answers for step in answer.steps))


@dataclass(frozen=True)
class Found:
    """The value of each entity as one variable, and the entities of the others that give it."""

    value: Tensor  # (B, N)
    best: Mapping[int, Tensor]  # int64 (B, N), by the number of the other variable

    def rows(self, index: Tensor) -> Found:
        return Found(self.value[index], {v: part[index] for v, part in self.best.items()})

    def improve(self, index: Tensor, other: Found) -> None:
        """Take what is better in another result for some rows."""
        is_better = other.value > self.value[index]
        self.value[index] = torch.maximum(self.value[index], other.value)
        for v, part in self.best.items():
            part[index] = torch.where(is_better, other.best[v], part[index])


@dataclass(frozen=True)
class Search:
    """How questions are answered. Facts in the splits `facts` are certain."""

    predictor: Predictor
    beam: int = 64
    norm: str = "product"
    scores: str | None = None  # calibrated if valid is not empty, else softmax
    facts: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.beam < 1 or self.norm not in NORMS or self.scores not in (None, *SCORES):
            choices = f"norm {' or '.join(NORMS)}, and scores {' or '.join(SCORES)}"
            raise UsageError(f"use a beam of at least 1, {choices}")
        if self.scores == "calibrated" and self.predictor.calibration is None:
            raise DataError("there is no calibration without valid; use softmax scores")

    @torch.no_grad()
    def answers(self, question: Question, k: int) -> list[Answer]:
        """The `k` best answers, best first; equal ones in the order of their ids."""
        if k < 1:
            raise UsageError(f"the number of answers is {k}; use at least 1")
        ((_, value, found),) = self.values([question])
        best, entity = (part[0, :k] for part in value.sort(stable=True, dim=1, descending=True))
        entity = entity[best > -torch.inf]
        if not len(entity):
            return []
        derivations, ids = [], iter(question.ids)
        for links, part in zip(question.alternatives, found, strict=True):
            at = {0: entity, **{v: other[0, entity] for v, other in part.best.items()}}
            steps = [self._steps(link, next(ids), at) for link in links]
            derivations.append(list(zip(*steps, strict=True)))
        chosen = torch.stack([part.value[0, entity] for part in found]).argmax(0).tolist()
        names = self.predictor.graph.vocabulary.entities
        rows = enumerate(zip(entity.tolist(), best.exp().tolist(), chosen, strict=False))
        return [Answer(names[e], p, derivations[which][i]) for i, (e, p, which) in rows]

    def _steps(self, link: Link, ids: tuple[int, int, int], at: Mapping[int, Tensor]) -> list[Step]:
        """A link as a fact, for each answer; `at` are the entities of its variables."""
        target, (side, constant, relation) = at[link.target], ids
        source = at.get(link.source, torch.full_like(target, constant))
        queries = Queries.for_side(SIDES[side], source, torch.full_like(source, relation), target)
        starts = range(0, len(queries), self.size(1))
        parts = [queries[start : start + self.size(1)] for start in starts]
        value = [self._link(part, link.negated).gather(1, part.answer[:, None]) for part in parts]
        ends = (source, target) if side == 0 else (target, source)
        triples = torch.stack([ends[0], queries.relation, ends[1]], 1).cpu().numpy()
        p, known = torch.cat(value).exp().squeeze(1).tolist(), self.predictor.splits_of(triples)
        names = self.predictor.graph.vocabulary
        name, relation_name = names.entities, names.relations[relation]
        return [
            Step(name[h], relation_name, name[t], p[i], known[i], link.negated)
            for i, (h, _, t) in enumerate(triples.tolist())
        ]

    @torch.no_grad()
    def values(
        self, questions: Sequence[Question]
    ) -> Iterator[tuple[list[int], Tensor, list[Found]]]:
        """The values of all entities as answers, (B, N), for B questions of one shape at a time.

        Also the indices of these questions, and what each alternative found.
        """
        shapes: dict[tuple[tuple[Link, ...], ...], list[int]] = {}
        for i, question in enumerate(questions):
            shapes.setdefault(question.alternatives, []).append(i)
        for alternatives, members in shapes.items():
            has_hops = any(link.target for links in alternatives for link in links)
            size = self.size(min(self.beam, self.predictor.graph.n_entities) if has_hops else 1)
            for start in range(0, len(members), size):
                some = members[start : start + size]
                ids = torch.tensor([questions[i].ids for i in some])
                parts = ids.to(self.predictor.tables.device).split(
                    [len(links) for links in alternatives], 1
                )
                found = [self._solve(*pair, {}) for pair in zip(alternatives, parts, strict=True)]
                yield some, reduce(self._either, (part.value for part in found)), found

    def _solve(self, links: Sequence[Link], ids: Tensor, given: Mapping[int, Found]) -> Found:
        """The values of variable 0, from what is `given` for some variables; ids: (B, links, 3).

        The variable with the highest number has no links from other variables. If all its links
        lead to one variable, a hop there eliminates it. Else it is fixed for all that follows.
        """
        variable = max((link.source for link in links), default=CONSTANT)
        here = given.get(max(variable, 0))
        for i, link in enumerate(links):
            if link.source == CONSTANT and link.target == max(variable, 0):
                side, entity, relation = ids[:, i].unbind(1)
                value = self._link(Queries(side, entity, relation, entity), link.negated)
                here = self._both(here, Found(value, {}))
        assert here is not None  # a variable without links to it is refused by the parser
        if variable == CONSTANT:
            return here
        later = [i for i, link in enumerate(links) if link.target < variable]
        hop = [i for i in later if links[i].source == variable]
        target, *others = {links[i].target for i in hop}
        if others:
            return self._follow(variable, here, [links[i] for i in later], ids[:, later], given)
        to_target = [links[i]._replace(target=0) for i in hop]
        message = self._follow(variable, here, to_target, ids[:, hop], {})
        rest = [i for i in later if i not in hop]
        given = {**given, target: self._both(given.get(target), message)}
        return self._solve([links[i] for i in rest], ids[:, rest], given)

    def _follow(
        self, variable: int, here: Found, links: list[Link], ids: Tensor, given: Mapping[int, Found]
    ) -> Found:
        """Solve links with a variable fixed to each entity of its beam, and keep the best.

        The beam is up to eight times as wide where more entities are at least half as probable as
        the best one. For example, a region has many cities.
        """
        weight, beam = here.value.topk(min(_WIDEST * self.beam, here.value.shape[1]))
        is_near = weight >= weight[:, :1] + _NEAR
        weight[:, self.beam :].masked_fill_(~is_near[:, self.beam :], -torch.inf)
        fixed = [i for i, link in enumerate(links) if link.source == variable]
        for i in fixed:
            links[i] = links[i]._replace(source=CONSTANT)
        size, whole = min(self.beam, self.size(len(ids))), None
        for entity, w in zip(beam.split(size, 1), weight.split(size, 1), strict=True):
            left = ((w[:, 0] > -torch.inf) | (whole is None)).nonzero().squeeze(1)
            if not len(left):
                break
            entity, w = entity[left], w[left]
            shape = (*entity.shape, -1)  # questions, entities of the beam
            repeated = left.repeat_interleave(shape[1])
            rows = ids[repeated]
            rows[:, fixed, 1] = entity.reshape(-1, 1)
            inner = self._solve(links, rows, {v: f.rows(repeated) for v, f in given.items()})
            value, index = self._norm(inner.value.view(shape), w.unsqueeze(2)).max(1)
            best = {
                v: part.view(shape).gather(1, index.unsqueeze(1)).squeeze(1)
                for v, part in inner.best.items()
            }
            found = Found(value, {variable: entity.gather(1, index), **best})
            if whole is None:
                whole = found
            else:
                whole.improve(left, found)
        assert whole is not None  # a beam has at least one entity
        before = {v: part.gather(1, whole.best[variable]) for v, part in here.best.items()}
        return Found(whole.value, {**whole.best, **before})

    def _link(self, queries: Queries, negated: bool) -> Tensor:
        """The value of every entity as the target of a link: (B, N)."""
        values = self.predictor.scores(queries)
        check_finite(values)
        calibration = None if self.scores == "softmax" else self.predictor.calibration
        if calibration is None:
            values = values.log_softmax(1)
        else:
            margins = values - self.predictor.log_sum_of_new(values, queries).unsqueeze(1)
            values = calibration.on_device(queries.side, margins).log()
        for split in self.facts:
            values[self.predictor.known[split].pairs(queries)] = 0
        return _opposite(values) if negated else values

    def _both(self, one: Found | None, other: Found) -> Found:
        if one is None:
            return other
        return Found(self._norm(one.value, other.value), {**one.best, **other.best})

    def _norm(self, one: Tensor, other: Tensor) -> Tensor:
        return one + other if self.norm == "product" else torch.minimum(one, other)

    def _either(self, one: Tensor, other: Tensor) -> Tensor:
        if self.norm == "minimum":
            return torch.maximum(one, other)
        return torch.logaddexp(one, other + _opposite(one)).clamp(max=0)  # p + q - p q

    def size(self, rows: int) -> int:
        """How many times `rows` rows of scores fit in memory, at least once."""
        block = _BLOCK.get(self.predictor.tables.device.type, _CPU_BLOCK)
        return max(1, block // (self.predictor.graph.n_entities * rows))


def _opposite(value: Tensor) -> Tensor:
    """log(1 - p) of log(p)."""
    return torch.log(-torch.expm1(value))
