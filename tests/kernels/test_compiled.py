"""The compiled engine: tiles that nothing divides, threads, and what must not reach C."""

from __future__ import annotations

import pytest
import torch
from check_engine import (
    engine_and_reference,
    gradients_are_as_exact_as_the_reference,
    kernels,
    needs_compiler,
    scores_are_as_exact_as_the_reference,
)

from allneg.kernels import pairs

pytestmark = needs_compiler


@kernels
@pytest.mark.parametrize("b, n, dim", [(2, 63, 33), (3, 64, 64), (5, 129, 65), (1, 700, 131)])
def test_around_the_edges_of_a_tile_nothing_is_lost(kernel, parts, b, n, dim):
    engine, reference = engine_and_reference(kernel, "compiled")
    query, table = torch.randn(b, parts * dim), torch.randn(n, parts * dim)
    scores_are_as_exact_as_the_reference(engine, reference, query, table)
    gradients_are_as_exact_as_the_reference(engine, reference, query, table)


@kernels
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_share_the_rows_and_lose_none(monkeypatch, kernel, parts, threads):
    monkeypatch.setattr(pairs, "_ENOUGH", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    engine, reference = engine_and_reference(kernel, "compiled")
    query, table = torch.randn(3, 6), torch.randn(330, 6)
    spans = pairs._spans(query, table)
    assert len(spans) == min(threads, 6)
    assert [i for each in spans for i in range(330)[each]] == list(range(330))
    scores_are_as_exact_as_the_reference(engine, reference, query, table)
    gradients_are_as_exact_as_the_reference(engine, reference, query, table)


@kernels
def test_scores_and_pulls_of_rows_are_the_same_with_any_number_of_threads(
    monkeypatch, kernel, parts
):
    monkeypatch.setattr(pairs, "_ENOUGH", 1)
    grad, query, table = torch.randn(5, 500), torch.randn(5, 70), torch.randn(500, 70)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        _, to_table = pairs.gradients(grad, query, table, parts)
        found.append((pairs.scores(query, table, parts), to_table))
    assert all(torch.equal(*each) for each in zip(*found, strict=True))


@kernels
def test_strided_slopes_give_what_their_copies_give(kernel, parts):
    query, table, grad = torch.randn(4, 6), torch.randn(90, 6), torch.randn(90, 4).T
    few = torch.randn(4, 200)[:, 50:140]
    for strided in (grad, few, torch.ones(1, 1).expand(4, 90)):
        ours = pairs.gradients(strided, query, table, parts)
        copied = pairs.gradients(strided.clone(), query, table, parts)
        assert all(torch.equal(*each) for each in zip(ours, copied, strict=True))


@kernels
def test_what_is_not_finite_is_not_hidden(kernel, parts):
    query, table = torch.ones(1, 2), torch.zeros(3, 2)
    table[1, 0] = torch.nan
    table[2, 0] = torch.inf
    scores = pairs.scores(query, table, parts)
    assert scores.isnan().tolist() == [[False, True, False]]
    assert scores[0, 2] == -torch.inf
    to_query, _ = pairs.gradients(torch.full((1, 3), torch.nan), query, table, parts)
    assert to_query.isnan().all()


def test_no_coordinates_are_no_distance():
    query, table = torch.randn(2, 0), torch.randn(3, 0)
    assert torch.equal(pairs.scores(query, table, 1), torch.zeros(2, 3))


@pytest.mark.parametrize(
    "query, table, message",
    [
        (torch.zeros(1, 4), torch.zeros(1, 6), r"queries of \(1, 4\) against rows of \(1, 6\)"),
        (torch.zeros(1, 4), torch.zeros(4), "against rows of"),
        (torch.zeros(1, 3), torch.zeros(1, 3), "no 2 equal parts"),
        (torch.zeros(1, 4), torch.zeros(1, 4).double(), "both must be float32"),
        (torch.zeros(1, 4), torch.zeros(1, 4, device="meta"), "both must be on cpu"),
    ],
)
def test_what_does_not_fit_is_refused_before_c_reads_it(query, table, message):
    with pytest.raises(ValueError, match=message):
        pairs.scores(query, table, 2)
    with pytest.raises(ValueError, match=message):
        pairs.gradients(torch.zeros(1, 1), query, table, 2)


def test_slopes_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="not of queries × rows"):
        pairs.gradients(torch.zeros(2, 1), torch.zeros(1, 4), torch.zeros(1, 4), 2)
