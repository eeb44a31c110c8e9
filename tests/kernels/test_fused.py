"""The small kernels of a step: each engine says what the reference says."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from check_engine import GPU
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from allneg.kernels import times
from allneg.kernels.adagrad import reference as adagrad
from allneg.kernels.answers import reference as answers
from allneg.kernels.counts import reference as counts
from allneg.kernels.looked import reference as looked
from allneg.kernels.powers import power_sums
from allneg.kernels.powers import reference as powers
from allneg.kernels.rows import add_rows
from allneg.kernels.softmax import cpu as in_pieces
from allneg.kernels.softmax import reference as softmax
from allneg.kernels.times import reference as products

DEVICE = "cuda" if GPU else "cpu"
ROWS = [(1, 2), (3, 10), (5, 2050), (600, 4)]


def gpu(kernel: str) -> ModuleType:
    return importlib.import_module(f"allneg.kernels.{kernel}.gpu")


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows, width", ROWS)
@pytest.mark.parametrize("conjugate", [False, True])
def test_a_complex_product_is_pytorchs(rows: int, width: int, conjugate: bool) -> None:
    a, b = torch.randn(2, rows, width)
    first, second = (torch.complex(*each.chunk(2, 1)) for each in (a, b))
    number = first * (second.conj() if conjugate else second)
    truth = torch.cat([number.real, number.imag], 1)
    close(products.times(a, b, conjugate), truth)
    close(gpu("times").times(a.to(DEVICE), b.to(DEVICE), conjugate), truth)


@pytest.mark.parametrize("rows, width", ROWS)
@pytest.mark.parametrize("conjugate", [False, True])
def test_both_slopes_of_a_complex_product_come_in_one_pass(
    rows: int, width: int, conjugate: bool
) -> None:
    given = torch.randn(3, rows, width)
    truth = products.gradients(*given, conjugate)
    ours = gpu("times").gradients(*given.to(DEVICE), conjugate)
    for found, true in zip(ours, truth, strict=True):
        close(found, true)


@pytest.mark.parametrize("conjugate", [False, True])
def test_the_slopes_of_a_complex_product_are_autograds(conjugate: bool) -> None:
    a, b = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True).unbind()
    torch.autograd.gradcheck(lambda x, y: times(x, y, conjugate), (a, b))


def test_no_slope_is_made_that_nobody_asked_for() -> None:
    a, b = torch.randn(3, 8), torch.randn(3, 8, requires_grad=True)
    times(a, b).sum().backward()
    assert a.grad is None
    assert b.grad is not None


@pytest.mark.parametrize("rows, width", ROWS)
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("power", [2, 3])
def test_a_sum_of_powers_is_that_of_the_moduli(
    rows: int, width: int, axes: int, power: int
) -> None:
    x, grad = torch.randn(rows, width), torch.randn(rows)
    moduli = torch.complex(*x.chunk(2, 1)).abs() if axes == 2 else x.abs()
    truth = (moduli.double() ** power).sum(1).float()
    slopes = powers.slopes(grad, x, axes, power)
    torch.testing.assert_close(powers.sums(x, axes, power), truth)
    there = x.to(DEVICE)
    torch.testing.assert_close(gpu("powers").sums(there, axes, power).cpu(), truth)
    close(gpu("powers").slopes(grad.to(DEVICE), there, axes, power), slopes)


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("power", [2, 3])
def test_the_slopes_of_a_sum_of_powers_are_autograds(axes: int, power: int) -> None:
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda rows: power_sums(rows, axes, power), (x,))


@pytest.mark.parametrize("axes", [1, 2])
def test_a_row_of_zeros_has_slopes_of_zeros(axes: int) -> None:
    for engine, device in ((powers, "cpu"), (gpu("powers"), DEVICE)):
        zeros, grad = torch.zeros(2, 4, device=device), torch.ones(2, device=device)
        assert engine.slopes(grad, zeros, axes, 3).cpu().equal(torch.zeros(2, 4))


@pytest.mark.parametrize("count", [300, 299, 171])
def test_answers_are_taken_out_and_padding_with_them(count: int) -> None:
    scores = torch.randn(5, 300)
    place = torch.tensor([0, 170, -1, 300, 42])  # two are in other blocks
    ours, theirs = scores.clone().to(DEVICE), scores.clone()
    taken = gpu("answers").strike(ours, place.to(DEVICE), count)
    truth = answers.strike(theirs, place, count)
    assert taken.cpu().equal(truth)
    assert ours.cpu().equal(theirs)
    assert truth[[0, 1, 4]].equal(scores[[0, 1, 4], [0, 170, 42]])
    assert truth[[2, 3]].equal(torch.full((2,), -torch.inf))
    assert theirs[:, count:].eq(-torch.inf).all()
    assert (theirs[:, :count] > -torch.inf).sum() == 5 * count - 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_are_put_where_the_places_are_inside(dtype: torch.dtype) -> None:
    slopes, values = torch.randn(3, 7).to(dtype), torch.randn(3)
    place = torch.tensor([6, 7, -3])
    ours, theirs = slopes.clone().to(DEVICE), slopes.clone()
    gpu("answers").put(ours, place.to(DEVICE), values.to(DEVICE))
    answers.put(theirs, place, values)
    assert ours.cpu().equal(theirs)
    assert theirs[0, 6] == values[0].to(dtype)
    assert theirs[1:].equal(slopes[1:])


@pytest.mark.parametrize("rows, width", [(1, 1), (3, 5000), (2, 9000), (520, 30)])
def test_a_log_sum_exp_is_pytorchs_and_its_shares_too(rows: int, width: int) -> None:
    scores = 30 * torch.randn(rows, width)
    scores[0, 0] = -torch.inf
    truth = softmax.log_sum_exp(scores)
    there = scores.clone().to(DEVICE)
    close(gpu("softmax").log_sum_exp(there), truth)
    weight = torch.randn(rows)
    total = torch.where(truth > -torch.inf, truth, 0.0)
    given = total.to(DEVICE), weight.to(DEVICE)
    shares = gpu("softmax").shares(there, *given)
    close(shares, softmax.shares(scores.clone(), total, weight))


@pytest.mark.parametrize("rows, width", [(1, 1), (3, 5000), (5, 9000)])
@pytest.mark.parametrize("narrow", [False, True])
def test_the_slopes_of_a_softmax_are_autograds(rows: int, width: int, narrow: bool) -> None:
    scores = 10 * torch.randn(rows, width)
    place = torch.arange(rows) * 2000  # the last of five is in the third block of columns
    target = scores.clone().requires_grad_()
    weight = torch.rand(rows)
    loss = F.cross_entropy(target, place, reduction="none")
    (truth,) = torch.autograd.grad(loss, target, weight)
    answer = answers.strike(scores, place, width)
    given = place, answer, softmax.log_sum_exp(scores), weight
    dtype = torch.bfloat16 if narrow else torch.float32
    there = scores.clone().to(DEVICE), *(each.to(DEVICE) for each in given)
    found = [
        gpu("softmax").slopes(*there, narrow),
        softmax.slopes(scores.clone(), *given, narrow),
        in_pieces.slopes(scores.clone(), *given, narrow),
    ]
    for slopes in found:
        assert slopes.dtype == dtype
        tolerance = {"rtol": 8e-3, "atol": 1e-6} if narrow else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(slopes.cpu().float(), truth, **tolerance)


def test_the_slope_of_an_answer_elsewhere_is_put_nowhere() -> None:
    scores, place = torch.randn(2, 7), torch.tensor([-1, 7])
    answer, rivals = torch.tensor([1.0, -torch.inf]), torch.tensor([2.0, 0.5])
    weight = torch.tensor([1.0, 2.0])
    truth = (scores - torch.logaddexp(rivals, answer).unsqueeze(1)).exp() * weight.unsqueeze(1)
    given = [each.to(DEVICE) for each in (scores.clone(), place, answer, rivals, weight)]
    close(gpu("softmax").slopes(*given, narrow=False), truth)
    close(softmax.slopes(scores, place, answer, rivals, weight, narrow=False), truth)


def test_an_answer_without_rivals_has_no_slope() -> None:
    for engine, device in ((softmax, "cpu"), (gpu("softmax"), DEVICE)):
        scores = torch.full((1, 3), -torch.inf, device=device)
        answer, weight = torch.ones(1, device=device), torch.ones(1, device=device)
        place = torch.tensor([1], device=device)
        found = engine.slopes(scores, place, answer, scores[:, 0].clone(), weight, narrow=False)
        assert found.cpu().eq(0.0).all()


def test_a_row_of_nothing_has_a_log_sum_exp_of_minus_infinity() -> None:
    for shape in ((2, 40), (600, 3)):
        nothing = torch.full(shape, -torch.inf, device=DEVICE)
        assert gpu("softmax").log_sum_exp(nothing).cpu().equal(torch.full(shape[:1], -torch.inf))


@pytest.mark.parametrize("name", ["cpu", "gpu"])
@given(st.data())
@settings(deadline=None, max_examples=10)
def test_rivals_are_counted_as_one_would_by_hand(name: str, data: st.DataObject) -> None:
    b, n = data.draw(st.sampled_from([(0, 3), (1, 1), (2, 3), (3, 1100)]))
    seed = data.draw(st.integers(0, 1000))
    chance = torch.Generator().manual_seed(seed)
    scores = torch.randint(3, (b, n), generator=chance).float()
    scores[torch.rand(b, n, generator=chance) < 0.2] = -torch.inf
    answer = torch.randint(3, (b,), generator=chance).float()
    slack = torch.tensor([1.0]).expand(b).clone() if data.draw(st.booleans()) else None
    within = 0.0 if slack is None else 1.0
    truth = [
        [sum(x > a + within for x in row), sum(abs(x - a) <= within for x in row)]
        for row, a in zip(scores.tolist(), answer.tolist(), strict=True)
    ]
    engine = importlib.import_module(f"allneg.kernels.counts.{name}")
    device = DEVICE if name == "gpu" else "cpu"
    there = None if slack is None else slack.to(device)
    found = engine.counts(scores.to(device), answer.to(device), there)
    assert found.tolist() == truth
    assert counts.counts(scores, answer, slack).tolist() == truth


def test_an_answer_of_minus_infinity_is_not_equal_to_what_is_beyond_the_end() -> None:
    scores = torch.full((1, 3), -torch.inf, device=DEVICE)
    found = gpu("counts").counts(scores, scores[:, 0].clone(), None)
    assert found.tolist() == [[0, 3]]


@pytest.mark.parametrize("is_rounded", [False, True])
def test_one_pass_of_adagrad_is_two_of_pytorchs(is_rounded: bool) -> None:
    table, grad, memory = torch.randn(3, 3, 700).unbind()
    memory = memory.square()
    ours = [each.clone().to(DEVICE) for each in (table, grad, memory)]
    rounded = torch.zeros_like(table, dtype=torch.bfloat16) if is_rounded else None
    there = None if rounded is None else rounded.to(DEVICE)
    gpu("adagrad").adagrad(*ours, torch.tensor(0.1, device=DEVICE), 1e-10, there)
    adagrad.adagrad(table, grad, memory, torch.tensor(0.1), 1e-10, rounded)
    close(ours[0], table)
    close(ours[2], memory)
    if rounded is not None:
        assert there is not None
        assert rounded.equal(table.bfloat16())
        assert there.equal(ours[0].bfloat16())


def test_rows_are_added_at_their_places_each_time_they_are_named() -> None:
    table, rows = torch.randn(5, 1030), torch.randn(4, 1030)
    ids = torch.tensor([2, 0, 2, 4])
    truth = table.clone()
    for place, row in zip(ids.tolist(), rows, strict=True):
        truth[place] += row
    there = table.clone().to(DEVICE)
    gpu("rows").add_rows(there, ids.to(DEVICE), rows.to(DEVICE))
    close(there, truth)
    add_rows(table, ids, rows)
    close(table, truth)


@pytest.mark.parametrize("width", [2, 10, 2060])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("power", [2, 3])
def test_rows_are_looked_up_with_their_sizes(width: int, axes: int, power: int) -> None:
    table, ids = torch.randn(5, width), torch.tensor([2, 0, 2, 4])
    rows, sizes = looked.look(table, ids, axes, power, None)
    assert rows.equal(table[ids])
    close(sizes, powers.sums(table[ids], axes, power))
    ours, found = gpu("looked").look(table.to(DEVICE), ids.to(DEVICE), axes, power, None)
    assert ours.cpu().equal(rows)
    torch.testing.assert_close(found.cpu(), sizes)
    more, again = gpu("looked").look(table.to(DEVICE), ids.to(DEVICE), axes, power, found)
    assert more.cpu().equal(rows)
    assert again is found
    torch.testing.assert_close(found.cpu(), 2 * sizes)
    assert looked.look(table, ids, axes, power, sizes)[1] is sizes
    torch.testing.assert_close(found.cpu(), sizes)


@pytest.mark.parametrize("width", [2, 10, 2060])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("power", [2, 3])
@pytest.mark.parametrize("has_rows", [False, True])
def test_slopes_of_sizes_are_added_where_their_rows_lie(
    width: int, axes: int, power: int, has_rows: bool
) -> None:
    out, table = torch.randn(2, 5, width).unbind()
    ids, weight = torch.tensor([2, 0, 2, 4]), torch.randn(4)
    table[4] = 0.0  # the slope at 0 is 0
    rows = torch.randn(4, width) if has_rows else None
    truth = out.clone()
    for i, place in enumerate(ids.tolist()):
        truth[place] += powers.slopes(weight[i : i + 1], table[place : place + 1], axes, power)[0]
        truth[place] += 0.0 if rows is None else rows[i]
    there = out.clone().to(DEVICE)
    given = (table, ids, axes, power, weight, rows)
    gpu("looked").add_slopes(
        there, *(each.to(DEVICE) if isinstance(each, Tensor) else each for each in given)
    )
    close(there, truth)
    looked.add_slopes(out, *given)
    close(out, truth)
