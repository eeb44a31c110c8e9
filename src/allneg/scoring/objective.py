"""Questions → one number to minimise, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from allneg.graph.graph import Graph
from allneg.graph.known import KnownAnswers
from allneg.graph.questions import Questions
from allneg.kernels import dot
from allneg.models import Model
from allneg.recipe import Loss, Penalty
from allneg.scoring.loss import LOSSES
from allneg.scoring.penalty import penalties
from allneg.scoring.scores import query_of
from allneg.scoring.streamed import Rivals, losses
from allneg.scoring.tables import Looked, Tables


@dataclass(frozen=True)
class Drawn:
    """What chance decides for a batch, drawn once so that every part of the batch sees it."""

    shared: Tensor | None = None  # int64 (C,): candidates of the batch, sorted
    offset: Tensor | None = None  # (C,): added to their scores, the sample's correction
    no_rivals: Tensor | None = None  # int64: columns of `shared` that were not drawn
    own: Tensor | None = None  # int64 (B, C): candidates of each question, the answer first
    keep_entity: Tensor | None = None  # (B, W): dropout's factors
    keep_relation: Tensor | None = None  # (B, V)

    def part(self, some: slice) -> Drawn:
        by_question = ("own", "keep_entity", "keep_relation")
        cut = {name: getattr(self, name) for name in by_question}
        return replace(self, **{k: v[some] for k, v in cut.items() if v is not None})


@dataclass(frozen=True)
class Objective:
    """The loss and the penalty of a recipe, over the answers known in train."""

    model: Model
    loss: Loss
    penalty: Penalty
    known: KnownAnswers | None  # of train; None where the loss does not need them
    entity_dropout: float = 0.0
    relation_dropout: float = 0.0
    narrow: bool = False  # matrix products of bfloat16 operands
    weights: Tensor | None = None  # (N,): of questions, by their answer

    def value(self, tables: Tables, questions: Questions, generator: Generator) -> Tensor:
        """The batch's mean loss and mean penalty: one number."""
        return next(self.parts(tables, questions, len(questions), generator))

    def parts(
        self, tables: Tables, questions: Questions, size: int, generator: Generator
    ) -> Iterator[Tensor]:
        """Numbers whose sum is `value`, each from `size` questions, to bound the memory."""
        drawn = self.draw(tables, questions, generator)
        share = self.shares(questions)
        for first in range(0, len(questions), size):
            some = slice(first, first + size)
            asked = questions.part(some)
            looked = tables.look(asked)
            each = self.losses(tables, asked, looked, drawn.part(some))
            if self.loss.relation_weight:
                more = self.relation_losses(tables, asked, looked)
                each = each + self.loss.relation_weight * more
            value = (share[some] * each).sum()
            if self.penalty.name != "none":
                cost = penalties(self.model, looked, self.penalty)
                value = value + cost.sum() / len(questions)
            yield value

    def losses(self, tables: Tables, asked: Questions, looked: Looked, drawn: Drawn) -> Tensor:
        """The loss of each question: (B,)."""
        entity, relation = looked.entity, looked.relation
        if drawn.keep_entity is not None:
            entity = entity * drawn.keep_entity
        if drawn.keep_relation is not None:
            relation = relation * drawn.keep_relation
        query = query_of(self.model, entity, relation, asked.side, tables.reciprocal)
        rows, rivals = self._rivals(tables, asked, drawn)
        loss = LOSSES[self.loss.name](self.loss)
        return losses(self._compare, query, rows, loss, rivals, self.loss.block)

    def relation_losses(self, tables: Tables, asked: Questions, looked: Looked) -> Tensor:
        """The loss of asking for each question's relation among all relation rows: (B,)."""
        head, tail, target = looked.entity, looked.answer, asked.relation
        if tables.reciprocal:
            # A head question's relation leads from its entity to its answer, too.
            target = target + tables.n_relations * asked.side
        else:
            tails = asked.side.unsqueeze(1) == 0
            head, tail = torch.where(tails, head, tail), torch.where(tails, tail, head)
        query = self.model.relation_query(head, tail)
        rivals = Rivals(target, len(tables.relations))
        return losses(dot, query, tables.relations, LOSSES["softmax"](Loss()), rivals, Loss.block)

    def draw(self, tables: Tables, questions: Questions, generator: Generator) -> Drawn:
        """Chance's part in this batch."""
        b, n, count = len(questions), tables.shard.total, self.loss.count or 0
        drawn = Drawn(
            keep_entity=_keep(b, self.model.entity_width, self.entity_dropout, generator),
            keep_relation=_keep(b, self.model.relation_width, self.relation_dropout, generator),
        )
        if self.loss.negatives == "shared":
            order = torch.randperm(n, generator=generator, device=generator.device)
            answers = questions.answer.unique()
            shared = torch.cat([answers, order[:count]]).unique()
            offset = _correction(shared, answers, n) if self.loss.correction else None
            no_rivals = None
            if not self.loss.answers_too:
                no_rivals = torch.isin(shared, order[:count], invert=True).nonzero().squeeze(1)
            return replace(drawn, shared=shared, offset=offset, no_rivals=no_rivals)
        if self.loss.negatives == "own":
            own = torch.randint(n, (b, count), generator=generator, device=generator.device)
            return replace(drawn, own=torch.cat([questions.answer.unsqueeze(1), own], dim=1))
        return drawn

    def shares(self, questions: Questions) -> Tensor:
        """Each question's share of the batch's loss: (B,), summing to 1."""
        if self.weights is not None:
            weight = self.weights.index_select(0, questions.answer)
            return weight / weight.sum()
        if not self.loss.subsampling:
            return torch.full_like(questions.entity, 1 / len(questions), dtype=torch.float32)
        # Counts start at 4 for a pair seen once, as in RotatE's code.
        often = self._known.counts(questions) + self._known.counts(questions.turned()) + 6
        weight = often.float().rsqrt()
        return weight / weight.sum()

    @property
    def _known(self) -> KnownAnswers:
        assert self.known is not None, "this loss looks up train's answers"
        return self.known

    def _compare(self, query: Tensor, rows: Tensor) -> Tensor:
        with torch.autocast(query.device.type, torch.bfloat16, enabled=self.narrow):
            return self.model.compare(query, rows).float()

    def _rivals(self, tables: Tables, asked: Questions, drawn: Drawn) -> tuple[Tensor, Rivals]:
        """The rows that are compared, and what their scores mean."""
        masks, target = self.loss.mask_known, asked.answer
        if drawn.own is not None:
            hidden = drawn.own == target.unsqueeze(1)
            if masks:
                hidden |= self._known.contains(asked, drawn.own)
            rivals = Rivals(torch.zeros_like(target), drawn.own.shape[1], _pairs(hidden))
            return tables.rows(drawn.own), rivals
        known = self._known.pairs(asked) if masks else None
        if drawn.shared is None:
            return tables.entities, Rivals(target, len(tables.shard), known)
        if known is not None:
            place = torch.searchsorted(drawn.shared, known[1]).clamp(max=len(drawn.shared) - 1)
            there = drawn.shared[place] == known[1]
            known = known[0][there], place[there]
        if drawn.no_rivals is not None:
            known = _also(known, len(asked), drawn.no_rivals)
        place = torch.searchsorted(drawn.shared, target)
        rivals = Rivals(place, len(drawn.shared), known, drawn.offset)
        return tables.rows(drawn.shared), rivals


