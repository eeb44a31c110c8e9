"""`l2` is exact where the matrix product alone would lose its digits."""

from __future__ import annotations

import pytest
import torch

from allneg.kernels import l2


def _plain(query, table):
    return -torch.linalg.vector_norm(query[:, None] - table, dim=-1)


@pytest.mark.parametrize("b, n, w", [(1, 1, 1), (7, 130, 33), (20, 50, 64)])
def test_it_is_minus_the_distance(b, n, w):
    query, table = torch.randn(b, w), torch.randn(n, w)
    truth = _plain(query.double(), table.double())
    torch.testing.assert_close(l2(query, table).double(), truth, rtol=1e-5, atol=1e-5)


def test_near_zero_distance_keeps_its_digits():
    query = torch.randn(5, 64) * 10
    table = query + torch.randn(5, 64) * 1e-4
    truth = _plain(query.double(), table.double())
    torch.testing.assert_close(l2(query, table).double(), truth, rtol=1e-4, atol=1e-9)


def test_near_zero_distance_the_gradient_keeps_its_digits():
    query = (torch.randn(5, 64) * 10).requires_grad_()
    table = (query.detach() + torch.randn(5, 64) * 1e-4).requires_grad_()
    weight = torch.randn(5, 5)
    (l2(query, table) * weight).sum().backward()
    exact_query, exact_table = (each.detach().double().requires_grad_() for each in (query, table))
    (_plain(exact_query, exact_table) * weight).sum().backward()
    torch.testing.assert_close(query.grad.double(), exact_query.grad, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(table.grad.double(), exact_table.grad, rtol=1e-3, atol=1e-4)


def test_at_zero_distance_the_gradient_is_zero():
    query = torch.randn(2, 4, requires_grad=True)
    table = query.detach().clone()[:1].requires_grad_()
    l2(query, table)[0, 0].backward()
    assert torch.equal(query.grad, torch.zeros_like(query))
    assert torch.equal(table.grad, torch.zeros_like(table))


def test_own_rows_are_compared_with_their_own_query():
    query, own = torch.randn(3, 5), torch.randn(3, 4, 5)
    one_by_one = torch.stack([l2(query[i : i + 1], own[i])[0] for i in range(3)])
    torch.testing.assert_close(l2(query, own), one_by_one)
