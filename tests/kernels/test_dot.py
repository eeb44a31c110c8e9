"""`dot` is the inner product, with every row and with a query's own rows."""

from __future__ import annotations

import torch

from allneg.kernels import dot
from allneg.kernels.dot import NarrowDot


def test_it_is_the_inner_product_with_every_row():
    query, table = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, -6.0]])
    assert dot(query, table).tolist() == [[11.0, -7.0]]


def test_own_rows_are_compared_with_their_own_query():
    query, own = torch.randn(3, 5), torch.randn(3, 4, 5)
    one_by_one = torch.stack([dot(query[i : i + 1], own[i])[0] for i in range(3)])
    torch.testing.assert_close(dot(query, own), one_by_one)


def test_a_narrow_product_is_that_of_rounded_rows_and_so_are_its_gradients() -> None:
    query, table, slopes = torch.randn(4, 6), torch.randn(9, 6), torch.randn(4, 9)
    rounded = [each.bfloat16().float().requires_grad_() for each in (query, table)]
    scores = dot(*rounded)
    narrow = NarrowDot(query.bfloat16(), table.bfloat16())
    torch.testing.assert_close(narrow.scores(), scores)
    true = torch.autograd.grad(scores, rounded, slopes.bfloat16().float())
    for given in (slopes, slopes.bfloat16()):
        torch.testing.assert_close(narrow.gradients(given), true)
