"""softmax.c is as exact as plain PyTorch, for any size, mask, weight and number of threads."""

from __future__ import annotations

import pytest
import torch
from distance_checks import needs_compiler
from torch import Tensor

from allneg.kernels.fused import reference, softmax

SIZES = [(1, 1), (2, 16), (3, 33), (7, 2050), (5, 14541)]
pytestmark = needs_compiler


@pytest.fixture
def plain(monkeypatch):
    """Calls a function without C."""

    def call(function, *args):
        with monkeypatch.context() as patch:
            patch.setattr(softmax, "library", lambda: None)
            return function(*args)

    return call


def case(rows: int, width: int, scale: float) -> tuple[Tensor, Tensor, int]:
    """Scores with some -inf, targets of which some are elsewhere, and a count without padding."""
    generator = torch.Generator().manual_seed(rows + width)
    scores = scale * torch.randn(rows, width, generator=generator)
    scores[torch.rand(rows, width, generator=generator) < 0.1] = -torch.inf
    count = width - width // 9
    target = torch.randint(-1, width, (rows,), generator=generator).clamp(max=count - 1)
    return scores, target, count


def test_c_is_used():
    scores = torch.zeros(2, 3)
    assert reference._in_c("log_sum_exp", scores, 3, torch.tensor([0, 1]), scores[0], scores[1])


@pytest.mark.parametrize("rows, width", SIZES)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_c_is_no_less_exact_than_pytorch(rows, width, scale, plain):
    scores, target, count = case(rows, width, scale)
    weight = torch.rand(rows)
    weight[0] = 0.0 if rows > 1 else 0.3
    exact = scores.double(), target, count
    truth = plain(reference.log_sum_exp, exact[0].clone(), target, count)
    ours = reference.log_sum_exp(scores.clone(), target, count)
    theirs = plain(reference.log_sum_exp, scores.clone(), target, count)
    assert_no_less_exact(ours, theirs, truth)
    gradient = plain(reference.softmax_gradient, *exact, truth, weight.double(), False)
    state = truth.float()  # the same one for both
    ours = reference.softmax_gradient(scores.clone(), target, count, state, weight, False)
    theirs = plain(reference.softmax_gradient, scores.clone(), target, count, state, weight, False)
    assert_no_less_exact(ours, theirs, gradient)
    assert not ours[:, count:].any()


def assert_no_less_exact(ours: Tensor, theirs: Tensor, truth: Tensor) -> None:
    assert ours.isneginf().equal(truth.isneginf())
    finite = truth.isfinite()
    ours, theirs, truth = ours[finite], theirs[finite], truth[finite]
    allowed = 1.5 * (theirs - truth).abs() + 5e-7 * truth.abs() + 1e-30
    assert ((ours - truth).abs() <= allowed).all()


def test_exponentials_are_exact_to_two_units_of_the_last_place():
    x = torch.linspace(-87, 88, 1 << 20).unsqueeze(0)
    state = torch.tensor([[-torch.inf], [0.0]])
    none, one = torch.tensor([-1]), torch.ones(1)
    found = reference.softmax_gradient(x.clone(), none, x.shape[1], state, one, False)
    truth = x.double().exp()
    assert ((found - truth).abs() / truth).max() < 2**-22
    far = torch.tensor([[-torch.inf, -1e9, -104.0, 0.0, 1e9, torch.nan]])
    found = reference.softmax_gradient(far, none, 6, state, one, False)
    expected = torch.tensor([[0.0, 0.0, 0.0, 1.0, torch.inf, torch.nan]])
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_a_score_that_is_not_finite_is_not_hidden():
    none = torch.tensor([-1, -1])
    scores = torch.zeros(2, 40)
    scores[0, 3], scores[1, 5] = torch.nan, torch.inf
    assert not reference.log_sum_exp(scores, none, 40)[1].isfinite().any()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_number_of_threads_changes_no_byte(threads, monkeypatch):
    scores, target, count = case(7, 2050, 3.0)
    weight, results, before = torch.rand(7), [], torch.get_num_threads()
    monkeypatch.setattr(reference, "_EXPONENTIALS", 1)
    for n in (threads, 1):
        torch.set_num_threads(n)
        state = reference.log_sum_exp(scores.clone(), target, count)
        gradient = reference.softmax_gradient(scores.clone(), target, count, state, weight, False)
        results.append((state, gradient))
    torch.set_num_threads(before)
    assert all(a.equal(b) for a, b in zip(*results, strict=True))


def test_rows_of_a_wider_matrix_are_changed_and_nothing_else():
    whole = torch.randn(4, 100)
    before, target = whole.clone(), torch.tensor([3, -1, 79, 80])
    state = reference.log_sum_exp(whole[:, :80], target, 80)
    reference.softmax_gradient(whole[:, :80], target, 80, state, torch.ones(4), False)
    assert whole[:, 80:].equal(before[:, 80:])
    assert (whole[:, :80] != before[:, :80]).all()


@pytest.mark.parametrize("change", ["double", "transposed", "weights", "targets"])
def test_other_layouts_and_types_are_computed_without_c(change):
    scores, target, weight = torch.randn(6, 6), torch.arange(6), torch.rand(6)
    expected = reference.log_sum_exp(scores.clone(), target, 6)
    if change == "double":
        scores = scores.double()
    elif change == "transposed":
        scores = scores.T.contiguous().T
    elif change == "weights":
        weight = weight.double()
    else:
        target = torch.stack([torch.arange(6), torch.zeros(6, dtype=torch.int64)], 1)[:, 0]
    found = reference.log_sum_exp(scores.clone(), target, 6)
    torch.testing.assert_close(found.float(), expected)
    gradient = reference.softmax_gradient(scores.clone(), target, 6, found, weight, False)
    assert gradient.sum(1).abs().max() < 1e-6


@pytest.mark.parametrize("b, n, a", [(1, 1, 1), (3, 33, 7), (5, 4000, 9), (2, 16, 0)])
@pytest.mark.parametrize("tolerant", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_ranks_in_c_are_those_of_pytorch(b, n, a, tolerant, threads, plain, monkeypatch):
    generator = torch.Generator().manual_seed(n)
    scores = torch.randint(-3, 4, (b, n + 5), generator=generator).float()[:, :n]
    scores[torch.rand(b, n, generator=generator) < 0.2] = -torch.inf
    scores[torch.rand(b, n, generator=generator) < 0.1] = torch.nan
    row = torch.randint(b, (a,), generator=generator)
    answer = torch.tensor([0.0, -torch.inf, 2.0]).repeat(a)[:a]
    tolerance = torch.ones(a) if tolerant else None
    monkeypatch.setattr(reference, "_COMPARISONS", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found = reference.ranks_in_c(scores, answer, tolerance, row)
    torch.set_num_threads(before)
    assert found is not None
    assert found.equal(plain(reference.count_ranks, scores, answer, tolerance, row))


def test_ranks_of_other_types_are_counted_without_c():
    scores, answer = torch.randn(2, 9).double(), torch.zeros(2).double()
    assert reference.ranks_in_c(scores, answer, None, None) is None
    expected = torch.stack([(scores > 0).sum(1), (scores == 0).sum(1)], 1)
    assert reference.count_ranks(scores, answer, None, None).equal(expected)
