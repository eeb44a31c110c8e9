"""Multi-hop questions → answers with reasons (complex query decomposition, arXiv 2011.03459).

The probability of an answer is a t-norm of the probabilities of all links, for the entities of the
other variables that make it highest. The t-conorm joins alternatives. From a variable, `beam` or
more entities are followed; if these are all, the result is exact. Values are log probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from allneg.errors import DataError, UsageError
from allneg.evaluation.calibration import Calibration
from allneg.evaluation.within import Within
from allneg.graph.queries import SIDES, Queries
from allneg.predict.predictor import Predictor, check_count
from allneg.predict.question import CONSTANT, Link, Question
from allneg.predict.scorer import check_finite

NORMS = ("product", "minimum")
SCORES = {"calibrated": "probability", "softmax": "softmax share"}  # and what they are called
_BLOCK = 1 << 24  # scores in memory at once
_BEST = 2  # times the beam: so many answers are exact, unless the widest beam is too narrow
_WIDEST = 16  # times the beam
_UNSEEN = 4.6  # an entity that train lacks with the next relation is worth 1 % in the choice


@dataclass(frozen=True)
class Step:
    """A fact that an answer rests on."""

    head: str
    relation: str
    tail: str
    probability: float  # of the fact; if negated, that it is false
    known: str | None  # the split that holds the fact; None for an inferred one
    negated: bool
    scores: str  # what the probability is: calibrated, or softmax for a share of all entities

    def __str__(self) -> str:
        fact = f"{'not: ' * self.negated}{self.head} {self.relation} {self.tail}"
        about = "but {} has this fact" if self.negated else "known from {}"
        known = f", {about.format(self.known)}" if self.known else ""
        return f"{fact} ({SCORES[self.scores]} {self.probability:.2f}{known})"


@dataclass(frozen=True)
class Answer:
    """An answer to a question, and the facts of its best derivation, as the question has them."""

    entity: str
    probability: float
    steps: tuple[Step, ...]
    scores: str  # calibrated or softmax, as those of the steps

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "steps": [dict(vars(step)) for step in self.steps]}


def text_facts(answers: Sequence[Answer]) -> list[str]:
    """The distinct facts that answers rest on, as lines for the prompt of a language model."""
    return list(dict.fromkeys(str(step) for answer in answers for step in answer.steps))


class Found(NamedTuple):
    """The value of each entity as one variable, and the entities of the others that give it."""

    value: Tensor  # (B, N)
    best: Mapping[int, Tensor]  # int64 (B, N), by the number of the other variable

    def rows(self, index: Tensor) -> Found:
        return Found(self.value[index], {v: part[index] for v, part in self.best.items()})


Given = Mapping[int, Found]  # by variable


@dataclass(frozen=True)
class Search:
    """How questions are answered. Facts in the splits `facts` are certain."""

    predictor: Predictor
    beam: int = 64
    norm: str = "product"
    scores: str | None = None  # calibrated if valid is not empty, else softmax
    facts: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise UsageError(f"beam is {self.beam}; use at least 1")
        if self.norm not in NORMS:
            raise UsageError(f"norm is {self.norm!r}; use {' or '.join(NORMS)}")
        if self.scores not in (None, *SCORES):
            raise UsageError(f"scores is {self.scores!r}; use {' or '.join(SCORES)}")
        if self.scores == "calibrated" and self.predictor.calibration is None:
            raise DataError("there is no calibration without valid; use softmax scores")

    @property
    def _calibration(self) -> Calibration | None:
        return None if self.scores == "softmax" else self.predictor.calibration

    @property
    def _kind(self) -> str:
        return "softmax" if self._calibration is None else "calibrated"

    @torch.no_grad()
    def answers(self, text: str, k: int) -> list[Answer]:
        """The `k` best answers, best first; equal ones in the order of their ids."""
        check_count(k)
        question = Question.parse(text, self.predictor.graph.vocabulary)
        ((_, value, found),) = self.values([question])
        best, order = (part[0, :k] for part in value.sort(stable=True, dim=1, descending=True))
        if not len(order := order[best > -torch.inf]):
            return []
        derivations = []
        for links, part in zip(question.alternatives, found, strict=True):
            at = {0: order, **{v: other[0, order] for v, other in part.best.items()}}
            derivations.append(list(zip(*(self._steps(link, at) for link in links), strict=True)))
        chosen = torch.stack([part.value[0, order] for part in found]).argmax(0).tolist()
        names = self.predictor.graph.vocabulary.entities
        rows = enumerate(zip(order.tolist(), best.exp().tolist(), chosen, strict=False))
        return [Answer(names[e], p, derivations[which][i], self._kind) for i, (e, p, which) in rows]

    def _steps(self, link: Link, at: Mapping[int, Tensor]) -> list[Step]:
        """A link as a fact, for each answer; `at` are the entities of its variables."""
        target = at[link.target]
        source = at.get(link.source, torch.full_like(target, link.constant))
        relation = torch.full_like(target, link.relation)
        queries = Queries.for_side(SIDES[link.side], source, relation, target)
        parts = [queries[i : i + self.size(1)] for i in range(0, len(target), self.size(1))]
        value = [self._link(part, link.negated).gather(1, part.answer[:, None]) for part in parts]
        p, names = torch.cat(value).exp().flatten().tolist(), self.predictor.graph.vocabulary
        facts = torch.stack([source, relation, target][:: 1 - 2 * link.side], 1).cpu().numpy()
        return [
            Step(
                names.entities[h], names.relations[r], names.entities[t], p, known, link.negated,
                self._kind,
            )
            for (h, r, t), p, known in zip(facts, p, self.predictor.splits_of(facts), strict=True)
        ]  # fmt: skip

    @torch.no_grad()
    def values(self, asked: Sequence[Question]) -> Iterator[tuple[list[int], Tensor, list[Found]]]:
        """The values of all entities as answers, (B, N), for B questions of one shape at a time.

        Before them, the indices of the questions; after them, what each alternative found.
        """
        shapes: dict[object, list[int]] = {}
        for i, question in enumerate(asked):
            shape = tuple(tuple(link[:3] for link in links) for links in question.alternatives)
            shapes.setdefault(shape, []).append(i)
        size = self.size(self.beam)
        for members in shapes.values():
            for some in (members[i : i + size] for i in range(0, len(members), size)):
                found = []
                for links in zip(*(asked[i].alternatives for i in some), strict=True):
                    ids = torch.tensor([[link[3:] for link in of] for of in links])
                    found.append(self._solve(links[0], ids.to(self.predictor.tables.device), {}))
                yield some, reduce(self._either, (part.value for part in found)), found

    def _solve(self, links: Sequence[Link], ids: Tensor, given: Given) -> Found:
        """The values of variable 0, from what is `given` for some variables; ids: (B, links, 3).

        The variable with the highest number has no links from other variables. If all its links
        lead to one variable, a hop there eliminates it. Else it is fixed for all that follows.
        """
        variable = max((link.source for link in links), default=CONSTANT)
        certain = Found(torch.zeros((), device=ids.device), {})
        here = given.get(max(variable, 0), certain)
        for i, link in enumerate(links):
            if link.source == CONSTANT and link.target == max(variable, 0):
                queries = Queries(*ids[:, i, [0, 1, 2, 1]].unbind(1))  # the answer is not used
                here = self._both(here, Found(self._link(queries, link.negated), {}))
        if variable == CONSTANT:
            return here
        later = [i for i, link in enumerate(links) if link.target < variable]
        hop = [i for i in later if links[i].source == variable]
        target, *others = {links[i].target for i in hop}
        if others:
            return self._follow(here, [links[i] for i in later], ids[:, later], given, self.beam)
        rest, inner = [i for i in later if i not in hop], [links[i]._replace(target=0) for i in hop]
        is_last = not rest and target not in given
        k = self.beam * (_BEST if is_last else _WIDEST)  # of another hop: its widest beam
        message = self._follow(here, inner, ids[:, hop], {}, k)
        given = {**given, target: self._both(given.get(target, certain), message)}
        return self._solve([links[i] for i in rest], ids[:, rest], given)

    def _follow(self, here: Found, links: list[Link], ids: Tensor, given: Given, k: int) -> Found:
        """Solve links with the highest variable fixed to each entity of its beam; keep the best.

        After the beam, more entities are followed if they could give one of the `k` best values: a
        value is at most the weight of its entity. At most `_WIDEST` times the beam are followed.
        """
        seen, likely = Within("seen", train=self.predictor.known["train"]), here.value
        variable, left = max(link.source for link in links), torch.arange(len(ids)).to(ids.device)
        size, width = min(self.beam, self.size(len(ids))), min(_WIDEST * self.beam, likely.shape[1])
        fixed = [i for i, link in enumerate(links) if link.source == variable]
        for i in fixed:
            links[i], (side, entity, relation) = links[i]._replace(source=CONSTANT), ids[:, i].T
            likely = likely - _UNSEEN * seen.outside(Queries(1 - side, entity, relation, entity))
        value, best = torch.full_like(here.value, -torch.inf), dict[int, Tensor]()
        weight, beam = here.value.where(likely >= likely.topk(width)[0][:, -1:], value).topk(width)
        starts = sorted({*range(0, width, self.beam), *range(0, width, size)})
        for start, stop in zip(starts, [*starts[1:], width], strict=True):
            if start and start % self.beam == 0:
                bar = value[left].topk(min(k, width)).values[:, -1]
                left = left[(weight[left, start] >= bar) & weight[left, start].isfinite()]
            if not len(left):
                break
            rows, entity = left.repeat_interleave(stop - start), beam[left, start:stop].flatten()
            some = ids[rows]
            some[:, fixed, 1] = entity.unsqueeze(1)
            inner = self._solve(links, some, {v: found.rows(rows) for v, found in given.items()})
            joined = self._norm(inner.value, weight[left, start:stop].reshape(-1, 1))
            new, index = joined.view(len(left), -1, joined.shape[1]).max(1)
            index += torch.arange(0, len(rows), len(rows) // len(left), device=rows.device)[:, None]
            is_better = new > value[left]
            value[left] = torch.maximum(new, value[left])
            for v, part in {variable: entity[:, None].expand_as(joined), **inner.best}.items():
                old = best.setdefault(v, torch.zeros_like(index))
                old[left] = torch.where(is_better, part.gather(0, index), old[left])
        before = {v: part.gather(1, best[variable]) for v, part in here.best.items()}
        return Found(value, {**best, **before})

    def _link(self, queries: Queries, negated: bool) -> Tensor:
        """The value of every entity as the target of a link: (B, N)."""
        values = self.predictor.scores(queries)
        check_finite(values)
        if self._calibration is None:
            values = values.log_softmax(1)
        else:
            margins = values - self.predictor.log_sum_of_new(values, queries).unsqueeze(1)
            values = self._calibration.on_device(queries.side, margins).log()
        for split in self.predictor.known.keys() & self.facts:
            values[self.predictor.known[split].pairs(queries)] = 0
        return _opposite(values) if negated else values

    def _both(self, one: Found, other: Found) -> Found:
        return Found(self._norm(one.value, other.value), {**one.best, **other.best})

    def _norm(self, one: Tensor, other: Tensor) -> Tensor:
        return one + other if self.norm == "product" else torch.minimum(one, other)

    def _either(self, one: Tensor, other: Tensor) -> Tensor:
        if self.norm == "minimum":
            return torch.maximum(one, other)
        return torch.logaddexp(one, other + _opposite(one)).clamp(max=0)  # p + q - p q

    def size(self, rows: int) -> int:
        """How many times `rows` rows of scores fit in memory, at least once."""
        return max(1, _BLOCK // (self.predictor.graph.n_entities * rows))


def _opposite(value: Tensor) -> Tensor:
    """log(1 - p) of log(p)."""
    return torch.log(-torch.expm1(value))
