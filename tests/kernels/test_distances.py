"""Every engine of `l1` and of `modulus` says what the definition says."""

from __future__ import annotations

import pytest
import torch
from check_engine import (
    ENGINES,
    LargestTensor,
    device_of,
    engine_and_reference,
    every_engine,
    gradients_are_as_exact_as_the_reference,
    kernels,
    scores_are_as_exact_as_the_reference,
)

from allneg.kernels import l1, modulus
from allneg.kernels.choose import using

COMPARE = {"l1": l1, "modulus": modulus}
SIZES = [(1, 1, 1), (3, 40, 5), (7, 290, 3), (37, 70, 9)]  # no tile divides these
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@kernels
@every_engine()
@pytest.mark.parametrize("b, n, dim", SIZES)
@dtypes
@pytest.mark.parametrize(
    "are_as_exact",
    [scores_are_as_exact_as_the_reference, gradients_are_as_exact_as_the_reference],
    ids=["scores", "gradients"],
)
def test_they_are_no_less_exact_than_the_reference(
    kernel, parts, name, b, n, dim, dtype, are_as_exact
):
    query, table = (torch.randn(count, parts * dim, dtype=dtype) for count in (b, n))
    are_as_exact(*engine_and_reference(kernel, name), query, table)


@kernels
@pytest.mark.parametrize("deterministic", [False, True])
def test_more_tiles_than_a_grid_takes_are_started_in_turn(
    kernel, parts, deterministic, monkeypatch
):
    engine, reference = engine_and_reference(kernel, "gpu")
    monkeypatch.setattr("allneg.kernels.tiles_gpu._MOST_TILES", 1)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    query, table = (torch.randn(count, parts * 5) for count in (3, 700))
    scores_are_as_exact_as_the_reference(engine, reference, query, table)
    gradients_are_as_exact_as_the_reference(engine, reference, query, table)


@kernels
@every_engine()
@pytest.mark.parametrize("n", [101, 700])
def test_rows_that_are_equal_tie(kernel, parts, name, n):
    """To the bit, wherever in the table they are: ranks tell equal scores from others."""
    engine, _ = engine_and_reference(kernel, name)
    query, row = torch.randn(9, parts * 50), torch.randn(1, parts * 50)
    device = device_of(engine)
    found = engine.scores(query.to(device), row.repeat(n, 1).to(device))
    assert found.eq(found[:, :1]).all()


@kernels
@every_engine("reference", "cpu", "compiled")
def test_float64_stays_float64(kernel, parts, name):
    engine, reference = engine_and_reference(kernel, name)
    grad = torch.randn(3, 40, dtype=torch.float64)
    query, table = torch.randn_like(grad[:, :6]), torch.randn(40, 6, dtype=torch.float64)
    torch.testing.assert_close(engine.scores(query, table), reference.scores(query, table))
    out, truth = (each.gradients(grad, query, table) for each in (engine, reference))
    torch.testing.assert_close(out, truth)


@kernels
@every_engine()
def test_strided_rows_give_what_their_copies_give(kernel, parts, name):
    width = {1: 5, 2: 6}[parts]
    query, table = torch.randn(2 * width, 6).T[:, ::2], torch.randn(8, 90).T[::2]
    table = table[:, 1 : 1 + width]
    scores_are_as_exact_as_the_reference(*engine_and_reference(kernel, name), query, table)
    gradients_are_as_exact_as_the_reference(*engine_and_reference(kernel, name), query, table)


@kernels
@every_engine()
@pytest.mark.parametrize("b, n", [(0, 5), (5, 0), (0, 0)])
def test_no_rows_give_no_scores_and_no_pull(kernel, parts, name, b, n):
    engine = ENGINES[kernel][name]
    device = device_of(engine)
    query, table = torch.randn(b, 4, device=device), torch.randn(n, 4, device=device)
    assert engine.scores(query, table).shape == (b, n)
    to_query, to_table = engine.gradients(query.new_zeros(b, n), query, table)
    assert torch.equal(to_query, torch.zeros_like(query))
    assert torch.equal(to_table, torch.zeros_like(table))


@every_engine()
def test_equal_coordinates_pull_nowhere(name):
    engine = ENGINES["l1"][name]
    device = device_of(engine)
    query, table = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 5.0, 3.0]])
    to_query, to_table = engine.gradients(
        torch.ones(1, 1, device=device), query.to(device), table.to(device)
    )
    assert to_query.tolist() == [[0.0, 1.0, 0.0]]
    assert to_table.tolist() == [[0.0, -1.0, 0.0]]


