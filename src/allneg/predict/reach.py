"""How far the best answer to a question can be above the others, without scoring them."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.kernels.attention import MOST_WIDTH, Negatives, attend, bit_mask, can_count
from allneg.predict.scorer import Scorer, check_finite
from allneg.scoring.scores import query_vectors

_SLACK = 1e-3  # for rounding
_ROUNDING = 1.05 * 2**-7  # of a product of two bfloat16 numbers and of sums of up to MOST_WIDTH
_PER_ENTITY = 2**-29  # of the log of a sum that is added up in float32, 64 or more at once
_SHARPNESS = 64.0  # a power of 2, so that factors are exact in bfloat16
# By count, SharpReach saves time if most questions need no scores, as if few facts are wanted; this
# is not measured on a GPU yet.
_MANY_SCORES, _QUESTIONS_PER_FACT = 1 << 36, 300


class Reach:
    """An upper bound of the margins of all answers to a question."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.kernel = scorer, scorer.model.kernel
        rows = scorer.tables.entities.detach()[: scorer.graph.n_entities]
        mean = rows.mean(0, keepdim=True)
        self.radius = torch.tensor(torch.inf)
        if self.kernel.name == "dot":
            self.radius = (rows - mean).norm(dim=1).max()
        elif self.kernel.name in ("l1", "l2", "modulus"):
            self.radius = -self.kernel.scores(mean, rows).min()

    def __call__(self, queries: Queries) -> Tensor:
        """(B,). Known answers of train are no candidates."""
        n_all = self.scorer.graph.n_entities
        n = n_all - self.scorer.known["train"].counts(queries)
        if self.kernel.name == "dot":
            query = query_vectors(self.scorer.model, self.scorer.tables, queries)
            # The mean of the candidates is up to (n_all - n) · radius / n from that of all rows.
            spread = query.norm(dim=1) * self.radius * n_all / n.clamp(min=1)
        else:
            spread = 2 * self.radius.to(n.device)
        return torch.where(n > 0, spread * (1 + 1e-4) + _SLACK - n.clamp(min=1).log(), -torch.inf)


class SharpReach:
    """A sharper bound of the margins of new answers, for `dot`: no score is stored.

    For c > 0, the largest of n scores is at most log Σ exp(c · score) / c, and this is at most
    log(n) / c above it. `attend` gives that sum and the one of the margin, from bfloat16 operands,
    whose rounding errors are bounded.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        rows = scorer.tables.entities.detach()[: scorer.graph.n_entities]
        self.rows = rows.bfloat16()
        self.longest: Tensor = rows.norm(dim=1).max()

    def __call__(self, queries: Queries, left_out: tuple[Tensor, Tensor]) -> Tensor:
        """(B,). `left_out` are pairs of a query and an answer that is not new."""
        b, n = len(queries), len(self.rows)
        if not b:
            return self.longest.new_empty(0)
        query = query_vectors(self.scorer.model, self.scorer.tables, queries)
        # Answers of train are not in the sum of a margin. None that is left out is the best one.
        in_train = self.scorer.known["train"].pairs(queries)
        of_query = torch.cat([in_train[0], left_out[0] + b])
        pairs = (of_query * n + torch.cat([in_train[1], left_out[1]])).unique()
        bits = bit_mask((pairs // n, pairs % n), 2 * b, n)
        none = torch.full((2 * b,), -1, device=query.device)
        both = torch.cat([query, query * _SHARPNESS]).to(self.rows.dtype)
        log_sum, sharp = attend(both, self.rows, Negatives(none, n, bits=bits))[0][1].view(2, b)
        check_finite(torch.stack([log_sum, sharp]).clamp(min=torch.finfo(torch.float32).min))
        error = query.norm(dim=1) * self.longest * _ROUNDING + _SLACK + n * _PER_ENTITY
        bound: Tensor = sharp / _SHARPNESS - log_sum + 2 * error
        return bound.nan_to_num(-torch.inf)  # without a new answer


def is_sharper(scorer: Scorer, n_questions: int, top: int) -> bool:
    """Whether `SharpReach` has a fast engine and probably saves more time than it takes."""
    rows, n = scorer.tables.entities, scorer.graph.n_entities
    many = n_questions * n >= _MANY_SCORES and n_questions >= _QUESTIONS_PER_FACT * top
    narrow = scorer.model.kernel.name == "dot" and rows.shape[1] <= MOST_WIDTH
    return many and narrow and can_count(rows[:1].bfloat16())
