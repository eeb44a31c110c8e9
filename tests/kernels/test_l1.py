"""Every engine of `l1` says what the definition says."""

from __future__ import annotations

import pytest
import torch
from check_engine import (
    ENGINES,
    LargestTensor,
    device_of,
    every,
    gradients_are_as_exact_as_the_reference,
    needs_compiler,
    scores_are_as_exact_as_the_reference,
)

from allneg.kernels import l1
from allneg.kernels.choose import using
from allneg.kernels.l1 import reference

SIZES = [(1, 1, 1), (3, 40, 5), (7, 290, 3), (37, 70, 9)]  # no tile divides these
engines = every(ENGINES["l1"])
on_a_cpu = every(ENGINES["l1"], "reference", "cpu", "compiled")


@engines
@pytest.mark.parametrize("b, n, w", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_are_no_less_exact_than_the_reference(engine, b, n, w, dtype):
    query, table = torch.randn(b, w, dtype=dtype), torch.randn(n, w, dtype=dtype)
    scores_are_as_exact_as_the_reference(engine, reference, query, table)


@engines
@pytest.mark.parametrize("b, n, w", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_no_less_exact_than_the_reference(engine, b, n, w, dtype):
    query, table = torch.randn(b, w, dtype=dtype), torch.randn(n, w, dtype=dtype)
    gradients_are_as_exact_as_the_reference(engine, reference, query, table)


@on_a_cpu
def test_float64_stays_float64(engine):
    grad = torch.randn(3, 40, dtype=torch.float64)
    query, table = torch.randn_like(grad[:, :6]), torch.randn(40, 6, dtype=torch.float64)
    torch.testing.assert_close(engine.scores(query, table), reference.scores(query, table))
    out, truth = (each.gradients(grad, query, table) for each in (engine, reference))
    torch.testing.assert_close(out, truth)


@engines
def test_strided_rows_give_what_their_copies_give(engine):
    query, table = torch.randn(10, 6).T[:, ::2], torch.randn(8, 90).T[::2]
    table = table[:, 1:6]
    scores_are_as_exact_as_the_reference(engine, reference, query, table)
    gradients_are_as_exact_as_the_reference(engine, reference, query, table)


@engines
@pytest.mark.parametrize("b, n", [(0, 5), (5, 0), (0, 0)])
def test_no_rows_give_no_scores_and_no_pull(engine, b, n):
    device = device_of(engine)
    query, table = torch.randn(b, 4, device=device), torch.randn(n, 4, device=device)
    assert engine.scores(query, table).shape == (b, n)
    to_query, to_table = engine.gradients(query.new_zeros(b, n), query, table)
    assert torch.equal(to_query, torch.zeros_like(query))
    assert torch.equal(to_table, torch.zeros_like(table))


@engines
def test_equal_coordinates_pull_nowhere(engine):
    device = device_of(engine)
    query, table = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 5.0, 3.0]])
    to_query, to_table = engine.gradients(
        torch.ones(1, 1, device=device), query.to(device), table.to(device)
    )
    assert to_query.tolist() == [[0.0, 1.0, 0.0]]
    assert to_table.tolist() == [[0.0, -1.0, 0.0]]


@engines
def test_a_hair_apart_still_pulls(engine):
    device = device_of(engine)
    query = torch.tensor([[1.0]], device=device)
    table = torch.nextafter(query, query + 1)
    to_query, to_table = engine.gradients(torch.ones(1, 1, device=device), query, table)
    assert (to_query.item(), to_table.item()) == (1.0, -1.0)


@on_a_cpu
def test_the_difference_is_never_stored_whole(engine):
    b, n, w = 40, 5000, 50
    query, table = torch.randn(b, w), torch.randn(n, w)
    with LargestTensor() as largest:
        engine.gradients(engine.scores(query, table), query, table)
    assert largest.numbers < b * n * w / 5


@every(ENGINES["l1"], "cpu", "compiled")
def test_on_a_cpu_an_engine_repeats_itself_to_the_byte(engine):
    torch.set_num_threads(2)
    grad = torch.randn(9, 7000)
    query, table = torch.randn(9, 100), torch.randn(7000, 100)
    first = engine.scores(query, table), *engine.gradients(grad, query, table)
    for _ in range(3):
        again = engine.scores(query, table), *engine.gradients(grad, query, table)
        assert all(torch.equal(*each) for each in zip(first, again, strict=True))


def test_without_atomics_the_gpu_engine_says_the_same():
    query, table = torch.randn(5, 3), torch.randn(40, 3)
    torch.use_deterministic_algorithms(True)
    try:
        gradients_are_as_exact_as_the_reference(ENGINES["l1"]["gpu"], reference, query, table)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "name", ["reference", "cpu", pytest.param("compiled", marks=needs_compiler)]
)
def test_autograd_follows_the_definition(name):
    query = torch.randn(4, 5, requires_grad=True)
    table = torch.randn(6, 5, requires_grad=True)
    with using(name):
        l1(query, table).square().sum().backward()
    plain_query, plain_table = (each.detach().clone().requires_grad_() for each in (query, table))
    (-(plain_query[:, None] - plain_table).abs().sum(-1)).square().sum().backward()
    torch.testing.assert_close(query.grad, plain_query.grad)
    torch.testing.assert_close(table.grad, plain_table.grad)


def test_own_rows_are_compared_with_their_own_query():
    query, own = torch.randn(3, 5), torch.randn(3, 4, 5)
    one_by_one = torch.stack([l1(query[i : i + 1], own[i])[0] for i in range(3)])
    torch.testing.assert_close(l1(query, own), one_by_one)


@pytest.mark.gpu
def test_on_a_gpu_memory_stays_near_the_scores():
    query = torch.randn(500, 200, device="cuda")
    table = torch.randn(20000, 200, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    engine = ENGINES["l1"]["gpu"]
    engine.gradients(engine.scores(query, table), query, table)
    extra = torch.cuda.max_memory_allocated() - before
    assert extra < 4 * (500 * 20000 + 3 * 20000 * 200) * 1.1
