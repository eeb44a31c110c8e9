"""The fused operations: the reference computes what PyTorch does, and Triton the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from allneg.kernels import fused
from allneg.kernels.engines import using
from allneg.kernels.fused import complex_mul, reference
from interpreter import DEVICE, GPU, interpreted, needs_triton

gpu = interpreted("allneg.kernels.fused.gpu")
ROWS = [(1, 2), (5, 2050), (9, 6)]
# Each engine, and the device it runs on.
engines = pytest.mark.parametrize(
    "engine, device",
    [
        pytest.param(reference, "cpu", id="reference"),
        pytest.param(gpu, DEVICE, id="gpu", marks=needs_triton),
    ],
)


@pytest.fixture(params=[512, 2], ids=["rows in parts", "rows whole"])
def many_rows(request, monkeypatch):
    """From how many rows on a single program sums a row."""
    if gpu is not None:
        monkeypatch.setattr(gpu, "_MANY_ROWS", request.param)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


@engines
@pytest.mark.parametrize("rows, width", ROWS)
@pytest.mark.parametrize("conjugate", [False, True])
def test_a_complex_product_is_pytorchs(engine, device, rows, width, conjugate):
    a, b = torch.randn(2, rows, width)
    first, second = (torch.complex(*x.chunk(2, 1)) for x in (a, b))
    number = first * (second.conj() if conjugate else second)
    truth = torch.cat([number.real, number.imag], 1)
    close(engine.complex_mul(a.to(device), b.to(device), conjugate), truth)


@needs_triton
@pytest.mark.parametrize("rows, width", ROWS)
@pytest.mark.parametrize("conjugate", [False, True])
def test_the_gradients_of_a_complex_product_are_autograds(rows, width, conjugate):
    grad, a, b = torch.randn(3, rows, width).to(DEVICE).unbind()
    a.requires_grad_()
    b.requires_grad_()
    truth = torch.autograd.grad(reference.complex_mul(a, b, conjugate), (a, b), grad)
    found = gpu.complex_mul_gradients(grad, a.detach(), b.detach(), conjugate)
    with using("gpu"):  # the public function takes the engine's gradients
        public = torch.autograd.grad(complex_mul(a, b, conjugate), (a, b), grad)
    for ours, theirs, true in zip(found, public, truth, strict=True):
        close(ours, true.cpu())
        close(theirs, true.cpu())


@engines
@pytest.mark.parametrize("rows, dim", [(1, 1), (2, 1030), (7, 3)])
@pytest.mark.parametrize("axes", [1, 2, 4])
@pytest.mark.parametrize("power", [2, 3, 4])
@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("own", [True, False], ids=["weight per row", "one weight"])
def test_powers_and_their_gradients_are_autograds(engine, device, rows, dim, axes, power, add, own):
    x = torch.randn(rows, axes, dim)
    x[0, :, 0] = 0.0  # the gradient at 0 is 0
    weight = torch.randn(rows) if own else torch.tensor(-0.7)
    before = torch.randn(rows, axes, dim)
    exact = x.double().requires_grad_()
    # A tiny number keeps autograd's gradient of the root finite at 0.
    moduli = exact.square().sum(1).add(1e-30).sqrt()
    truth = (moduli**power).sum(1)
    (d_x,) = torch.autograd.grad((weight * truth).sum(), exact)
    grad, found = before.clone().to(device), torch.ones(rows, device=device)
    factor = weight.to(device) if own else weight.item()
    engine.power_gradients(x.to(device), grad, power, factor, found, add)
    before *= add
    close(found, 1 + weight * truth.detach().float())
    close(grad, (before + d_x).float())
    assert (grad.cpu() - before)[0, :, 0].abs().max() < 1e-12


@engines
def test_powers_of_a_part_of_wider_rows_leave_the_rest_alone(engine, device):
    """A model with separate roles, or with a bias, shrinks a part of each row."""
    rows, weight = torch.randn(3, 9), 0.7
    whole = torch.zeros(3, 9, device=device)
    there = rows.to(device)
    factor, grad = (x[:, 2:8].unflatten(1, (2, 3)) for x in (there, whole))
    found, expected = torch.zeros(3, device=device), torch.zeros(3)
    engine.power_gradients(factor, grad, 3, weight, found, add=False)
    part = rows[:, 2:8].unflatten(1, (2, 3))
    truth = torch.zeros(3, 2, 3)
    reference.power_gradients(part.clone(), truth, 3, weight, expected, add=True)
    close(found, expected)
    close(whole[:, 2:8], truth.flatten(1))
    assert not whole[:, [0, 1, 8]].any()


@engines
@pytest.mark.parametrize("shape", [(1, 1), (3, 70), (65, 128)])
def test_a_transpose_is_contiguous(engine, device, shape):
    x = torch.randn(shape)
    found = engine.transposed(x.to(device))
    assert found.is_contiguous()
    assert found.cpu().equal(x.T)


@engines
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_at_pairs_are_read_and_subtracted(engine, device, dtype):
    scores = torch.randn(3, 700).to(dtype)
    query = torch.arange(3).repeat_interleave(100)
    column = torch.cat([torch.randperm(702)[:100] - 1 for _ in range(3)])  # two are outside
    values, inside = torch.rand(300), (column >= 0) & (column < 700)
    query[-4:], column[-4:], values[-4:] = query[0], column[0], 0.0  # padding
    there, pairs = scores.clone().to(device), (query.to(device), column.to(device))
    inside[-4:] = inside[0]
    truth = torch.where(inside, scores[query, column.clamp(0, 699)].float(), 0.0)
    assert engine.values_at(there, *pairs).cpu().equal(truth)
    engine.subtract_at(there, *pairs, values.to(device))
    after = scores.float()
    after[query[:-4][inside[:-4]], column[:-4][inside[:-4]]] -= values[:-4][inside[:-4]]
    tolerance = 2**-7 if dtype is torch.bfloat16 else 1e-6
    torch.testing.assert_close(there.float().cpu(), after, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("count", [300, 299, 171])
def test_targets_and_padding_are_masked_out(count):
    scores = torch.randn(5, 300)
    target = torch.tensor([0, 170, -1, 300, 42])  # two are in other blocks
    left = scores.clone()
    answer = reference.mask_out(left, target, count)
    assert answer[[0, 1, 4]].equal(scores[[0, 1, 4], [0, 170, 42]])
    assert answer[[2, 3]].equal(torch.full((2,), -torch.inf))
    assert left[:, count:].eq(-torch.inf).all()
    assert (left[:, :count] > -torch.inf).sum() == 5 * count - 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_are_put_where_the_target_is_a_column(dtype):
    before, values = torch.randn(3, 7).to(dtype), torch.randn(3)
    after = before.clone()
    reference.put(after, torch.tensor([6, 7, -3]), values)
    assert after[0, 6] == values[0].to(dtype)
    assert after[0, :6].equal(before[0, :6])
    assert after[1:].equal(before[1:])


@engines
@pytest.mark.parametrize("rows, width", [(1, 1), (3, 5000), (2, 9000), (5, 30)])
@pytest.mark.usefixtures("many_rows")
def test_a_log_sum_exp_leaves_out_the_target_and_padding(engine, device, rows, width):
    scores = 30 * torch.randn(rows, width)
    scores[0, 0] = -torch.inf
    target = torch.arange(rows) * 7 - 1  # the first one is in another block
    count = width - width // 10
    counts = torch.arange(width) < count
    inside = (target >= 0) & (target < count)
    others = counts & (torch.arange(width) != target.unsqueeze(1))
    truth = scores.masked_fill(~others, -torch.inf).logsumexp(1)
    answers = scores.gather(1, target.clamp(0, width - 1).unsqueeze(1)).squeeze(1)
    answer, total = engine.log_sum_exp(scores.clone().to(device), target.to(device), count)
    close(total, truth)
    close(answer[inside.to(device)], answers[inside])
    assert answer[(~inside).to(device)].eq(-torch.inf).all()


@engines
@pytest.mark.parametrize("rows, width", [(1, 1), (3, 5000), (5, 9000)])
@pytest.mark.parametrize("bf16", [False, True])
def test_the_gradients_of_a_softmax_are_autograds(engine, device, rows, width, bf16):
    scores = 10 * torch.randn(rows, width)
    target = torch.arange(rows) * 2000  # the last of five is in the third block of columns
    count = width - (width > 1)
    exact = scores[:, :count].clone().requires_grad_()
    weight = torch.rand(rows)
    loss = F.cross_entropy(exact, target, reduction="none")
    (truth,) = torch.autograd.grad(loss, exact, weight)
    there, column = scores.clone().to(device), target.to(device)
    answer, total = engine.log_sum_exp(there, column, count)
    state = torch.stack([answer, total])
    found = engine.softmax_gradient(there, column, count, state, weight.to(device), bf16)
    assert found.dtype == (torch.bfloat16 if bf16 else torch.float32)
    tolerance = {"rtol": 8e-3, "atol": 1e-6} if bf16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(found[:, :count].cpu().float(), truth, **tolerance)
    assert not found[:, count:].any()


@engines
def test_the_gradient_of_an_answer_in_another_block_is_put_nowhere(engine, device):
    scores, target = torch.randn(2, 7), torch.tensor([-1, 7])
    answer, total = torch.tensor([1.0, -torch.inf]), torch.tensor([2.0, 0.5])
    weight = torch.tensor([1.0, 2.0])
    truth = (scores - torch.logaddexp(total, answer).unsqueeze(1)).exp() * weight.unsqueeze(1)
    arguments = [x.to(device) for x in (torch.stack([answer, total]), weight)]
    there = scores.clone().to(device), target.to(device)
    found = engine.softmax_gradient(*there, 7, *arguments, False)
    close(found, truth)


@engines
def test_an_answer_without_negatives_has_the_gradient_0(engine, device):
    scores = torch.full((1, 3), -torch.inf, device=device)
    answer, weight = torch.ones(1, device=device), torch.ones(1, device=device)
    target = torch.tensor([1], device=device)
    state = torch.stack([answer, scores[:, 0]])
    found = engine.softmax_gradient(scores, target, 3, state, weight, False)
    assert found.cpu().eq(0.0).all()


@engines
@pytest.mark.usefixtures("many_rows")
def test_a_row_without_negatives_has_the_log_sum_exp_minus_infinity(engine, device):
    nothing = torch.full((2, 40), -torch.inf, device=device)
    target = torch.zeros(2, dtype=torch.int64, device=device)
    _, total = engine.log_sum_exp(nothing, target, 40)
    assert total.cpu().equal(torch.full((2,), -torch.inf))


@engines
@given(st.data())
@settings(deadline=None, max_examples=10)
def test_ranks_are_counted_as_in_a_plain_loop(engine, device, data):
    b, n = data.draw(st.sampled_from([(0, 3), (1, 1), (2, 3), (3, 1100)]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    scores = torch.randint(3, (b, n), generator=generator).float()
    scores[torch.rand(b, n, generator=generator) < 0.2] = -torch.inf
    answer = torch.randint(3, (b,), generator=generator).float()
    tolerance = torch.ones(b) if data.draw(st.booleans()) else None
    within = 0.0 if tolerance is None else 1.0
    row = torch.arange(b).flip(0) if data.draw(st.booleans()) else None
    rows = (scores if row is None else scores[row]).tolist()
    truth = [
        [sum(x > a + within for x in row), sum(abs(x - a) <= within for x in row)]
        for row, a in zip(rows, answer.tolist(), strict=True)
    ]
    there = [None if x is None else x.to(device) for x in (tolerance, row)]
    assert engine.count_ranks(scores.to(device), answer.to(device), *there).tolist() == truth


@needs_triton
def test_an_answer_of_minus_infinity_is_not_equal_to_columns_beyond_the_end():
    scores = torch.full((1, 3), -torch.inf, device=DEVICE)
    assert gpu.count_ranks(scores, scores[:, 0].clone(), None, None).tolist() == [[0, 3]]


@engines
@pytest.mark.parametrize("has_copy", [False, True])
def test_a_step_of_adagrad_is_pytorchs(engine, device, has_copy):
    table, grad, squares = torch.randn(3, 3, 700).unbind()
    squares = squares.square()
    parameter = torch.nn.Parameter(table.clone())
    optimizer = torch.optim.Adagrad([parameter], lr=0.1, eps=1e-10)
    optimizer.state[parameter]["sum"] = squares.clone()
    parameter.grad = grad.clone()
    optimizer.step()
    ours = [x.clone().to(device) for x in (table, grad, squares)]
    copy = torch.zeros(3, 700, dtype=torch.bfloat16, device=device) if has_copy else None
    engine.adagrad(*ours, torch.tensor(0.1, device=device), 1e-10, copy)
    close(ours[0], parameter.detach())
    close(ours[2], optimizer.state[parameter]["sum"])
    if copy is not None and engine is gpu and not GPU:  # the interpreter cuts digits off
        torch.testing.assert_close(copy.float(), ours[0], rtol=2**-7, atol=0)
    elif copy is not None:
        assert copy.equal(ours[0].bfloat16())


@engines
def test_rows_are_added_as_often_as_their_ids_occur(engine, device):
    table, rows = torch.randn(5, 1030), torch.randn(4, 1030)
    ids = torch.tensor([2, 0, 2, 4])
    truth = table.clone()
    for i, row in zip(ids.tolist(), rows, strict=True):
        truth[i] += row
    there = table.clone().to(device)
    engine.scatter_add(there, ids.to(device), rows.to(device))
    close(there, truth)


def test_both_engines_have_every_operation():
    names = set(fused.__all__) - {"exp_weights", "mask_out", "put"}  # the same on every engine
    assert all(hasattr(reference, name) for name in names)
    assert gpu is None or all(hasattr(gpu, name) for name in names)
