"""`dot` is the inner product, with every row and with a query's own rows."""

from __future__ import annotations

import torch

from allneg.kernels import dot


def test_it_is_the_inner_product_with_every_row():
    query, table = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, -6.0]])
    assert dot(query, table).tolist() == [[11.0, -7.0]]


def test_own_rows_are_compared_with_their_own_query():
    query, own = torch.randn(3, 5), torch.randn(3, 4, 5)
    one_by_one = torch.stack([dot(query[i : i + 1], own[i])[0] for i in range(3)])
    torch.testing.assert_close(dot(query, own), one_by_one)
