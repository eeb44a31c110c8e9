"""`dot` is the inner product, with every row and with a query's own rows."""

from __future__ import annotations

import torch

from allneg.kernels import dot
from allneg.kernels.dot import DotOfSome


def test_it_is_the_inner_product_with_every_row():
    query, table = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, -6.0]])
    assert dot(query, table).tolist() == [[11.0, -7.0]]


def test_its_gradients_are_autograds_with_a_table_and_with_own_rows():
    for shape in ((7, 5), (3, 4, 5)):
        query, rows = torch.randn(3, 5, requires_grad=True), torch.randn(*shape, requires_grad=True)
        plain = (query.unsqueeze(1) * rows).sum(-1)
        grad = torch.randn_like(plain)
        torch.testing.assert_close(dot.scores(query.detach(), rows.detach()), plain)
        true = torch.autograd.grad(plain, (query, rows), grad)
        torch.testing.assert_close(dot.gradients(grad, query.detach(), rows.detach()), true)


def test_bfloat16_operands_give_float32_scores_and_gradients():
    query, table, grad = torch.randn(4, 6), torch.randn(9, 6), torch.randn(4, 9)
    rounded = [rows.bfloat16().float().requires_grad_() for rows in (query, table)]
    scores = dot(*rounded)
    torch.testing.assert_close(dot.scores(query.bfloat16(), table.bfloat16()), scores)
    true = torch.autograd.grad(scores, rounded, grad.bfloat16().float())
    for given in (grad, grad.bfloat16()):
        found = dot.gradients(given, query.bfloat16(), table.bfloat16())
        torch.testing.assert_close(found, true)


def test_gradients_of_some_rows_are_those_of_all_and_0_elsewhere():
    query, table, grad = torch.randn(4, 6), torch.randn(9, 6), torch.randn(4, 9)
    some = torch.tensor([2, 7, 8])
    for a, b, c in ((query, table, grad), (query.bfloat16(), table.bfloat16(), grad)):
        d_query, d_rows = dot.gradients(c, a, b)
        d_rows[[0, 1, 3, 4, 5, 6]] = 0.0
        torch.testing.assert_close(DotOfSome(some).gradients(c, a, b), (d_query, d_rows))
