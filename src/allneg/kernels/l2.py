"""The Euclidean distance of queries to rows, by the matrix product (section 3.3 of the paper)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from allneg.kernels.base import Kernel
from allneg.kernels.distances import fp32

# |q|² + |e|² - 2qe loses precision where q is close to e. Pairs whose squared distance is below
# this share of |q|² + |e|² are computed again from their difference.
_CLOSE = {torch.float32: 1e-3, torch.float64: 1e-7}
_PAIRS = 1 << 14  # close pairs per block


class L2(Kernel):
    """score = -|q - e|, exact up to rounding, also near 0. The gradient at 0 is 0.

    With TF32 products, a distance of a thirtieth of the vectors' lengths, just above that of close
    pairs, may have an error of a few percent, others of a few millionths.
    """

    name = "l2"
    keeps_scores = True

    def scores(self, query: Tensor, rows: Tensor) -> Tensor:
        if rows.dim() == 3:
            return (query.unsqueeze(1) - rows).square().sum(-1).sqrt_().neg_()
        q, e = fp32(query), fp32(rows)
        lengths = q.square().sum(1, keepdim=True) + e.square().sum(1)
        square = torch.addmm(lengths, q, e.T, alpha=-2)
        for b, n in _close_pairs(square, lengths):
            square[b, n] = (q.index_select(0, b) - e.index_select(0, n)).square().sum(1)
        return square.sqrt_().neg_()

    def gradients(
        self, grad: Tensor, query: Tensor, rows: Tensor, scores: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        assert scores is not None
        share = torch.where(scores < 0, grad / scores, 0.0)  # d score / d q = (q - e) / score
        if rows.dim() == 3:
            pull = (query.unsqueeze(1) - rows) * share.unsqueeze(2)
            return pull.sum(1), -pull
        q, e = fp32(query), fp32(rows)
        # Σ_n share (q - e_n), as two sums. A close pair has a huge share that cancels between the
        # two, so those pairs are left out of the products and added from their difference.
        lengths = q.square().sum(1, keepdim=True) + e.square().sum(1)
        close = _close_pairs(scores.square(), lengths)
        shares = [share[b, n].unsqueeze(1) for b, n in close]
        for b, n in close:
            share[b, n] = 0.0
        d_query = q * share.sum(1, keepdim=True) - share @ e
        d_rows = e * share.sum(0).unsqueeze(1) - share.T @ q
        for (b, n), some in zip(close, shares, strict=True):
            pull = (q.index_select(0, b) - e.index_select(0, n)) * some
            d_query.index_add_(0, b, pull)
            d_rows.index_add_(0, n, pull, alpha=-1)
        return d_query, d_rows


@dataclass(frozen=True)
class SquaredL2(Kernel):
    """score = -|q - e|²; with `bias`, plus the last numbers of both vectors, their biases."""

    bias: bool = False
    name = "squared_l2"

    def scores(self, query: Tensor, rows: Tensor) -> Tensor:
        (q, q_bias), (e, e_bias) = self._split(query), self._split(rows)
        if rows.dim() == 3:
            return e_bias + q_bias.unsqueeze(-1) - (q.unsqueeze(1) - e).square().sum(-1)
        offsets = (q_bias - q.square().sum(1)).unsqueeze(1) + (e_bias - e.square().sum(1))
        return torch.addmm(offsets, q, e.T, alpha=2)

    def gradients(
        self, grad: Tensor, query: Tensor, rows: Tensor, scores: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        (q, _), (e, _) = self._split(query), self._split(rows)
        if rows.dim() == 3:
            pull = 2 * (e - q.unsqueeze(1)) * grad.unsqueeze(2)
            return self._join(pull.sum(1), grad.sum(1)), self._join(-pull, grad)
        by_query, by_row = grad.sum(1), grad.sum(0)
        d_query = 2 * (grad @ e - q * by_query.unsqueeze(1))
        d_rows = 2 * (grad.T @ q - e * by_row.unsqueeze(1))
        return self._join(d_query, by_query), self._join(d_rows, by_row)

    def _split(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates and biases: (…, W) -> (…, W - 1), (…)."""
        if not self.bias:
            return vectors, vectors.new_zeros(())
        return vectors[..., :-1].contiguous(), vectors[..., -1]

    def _join(self, d_vectors: Tensor, d_bias: Tensor) -> Tensor:
        return torch.cat([d_vectors, d_bias.unsqueeze(-1)], dim=-1) if self.bias else d_vectors


def _close_pairs(square: Tensor, lengths: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Indices of the pairs whose squared distance is too small to be precise, in parts."""
    b, n = (square <= _CLOSE[square.dtype] * lengths).nonzero(as_tuple=True)
    return list(zip(b.split(_PAIRS), n.split(_PAIRS), strict=True))


l2 = L2()