def answer_weights(graph: Graph) -> Tensor:
    """DURA's class weights (Zhang et al., 2020): .1, and .9 by how often an entity is in train.

    The most frequent one has 1: (N,).
    """
    ends = torch.from_numpy(graph.train[:, [0, 2]]).flatten()
    often = torch.bincount(ends, minlength=graph.n_entities).float()
    return 0.1 + 0.9 * often / often.max().clamp(min=1)


def _pairs(hidden: Tensor) -> tuple[Tensor, Tensor]:
    question, column = hidden.nonzero(as_tuple=True)
    return question, column


def _also(pairs: tuple[Tensor, Tensor] | None, b: int, columns: Tensor) -> tuple[Tensor, Tensor]:
    """(question, column) pairs, and those of every question with these columns."""
    question = torch.arange(b, device=columns.device).repeat_interleave(len(columns))
    column = columns.repeat(b)
    if pairs is None:
        return question, column
    return torch.cat([pairs[0], question]), torch.cat([pairs[1], column])


def _keep(b: int, width: int, dropout: float, generator: Generator) -> Tensor | None:
    if not dropout:
        return None
    chance = torch.rand(b, width, generator=generator, device=generator.device)
    return (chance >= dropout).float() / (1 - dropout)


def _correction(candidates: Tensor, answers: Tensor, n: int) -> Tensor:
    """log of how many entities each candidate stands for, so that Σ exp estimates the whole sum.

    The batch's answers are always there and stand for themselves; those drawn stand for all
    the others.
    """
    place = torch.searchsorted(answers, candidates).clamp(max=len(answers) - 1)
    is_answer = answers[place] == candidates
    drawn = (~is_answer).sum().clamp(min=1)
    return torch.where(is_answer, 0.0, ((n - len(answers)) / drawn).log())
