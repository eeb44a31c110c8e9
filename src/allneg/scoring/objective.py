"""Questions → one number to minimise, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from allneg.graph.known import KnownAnswers
from allneg.graph.questions import Questions
from allneg.models import Model
from allneg.recipe import Loss, Penalty
from allneg.scoring.loss import losses
from allneg.scoring.penalty import penalties
from allneg.scoring.scores import queries
from allneg.scoring.tables import Tables


@dataclass(frozen=True)
class Drawn:
    """What chance decides for a batch, drawn once so that every part of the batch sees it."""

    candidates: Tensor | None  # ids: (C,) sorted, shared; (B, C) own, the answer first; None: all
    offset: Tensor | None  # (C,): added to shared scores, the sample's correction
    keep_entity: Tensor | None  # (B, W): dropout's factors
    keep_relation: Tensor | None  # (B, V)

    def part(self, some: slice) -> Drawn:
        own = self.candidates is not None and self.candidates.dim() == 2
        return Drawn(
            self.candidates[some] if own and self.candidates is not None else self.candidates,
            self.offset,
            None if self.keep_entity is None else self.keep_entity[some],
            None if self.keep_relation is None else self.keep_relation[some],
        )


@dataclass(frozen=True)
class Objective:
    """The loss and the penalty of a recipe, over the answers known in train."""

    model: Model
    loss: Loss
    penalty: Penalty
    known: KnownAnswers  # of train
    entity_dropout: float = 0.0
    relation_dropout: float = 0.0
    narrow: bool = False  # compare in bfloat16

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
            value = (share[some] * self.losses(tables, asked, drawn.part(some))).sum()
            if self.penalty.name != "none":
                each = penalties(self.model, tables, asked, self.penalty)
                value = value + each.sum() / len(questions)
            yield value

    def losses(self, tables: Tables, questions: Questions, drawn: Drawn) -> Tensor:
        """The loss of each question: (B,)."""
        query = queries(self.model, tables, questions, drawn.keep_entity, drawn.keep_relation)
        rows: Tensor = tables.entities
        target = questions.answer
        if drawn.candidates is not None:
            rows = tables.rows(drawn.candidates)
            shared = drawn.candidates.dim() == 1
            target = (
                torch.searchsorted(drawn.candidates, target)
                if shared
                else target.new_zeros(len(target))
            )
        scores = self._compare(query, rows)
        if drawn.offset is not None:
            scores = scores + drawn.offset
        return losses(scores, target, self._hidden(questions, drawn, scores), self.loss)

    def draw(self, tables: Tables, questions: Questions, generator: Generator) -> Drawn:
        """Chance's part in this batch."""
        width, b = self.model.entity_width, len(questions)
        keep_entity = _keep(b, width, self.entity_dropout, generator)
        keep_relation = _keep(b, self.model.relation_width, self.relation_dropout, generator)
        candidates = offset = None
        n, count = tables.shard.total, self.loss.count
        if self.loss.negatives == "shared" and count is not None:
            order = torch.randperm(n, generator=generator, device=generator.device)
            answers = questions.answer.unique()
            candidates = torch.cat([answers, order[:count]]).unique()
            if self.loss.correction:
                offset = _correction(candidates, answers, n)
        elif self.loss.negatives == "own" and count is not None:
            rivals = torch.randint(n, (b, count), generator=generator, device=generator.device)
            candidates = torch.cat([questions.answer.unsqueeze(1), rivals], dim=1)
        return Drawn(candidates, offset, keep_entity, keep_relation)

    def shares(self, questions: Questions) -> Tensor:
        """Each question's share of the batch's loss: (B,), summing to 1."""
        if not self.loss.subsampling:
            return torch.full_like(questions.entity, 1 / len(questions), dtype=torch.float32)
        # Counts start at 4 for a pair seen once, as in RotatE's code.
        often = self.known.counts(questions) + self.known.counts(questions.turned()) + 6
        weight = often.float().rsqrt()
        return weight / weight.sum()

    def _compare(self, query: Tensor, rows: Tensor) -> Tensor:
        if self.narrow:
            query, rows = query.bfloat16(), rows.bfloat16()
        return self.model.compare(query, rows).float()

    def _hidden(self, questions: Questions, drawn: Drawn, scores: Tensor) -> Tensor | None:
        """Which candidates are no rivals, being the answer itself or known: bool (B, C)."""
        candidates = drawn.candidates
        if candidates is not None and candidates.dim() == 2:
            hidden = candidates == questions.answer.unsqueeze(1)
            return hidden | self.known.contains(questions, candidates) if self._masks else hidden
        if not self._masks:
            return None
        question, answer = self.known.pairs(questions)
        hidden = torch.zeros_like(scores, dtype=torch.bool)
        if candidates is None:
            hidden[question, answer] = True
            return hidden
        place = torch.searchsorted(candidates, answer).clamp(max=len(candidates) - 1)
        present = candidates[place] == answer
        hidden[question[present], place[present]] = True
        return hidden

    @property
    def _masks(self) -> bool:
        return self.loss.mask_known


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
