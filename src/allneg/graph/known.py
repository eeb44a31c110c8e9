"""The right answers of every question, flat and sorted, so that a filter is a look-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from allneg.graph.graph import Triples
from allneg.graph.questions import Questions


@dataclass(frozen=True)
class KnownAnswers:
    """A question's answers are `answers[starts[i]:starts[i + 1]]`, where `keys[i]` is its key."""

    n_entities: int
    n_relations: int
    keys: Tensor  # int64 (K,): sorted, each once
    starts: Tensor  # int64 (K + 1,)
    answers: Tensor  # int64 (A,): sorted within a question, each once

    @classmethod
    def of(cls, splits: Sequence[Triples], n_entities: int, n_relations: int) -> KnownAnswers:
        """The answers that `splits` together give to every question, from both sides."""
        head, relation, tail = np.concatenate(splits).T
        key = np.concatenate([relation, relation + n_relations]) * n_entities
        key += np.concatenate([head, tail])
        answer = np.concatenate([tail, head])
        order = np.lexsort((answer, key))
        key, answer = key[order], answer[order]
        new = np.ones(len(key), dtype=np.bool_)
        new[1:] = (key[1:] != key[:-1]) | (answer[1:] != answer[:-1])
        key, answer = key[new], answer[new]
        keys, starts = np.unique(key, return_index=True)
        ends = np.append(starts, len(key))
        tensors = (torch.from_numpy(np.ascontiguousarray(each)) for each in (keys, ends, answer))
        return cls(n_entities, n_relations, *tensors)

    def to(self, device: torch.device) -> KnownAnswers:
        moved = (each.to(device) for each in (self.keys, self.starts, self.answers))
        return KnownAnswers(self.n_entities, self.n_relations, *moved)

    def counts(self, questions: Questions) -> Tensor:
        """How many answers each question has: (B,)."""
        return self._spans(questions)[1]

    def pairs(self, questions: Questions) -> tuple[Tensor, Tensor]:
        """Every (question, answer) that is known: two flat tensors of the same length."""
        first, count = self._spans(questions)
        question = torch.repeat_interleave(count)
        before = count.cumsum(0) - count
        place = torch.arange(len(question), device=first.device) + (first - before)[question]
        return question, self.answers[place]

    def contains(self, questions: Questions, candidates: Tensor) -> Tensor:
        """Which of each question's candidates are known answers: (B, K) -> bool (B, K)."""
        first, count = self._spans(questions)
        low, high = first.unsqueeze(1).expand_as(candidates), (first + count).unsqueeze(1)
        # A binary search inside each question's own span, all in step.
        high = high.expand_as(candidates)
        last = len(self.answers) - 1
        for _ in range(int(count.max()).bit_length() if len(count) else 0):
            middle = (low + high) // 2
            below = (self.answers[middle.clamp(max=last)] < candidates) & (low < high)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        found = self.answers[low.clamp(max=last)] == candidates
        return found & (low < (first + count).unsqueeze(1))

    def _spans(self, questions: Questions) -> tuple[Tensor, Tensor]:
        """Where each question's answers begin, and how many there are."""
        relation = questions.relation + self.n_relations * questions.side
        key = relation * self.n_entities + questions.entity
        place = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        count = self.starts[place + 1] - self.starts[place]
        return self.starts[place], torch.where(self.keys[place] == key, count, 0)