@every_engine()
def test_equal_complex_coordinates_pull_nowhere(name):
    engine = ENGINES["modulus"][name]
    device = device_of(engine)
    query = torch.tensor([[1.0, 2.0, 3.0, 4.0]], device=device)  # 1 + 3i, 2 + 4i
    table = torch.tensor([[1.0, 5.0, 3.0, 8.0]], device=device)  # 1 + 3i, 5 + 8i
    assert engine.scores(query, table).item() == pytest.approx(-5.0, rel=1e-6)
    to_query, to_table = engine.gradients(torch.ones(1, 1, device=device), query, table)
    right = torch.tensor([[0.0, 0.6, 0.0, 0.8]])
    torch.testing.assert_close(to_query.cpu(), right)
    torch.testing.assert_close(to_table.cpu(), -right)


@every_engine()
def test_a_hair_apart_still_pulls(name):
    engine = ENGINES["l1"][name]
    device = device_of(engine)
    query = torch.tensor([[1.0]], device=device)
    table = torch.nextafter(query, query + 1)
    to_query, to_table = engine.gradients(torch.ones(1, 1, device=device), query, table)
    assert (to_query.item(), to_table.item()) == (1.0, -1.0)


@every_engine()
def test_complex_coordinates_a_hair_apart_still_pull(name):
    engine = ENGINES["modulus"][name]
    device = device_of(engine)
    query = torch.tensor([[1.0, 1.0]], device=device)
    table = torch.tensor([[1.0 + 2**-20, 1.0]], device=device)
    to_query, to_table = engine.gradients(torch.ones(1, 1, device=device), query, table)
    assert to_query.tolist() == [[pytest.approx(1.0), 0.0]]
    assert to_table.tolist() == [[pytest.approx(-1.0), 0.0]]


@kernels
@every_engine("reference", "cpu", "compiled")
def test_the_difference_is_never_stored_whole(kernel, parts, name):
    engine = ENGINES[kernel][name]
    b, n, w = 40, 5000, 50
    query, table = torch.randn(b, w), torch.randn(n, w)
    with LargestTensor() as largest:
        engine.gradients(engine.scores(query, table), query, table)
    assert largest.numbers < b * n * w / 5


@kernels
@every_engine("cpu", "compiled")
def test_on_a_cpu_an_engine_repeats_itself_to_the_byte(kernel, parts, name):
    engine = ENGINES[kernel][name]
    torch.set_num_threads(2)
    grad = torch.randn(9, 7000)
    query, table = torch.randn(9, 100), torch.randn(7000, 100)
    first = engine.scores(query, table), *engine.gradients(grad, query, table)
    for _ in range(3):
        again = engine.scores(query, table), *engine.gradients(grad, query, table)
        assert all(torch.equal(*each) for each in zip(first, again, strict=True))


@kernels
def test_without_atomics_the_gpu_engine_says_the_same(kernel, parts):
    query, table = torch.randn(5, 3 * parts), torch.randn(40, 3 * parts)
    torch.use_deterministic_algorithms(True)
    try:
        gradients_are_as_exact_as_the_reference(*engine_and_reference(kernel, "gpu"), query, table)
    finally:
        torch.use_deterministic_algorithms(False)


@kernels
@every_engine("reference", "cpu", "compiled")
def test_autograd_follows_the_definition(kernel, parts, name):
    width = {1: 5, 2: 6}[parts]
    query = torch.randn(4, width, requires_grad=True)
    table = torch.randn(6, width, requires_grad=True)
    with using(name):
        COMPARE[kernel](query, table).square().sum().backward()
    plain_query, plain_table = (each.detach().clone().requires_grad_() for each in (query, table))
    difference = plain_query[:, None] - plain_table
    if parts == 2:
        difference = torch.complex(*difference.chunk(2, dim=-1))
    (-difference.abs().sum(-1)).square().sum().backward()
    torch.testing.assert_close(query.grad, plain_query.grad)
    torch.testing.assert_close(table.grad, plain_table.grad)


@kernels
def test_own_rows_are_compared_with_their_own_query(kernel, parts):
    compare, width = COMPARE[kernel], {1: 5, 2: 6}[parts]
    query, own = torch.randn(3, width), torch.randn(3, 4, width)
    one_by_one = torch.stack([compare(query[i : i + 1], own[i])[0] for i in range(3)])
    torch.testing.assert_close(compare(query, own), one_by_one)


@pytest.mark.gpu
@kernels
def test_on_a_gpu_memory_stays_near_the_scores(kernel, parts):
    query = torch.randn(500, 200, device="cuda")
    table = torch.randn(20000, 200, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    engine = ENGINES[kernel]["gpu"]
    engine.gradients(engine.scores(query, table), query, table)
    extra = torch.cuda.max_memory_allocated() - before
    assert extra < 4 * (500 * 20000 + 3 * 20000 * 200) * 1.1
