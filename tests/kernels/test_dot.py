"""`dot` is the inner product, with every row and with a query's own rows."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from allneg.kernels import dot
from allneg.kernels.dot import DotOfSome, _rounded_products, has_fast_bf16, rounded_dot


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


def precision() -> str:
    return torch.backends.mkldnn.matmul.fp32_precision


def test_a_rounded_product_leaves_the_setting_of_the_process_as_it_was():
    query, table = torch.randn(4, 6), torch.randn(9, 6)
    earlier = precision()
    rounded_dot.scores(query, table)
    with pytest.raises(RuntimeError, match="shapes"):
        rounded_dot.scores(query, table[:, :5])
    assert precision() == earlier


def test_threads_that_round_at_the_same_time_leave_the_setting_as_it_was():
    earlier, both = precision(), threading.Barrier(2)

    def work(leaves_last: bool) -> str:
        with _rounded_products():
            both.wait()
            if leaves_last:
                both.wait()
            inside = precision()
        if not leaves_last:
            both.wait()
        return inside

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [False, True])) == ["bf16", "bf16"]
    assert precision() == earlier


@pytest.mark.skipif(not has_fast_bf16(), reason="this CPU has no fast products of bfloat16")
def test_rounded_products_are_those_of_bfloat16_operands():
    query, table, grad = torch.randn(64, 96), torch.randn(640, 96), torch.randn(64, 640)
    a, b, c = (x.bfloat16().float() for x in (query, table, grad))
    found = rounded_dot.scores(query, table)
    torch.testing.assert_close(found, a @ b.T, rtol=1e-5, atol=1e-4)
    assert not torch.allclose(found, query @ table.T, rtol=1e-5, atol=1e-4)
    d_query, d_rows = rounded_dot.gradients(grad, query, table)
    torch.testing.assert_close(d_query, c @ b, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(d_rows, c.T @ a, rtol=1e-5, atol=1e-3)
