"""Every engine of `l1` and of `modulus` computes the definition."""

from __future__ import annotations

import pytest
import torch
from distance_checks import (
    LargestTensor,
    check_gradients,
    check_scores,
    device_of,
    engine,
    every_engine,
    kernel,
    kernels,
)

from allneg.kernels import l1, modulus
from allneg.kernels.engines import using
from interpreter import needs_triton

COMPARE = {1: l1, 2: modulus}
SIZES = [(1, 1, 1), (7, 290, 3), (37, 70, 9)]  # no tile divides these


@kernels
@every_engine()
@pytest.mark.parametrize("b, n, dim", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_no_less_exact_than_the_reference(parts, name, b, n, dim, dtype):
    query, table = (torch.randn(count, parts * dim, dtype=dtype) for count in (b, n))
    check_scores(name, parts, query, table)
    check_gradients(name, parts, query, table)


@needs_triton
@kernels
@pytest.mark.parametrize("deterministic", [False, True])
def test_more_tiles_than_a_grid_takes_are_started_in_turn(parts, deterministic, monkeypatch):
    monkeypatch.setattr("allneg.kernels.distances.gpu._MOST_TILES", 1)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    query, table = (torch.randn(count, parts * 5) for count in (3, 300))
    check_scores("gpu", parts, query, table)
    check_gradients("gpu", parts, query, table)


@kernels
@every_engine()
@pytest.mark.parametrize("n", [101, 700])
def test_rows_that_are_equal_tie(parts, name, n):
    """To the bit, wherever they are in the table: ranks depend on equal scores."""
    device = device_of(name)
    query, row = torch.randn(9, parts * 50), torch.randn(1, parts * 50)
    found = engine(name).scores(query.to(device), row.repeat(n, 1).to(device), parts)
    assert found.eq(found[:, :1]).all()


@kernels
@every_engine("cpu", "compiled")
def test_float64_stays_float64(parts, name):
    grad = torch.randn(3, 40, dtype=torch.float64)
    query, table = torch.randn_like(grad[:, :6]), torch.randn(40, 6, dtype=torch.float64)
    compare, reference = kernel(name, parts), engine("reference")
    assert compare.scores(query, table).equal(reference.scores(query, table, parts))
    found = compare.gradients(grad, query, table)
    torch.testing.assert_close(found, reference.gradients(grad, query, table, parts))


@kernels
@every_engine()
def test_strided_rows_give_what_their_copies_give(parts, name):
    width = {1: 5, 2: 6}[parts]
    query, table = torch.randn(2 * width, 6).T[:, ::2], torch.randn(8, 90).T[::2]
    table = table[:, 1 : 1 + width]
    check_scores(name, parts, query, table)
    check_gradients(name, parts, query, table)


@kernels
@every_engine()
@pytest.mark.parametrize("b, n", [(0, 5), (5, 0), (0, 0)])
def test_no_rows_give_no_scores_and_no_gradients(parts, name, b, n):
    device = device_of(name)
    query, table = torch.randn(b, 4, device=device), torch.randn(n, 4, device=device)
    assert engine(name).scores(query, table, parts).shape == (b, n)
    d_query, d_table = engine(name).gradients(query.new_zeros(b, n), query, table, parts)
    assert torch.equal(d_query, torch.zeros_like(query))
    assert torch.equal(d_table, torch.zeros_like(table))


def _gradients(name, query, table, parts):
    """The gradients of the score of one query with one row, as lists."""
    device = device_of(name)
    query, table = torch.tensor([query], device=device), torch.tensor([table], device=device)
    grad = torch.ones(1, 1, device=device)
    return [found[0].tolist() for found in engine(name).gradients(grad, query, table, parts)]


@every_engine()
def test_equal_coordinates_have_the_gradient_0(name):
    assert _gradients(name, [1.0, 2.0, 3.0], [1.0, 5.0, 3.0], 1) == [
        [0.0, 1.0, 0.0],
        [0.0, -1.0, 0.0],
    ]
    # 1 + 3i and 2 + 4i against 1 + 3i and 5 + 8i: the second ones are 5 apart.
    found = _gradients(name, [1.0, 2.0, 3.0, 4.0], [1.0, 5.0, 3.0, 8.0], 2)
    right = torch.tensor([0.0, 0.6, 0.0, 0.8])
    torch.testing.assert_close(torch.tensor(found), torch.stack([right, -right]))


@every_engine()
def test_coordinates_that_differ_by_one_bit_have_a_gradient(name):
    assert _gradients(name, [1.0], [1.0 + 2**-23], 1) == [[1.0], [-1.0]]
    d_query, d_table = _gradients(name, [1.0, 1.0], [1.0 + 2**-20, 1.0], 2)
    assert d_query == [pytest.approx(1.0), 0.0]
    assert d_table == [pytest.approx(-1.0), 0.0]


@kernels
@every_engine("reference", "cpu", "compiled")
def test_the_difference_is_never_stored_whole(parts, name):
    b, n, w = 40, 5000, 50
    query, table = torch.randn(b, w), torch.randn(n, w)
    with LargestTensor() as largest:
        engine(name).gradients(engine(name).scores(query, table, parts), query, table, parts)
    assert largest.numbers < b * n * w / 5


@kernels
@every_engine("cpu", "compiled")
def test_on_a_cpu_an_engine_repeats_itself_to_the_byte(parts, name):
    torch.set_num_threads(2)
    grad = torch.randn(9, 3000)
    query, table = torch.randn(9, 100), torch.randn(3000, 100)

    def results():
        gradients = engine(name).gradients(grad, query, table, parts)
        return engine(name).scores(query, table, parts), *gradients

    first = results()
    for _ in range(3):
        assert all(torch.equal(*pair) for pair in zip(first, results(), strict=True))


@needs_triton
@kernels
def test_without_atomic_adds_the_gpu_engine_computes_the_same(parts, monkeypatch):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    check_gradients("gpu", parts, torch.randn(5, 3 * parts), torch.randn(40, 3 * parts))


@kernels
@every_engine("reference", "cpu", "compiled")
def test_autograd_follows_the_definition(parts, name):
    width = {1: 5, 2: 6}[parts]
    query = torch.randn(4, width, requires_grad=True)
    table = torch.randn(6, width, requires_grad=True)
    with using(name):
        COMPARE[parts](query, table).square().sum().backward()
    plain_query, plain_table = (rows.detach().clone().requires_grad_() for rows in (query, table))
    difference = plain_query[:, None] - plain_table
    if parts == 2:
        difference = torch.complex(*difference.chunk(2, dim=-1))
    (-difference.abs().sum(-1)).square().sum().backward()
    torch.testing.assert_close(query.grad, plain_query.grad)
    torch.testing.assert_close(table.grad, plain_table.grad)


@kernels
def test_a_querys_own_rows_give_the_scores_and_gradients_of_single_tables(parts):
    compare, width = COMPARE[parts], {1: 5, 2: 6}[parts]
    query, own, grad = torch.randn(3, width), torch.randn(3, 4, width), torch.randn(3, 4)
    own[1, 2] = query[1]  # a distance of 0 has the gradient 0
    alone = [compare.scores(query[i : i + 1], own[i])[0] for i in range(3)]
    torch.testing.assert_close(compare.scores(query, own), torch.stack(alone))
    d_query, d_own = compare.gradients(grad, query, own)
    for i in range(3):
        true = compare.gradients(grad[i : i + 1], query[i : i + 1], own[i])
        torch.testing.assert_close((d_query[i : i + 1], d_own[i]), true)


@pytest.mark.gpu
@kernels
def test_on_a_gpu_the_memory_is_that_of_the_scores(parts):
    query = torch.randn(500, 200, device="cuda")
    table = torch.randn(20000, 200, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gpu = engine("gpu")
    gpu.gradients(gpu.scores(query, table, parts), query, table, parts)
    extra = torch.cuda.max_memory_allocated() - before
    assert extra < 4 * (500 * 20000 + 3 * 20000 * 200) * 1.1
