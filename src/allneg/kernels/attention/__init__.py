"""The softmax of dot products as attention: no score is stored.

The gradient of log Σ exp(q · e) at q is the mean of the rows, weighted by their softmax: an
attention layer whose keys and values are both the table. `attend` gives both in one pass over the
rows. The gradient of the rows is a second pass, where scores are computed again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from allneg.kernels import engines
from allneg.kernels.attention import reference

__all__ = [
    "MOST_WIDTH",
    "PARTIAL_ROWS",
    "Negatives",
    "attend",
    "bit_mask",
    "can_count",
    "count_better",
    "pair_scores",
    "query_gradients",
    "row_gradients",
]

MOST_WIDTH = 256  # of a row: its sums stay in registers
PARTIAL_ROWS = 1 << 18  # of partial means; a query has one for each range of rows
_BITS = 64


@dataclass(frozen=True)
class Negatives:
    """Which rows (N, W) count for which queries (B, W), and offsets of their scores."""

    target: Tensor  # int64 (B,): the row of each answer, which does not count; -1 for none
    count: int  # rows; those from here on are padding
    offset: Tensor | None = None  # (N,): added to the scores
    bits: Tensor | None = None  # of `bit_mask`: pairs that do not count


def attend(query: Tensor, rows: Tensor, negatives: Negatives) -> tuple[Tensor, Tensor]:
    """Each query's answer score and log Σ exp of the others, and the mean of the other rows by
    their softmax: (2, B), (B, W).

    Operands are bfloat16 or float32, sums float32. An answer that is not among the rows has the
    score -inf; a query without negatives has the sum -inf and the mean 0.
    """
    out: tuple[Tensor, Tensor] = _engine(query).attend(query, rows, negatives)
    return out


def query_gradients(
    query: Tensor,
    rows: Tensor,
    negatives: Negatives,
    mean: Tensor,
    log_sum: Tensor,
    state: Tensor,
    weight: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of Σ_b weight_b · loss_b of queries and answers' rows, (B, W) each; `shift`.

    `mean` and `log_sum` (B,) are of these rows, `state` of all: other processes may hold some. An
    answer that is not among the rows has the gradient 0. `row_gradients` needs `shift`.
    """
    engine = _engine(query)
    out: tuple[Tensor, Tensor, Tensor] = engine.query_gradients(
        query, rows, negatives, mean, log_sum, state.contiguous(), weight.contiguous()
    )
    return out


def row_gradients(query: Tensor, rows: Tensor, negatives: Negatives, shift: Tensor) -> Tensor:
    """Σ_b weight_b · share_bn · q_b over negatives n: (N, W), 0 for padding."""
    out: Tensor = _engine(query).row_gradients(query, rows, negatives, shift)
    return out


def can_count(rows: Tensor) -> bool:
    """Whether `count_better` has a fast engine for these rows.

    It is for products of bfloat16 or TF32 operands, and needs the GPU's bulk copy engine.
    """
    if rows.device.type != "cuda" or not engines.uses_triton(rows.device):
        return False
    tf32 = rows.dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32
    precise = tf32 or rows.dtype is torch.bfloat16
    aligned = not (rows.shape[1] * rows.element_size() % 16 or rows.data_ptr() % 16)
    has_tma = torch.cuda.get_device_capability(rows.device) >= (9, 0)
    return precise and aligned and has_tma and rows.is_contiguous()


def pair_scores(query: Tensor, rows: Tensor, pairs: tuple[Tensor, Tensor]) -> Tensor:
    """The scores of some queries (P,) with some rows (P,), exactly as `count_better` computes them.

    A row of -1 has the score -inf.
    """
    out: Tensor = _engine(query).pair_scores(query, rows, *pairs)
    return out


def count_better(query: Tensor, rows: Tensor, answer: Tensor, group: Tensor) -> Tensor:
    """Rows that score higher than each answer, and rows that score the same: int64 (A, 2).

    `answer` (A,) are scores of `pair_scores`; `group` (A,), ascending, are their queries. Every
    score must be finite.
    """
    out: Tensor = _engine(query).count_better(query, rows, answer, group)
    return out


def bit_mask(pairs: tuple[Tensor, Tensor], b: int, n: int) -> Tensor:
    """A bit for each row and query, 1 for `pairs`, each given once: int64 (2 ⌈n / 128⌉, b)."""
    query, row = pairs
    words = torch.zeros(-(-n // (2 * _BITS)) * 2 * b, dtype=torch.int64, device=query.device)
    word = torch.div(row, _BITS, rounding_mode="floor") * b + query
    words.index_add_(0, word, torch.ones_like(row) << row % _BITS)
    return words.view(-1, b)


def _engine(query: Tensor) -> ModuleType:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if query.dtype is torch.float64 or (query.device.type == "cpu" and not interpreted):
        return reference
    return engines.triton_engine("attention", query.device)
