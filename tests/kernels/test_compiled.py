"""The compiled engine: tiles that do not divide the rows, threads, and wrong operands."""

from __future__ import annotations

import pytest
import torch
from distance_checks import check_gradients, check_scores, kernels, needs_compiler

from allneg.kernels.distances import compiled

pytestmark = needs_compiler


@kernels
@pytest.mark.parametrize("b, n, dim", [(2, 63, 33), (3, 64, 64), (5, 129, 65), (1, 700, 131)])
def test_no_pair_is_lost_at_the_edges_of_a_tile(parts, b, n, dim):
    query, table = torch.randn(b, parts * dim), torch.randn(n, parts * dim)
    check_scores("compiled", parts, query, table)
    check_gradients("compiled", parts, query, table)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_share_the_rows(monkeypatch, threads):
    monkeypatch.setattr(compiled, "_ENOUGH", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    spans = []
    n_spans = compiled._in_threads(lambda *span: spans.append(span), 3 * 330 * 6, 330)
    assert len(spans) == n_spans == min(threads, 6)
    assert [number for number, *_ in sorted(spans)] == list(range(n_spans))
    assert [i for _, *span in sorted(spans) for i in range(*span)] == list(range(330))
    for parts in (1, 2):
        query, table = torch.randn(3, 6), torch.randn(330, 6)
        check_scores("compiled", parts, query, table)
        check_gradients("compiled", parts, query, table)


@kernels
def test_scores_and_row_gradients_are_the_same_with_any_number_of_threads(monkeypatch, parts):
    monkeypatch.setattr(compiled, "_ENOUGH", 1)
    grad, query, table = torch.randn(5, 500), torch.randn(5, 70), torch.randn(500, 70)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        _, d_table = compiled.gradients(grad, query, table, parts)
        found.append((compiled.scores(query, table, parts), d_table))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@kernels
def test_strided_gradients_give_what_their_copies_give(parts):
    query, table, grad = torch.randn(4, 6), torch.randn(90, 6), torch.randn(90, 4).T
    part = torch.randn(4, 200)[:, 50:140]
    for strided in (grad, part, torch.ones(1, 1).expand(4, 90)):
        ours = compiled.gradients(strided, query, table, parts)
        copied = compiled.gradients(strided.clone(), query, table, parts)
        assert all(torch.equal(*pair) for pair in zip(ours, copied, strict=True))


@kernels
def test_values_that_are_not_finite_are_not_hidden(parts):
    query, table = torch.ones(1, 2), torch.zeros(3, 2)
    table[1, 0] = torch.nan
    table[2, 0] = torch.inf
    scores = compiled.scores(query, table, parts)
    assert scores.isnan().tolist() == [[False, True, False]]
    assert scores[0, 2] == -torch.inf
    d_query, _ = compiled.gradients(torch.full((1, 3), torch.nan), query, table, parts)
    assert d_query.isnan().all()


def test_rows_without_coordinates_have_the_distance_0():
    query, table = torch.randn(2, 0), torch.randn(3, 0)
    assert torch.equal(compiled.scores(query, table, 1), torch.zeros(2, 3))


@pytest.mark.parametrize(
    "query, table, message",
    [
        (torch.zeros(1, 4), torch.zeros(1, 6), r"queries of \(1, 4\) against rows of \(1, 6\)"),
        (torch.zeros(1, 4), torch.zeros(4), "against rows of"),
        (torch.zeros(1, 3), torch.zeros(1, 3), "cannot be split into 2 equal parts"),
        (torch.zeros(1, 4), torch.zeros(1, 4).double(), "both must be float32 on cpu"),
        (torch.zeros(1, 4), torch.zeros(1, 4, device="meta"), "both must be float32 on cpu"),
    ],
)
def test_operands_that_do_not_fit_are_refused_before_c_reads_them(query, table, message):
    with pytest.raises(ValueError, match=message):
        compiled.scores(query, table, 2)
    with pytest.raises(ValueError, match=message):
        compiled.gradients(torch.zeros(1, 1), query, table, 2)


def test_gradients_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="not of queries × rows"):
        compiled.gradients(torch.zeros(2, 1), torch.zeros(1, 4), torch.zeros(1, 4), 2)
