"""`l2` is exact where the matrix product alone would lose its digits."""

from __future__ import annotations

import pytest
import torch

from allneg.kernels import SquaredL2, l2


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
    exact_query, exact_table = (rows.detach().double().requires_grad_() for rows in (query, table))
    (_plain(exact_query, exact_table) * weight).sum().backward()
    torch.testing.assert_close(query.grad.double(), exact_query.grad, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(table.grad.double(), exact_table.grad, rtol=1e-3, atol=1e-4)


def test_at_zero_distance_the_gradient_is_zero():
    query = torch.randn(2, 4, requires_grad=True)
    table = query.detach().clone()[:1].requires_grad_()
    l2(query, table)[0, 0].backward()
    assert torch.equal(query.grad, torch.zeros_like(query))
    assert torch.equal(table.grad, torch.zeros_like(table))


def test_a_querys_own_rows_give_the_scores_and_gradients_of_single_tables():
    query, own, grad = torch.randn(3, 5), torch.randn(3, 4, 5), torch.randn(3, 4)
    for kernel in (l2, SquaredL2(), SquaredL2(bias=True)):
        found = kernel.scores(query, own)
        d_query, d_own = kernel.gradients(grad, query, own, found)
        for i in range(3):
            one = query[i : i + 1]
            scores = kernel.scores(one, own[i])
            torch.testing.assert_close(found[i : i + 1], scores)
            true = kernel.gradients(grad[i : i + 1], one, own[i], scores)
            torch.testing.assert_close((d_query[i : i + 1], d_own[i]), true)


@pytest.mark.parametrize("bias", [False, True])
def test_the_squared_distance_and_its_gradients_are_autograds(bias):
    query, table = torch.randn(4, 6).requires_grad_(), torch.randn(9, 6).requires_grad_()
    q, e = (rows[:, :-1] if bias else rows for rows in (query, table))
    plain = -(q[:, None] - e).square().sum(-1)
    if bias:
        plain = plain + query[:, -1:] + table[:, -1]
    grad, kernel = torch.randn(4, 9), SquaredL2(bias)
    torch.testing.assert_close(kernel.scores(query.detach(), table.detach()), plain)
    true = torch.autograd.grad(plain, (query, table), grad)
    found = kernel.gradients(grad, query.detach(), table.detach())
    torch.testing.assert_close(found, true, rtol=1e-5, atol=1e-5)
