"""Which candidates a query is compared with: drawn, masked, corrected, never the answer twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Generator, Tensor

from allneg.graph.queries import KnownAnswers, Queries
from allneg.models import DistMult, Model
from allneg.recipe import Loss, Recipe
from allneg.scoring import Tables
from allneg.scoring.contrast import contrast
from allneg.scoring.losses import Softmax
from allneg.scoring.negatives import Candidates, NegativeSample, draw_sample, find_candidates
from allneg.scoring.scores import query_vectors, scores

NewTables = Callable[[Model, bool], Tables]
MODEL = DistMult(dim=3, scale=0.8)


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def drawn(settings: list[str], queries: Queries, generator: Generator) -> NegativeSample:
    recipe = Recipe().with_settings(["model.name=distmult", *settings])
    return draw_sample(recipe, MODEL, queries, 11, generator)


def sampled(negatives: str, count: int) -> list[str]:
    return [f"loss.negatives={negatives}", f"loss.n_negatives={count}"]


def losses(tables: Tables, queries: Queries, candidates: Candidates) -> Tensor:
    """The softmax loss of each query."""
    query = query_vectors(MODEL, tables, queries)
    loss, weight = Softmax(Loss()), torch.ones(len(queries))
    return contrast(MODEL.kernel, query, candidates, loss, weight)[0]


def test_a_shared_sample_holds_different_entities_and_the_batchs_answers(triples: Tensor) -> None:
    queries = Queries.of(triples, "tail")
    seen = set()
    for seed in range(50):
        sample = drawn(sampled("shared", 4), queries, seeded(seed))
        assert sample.shared is not None
        assert sample.answers is not None
        ids = sample.shared.tolist()
        assert len(ids) == len(set(ids)) == 4
        assert sample.answers.equal(queries.answer)
        seen |= set(ids)
    assert seen == set(range(11))


def test_negatives_per_query_are_drawn_from_all_entities(triples: Tensor) -> None:
    queries = Queries.of(triples, "tail")
    ids = drawn(sampled("per_query", 200), queries, seeded(0)).per_query
    assert ids is not None
    assert ids.shape == (len(triples), 201)
    assert ids[:, 0].equal(queries.answer)
    assert all(set(row.tolist()) == set(range(11)) for row in ids[:, 1:])
    assert not ids[0, 1:].equal(ids[1, 1:])


def test_a_part_of_a_sample_keeps_what_the_batch_shares(triples: Tensor) -> None:
    settings = [*sampled("shared", 4), "model.entity_dropout=0.5", "model.relation_dropout=0.5"]
    queries = Queries.of(triples, "tail")
    whole = drawn(settings, queries, seeded(0))
    part = whole[2:5]
    assert part.shared is whole.shared
    assert part.answers is whole.answers
    assert part.entity_mask.equal(whole.entity_mask[2:5])
    assert part.relation_mask.equal(whole.relation_mask[2:5])
    own = drawn(sampled("per_query", 3), queries, seeded(0))
    assert own[2:5].per_query.equal(own.per_query[2:5])


def test_a_shared_sample_of_all_entities_is_the_whole_table(
    triples: Tensor, known: KnownAnswers, new_tables: NewTables
) -> None:
    tables, queries = new_tables(MODEL, False), Queries.of(triples, "tail")
    for mask in (None, known):
        sample = drawn(sampled("shared", 11), queries, seeded(0))
        shared = find_candidates(tables, queries, sample, mask, Loss())
        every = find_candidates(tables, queries, NegativeSample(), mask, Loss())
        torch.testing.assert_close(losses(tables, queries, shared), losses(tables, queries, every))


def test_the_correction_makes_the_sum_over_a_sample_an_unbiased_estimate(
    new_tables: NewTables,
) -> None:
    # The loss of a query is log Σ exp - answer, so exp(loss + answer) estimates Σ exp, and its
    # mean over samples must be that sum.
    triples = torch.tensor([[0, 0, 1], [4, 0, 2], [5, 0, 3]])
    tables, queries = new_tables(MODEL, False), Queries.of(triples, "tail")
    every = scores(MODEL, tables, queries).double()
    truth, answer = every.exp().sum(1)[0].item(), every[0, 1]

    def mean_and_error(correction: bool) -> tuple[float, float]:
        generator, found = seeded(0), []
        settings = Loss(negatives="shared", n_negatives=4, correction=correction)
        for _ in range(400):
            sample = drawn(sampled("shared", 4), queries, generator)
            candidates = find_candidates(tables, queries, sample, None, settings)
            found.append(losses(tables, queries, candidates)[0])
        estimate = (torch.stack(found).double() + answer).exp()
        return estimate.mean().item(), estimate.std().item() / 400**0.5

    mean, error = mean_and_error(correction=True)
    assert abs(mean - truth) < 4 * error
    assert error < 0.03 * mean
    mean, error = mean_and_error(correction=False)
    assert truth - mean > 10 * error  # without it, the sum is too small


@pytest.mark.parametrize("negatives, count", [("all", 0), ("shared", 8), ("per_query", 60)])
def test_masks_hide_other_known_answers_and_never_the_answer(
    negatives: Literal["all", "shared", "per_query"],
    count: int,
    triples: Tensor,
    known: KnownAnswers,
    new_tables: NewTables,
) -> None:
    # The gradient of one query shows who took part: (0, 0, ?) with the answer 1.
    tables, queries = new_tables(MODEL, False), Queries.of(triples[:1], "tail")
    settings = sampled(negatives, count) if count else []
    sample = drawn(settings, queries, seeded(1))

    def used(mask: KnownAnswers | None) -> set[int]:
        candidates = find_candidates(tables, queries, sample, mask, Loss(negatives=negatives))
        query = query_vectors(MODEL, tables, queries)
        loss, weight = Softmax(Loss()), torch.ones(1)
        _, _, gradient = contrast(MODEL.kernel, query, candidates, loss, weight)
        ids = torch.arange(11) if candidates.ids is None else candidates.ids.flatten()
        return set(ids[gradient.view(-1, 3).any(1)].tolist())

    assert {1, 2, 3} <= used(None)
    assert used(known) == used(None) - {2, 3}


@pytest.mark.parametrize("masked", [False, True])
def test_without_in_batch_negatives_only_drawn_entities_are_negatives(
    masked: bool, triples: Tensor, known: KnownAnswers, new_tables: NewTables
) -> None:
    tables, queries = new_tables(MODEL, False), Queries.of(triples, "tail")
    every = scores(MODEL, tables, queries)
    settings = Loss(negatives="shared", n_negatives=3, in_batch_negatives=False)
    for seed in range(20):
        ids = torch.randperm(11, generator=seeded(seed))[:3].tolist()
        truth = []
        for i, answer in enumerate(queries.answer.tolist()):
            right = {int(t) for h, r, t in triples if [h, r] == triples[i, :2].tolist()}
            negatives = [e for e in ids if e != answer and not (masked and e in right)]
            row = every[i, [answer, *negatives]]
            truth.append(row.logsumexp(0) - row[0])
        sample = drawn(sampled("shared", 3), queries, seeded(seed))
        mask = known if masked else None
        candidates = find_candidates(tables, queries, sample, mask, settings)
        torch.testing.assert_close(losses(tables, queries, candidates), torch.stack(truth))


def test_dropout_keeps_the_mean_and_differs_between_batches() -> None:
    queries = Queries.for_side("tail", *torch.zeros(3, 4000, dtype=torch.int64))
    settings = ["model.entity_dropout=0.25", "model.relation_dropout=0.5"]
    generator = seeded(0)
    first, second = (drawn(settings, queries, generator) for _ in range(2))
    for mask, again, rate in (
        (first.entity_mask, second.entity_mask, 0.25),
        (first.relation_mask, second.relation_mask, 0.5),
    ):
        assert mask is not None
        assert again is not None
        assert mask.shape == (4000, 3)
        torch.testing.assert_close(mask.unique(), torch.tensor([0, 1 / (1 - rate)]))
        assert mask.mean().item() == pytest.approx(1, abs=0.03)
        assert not mask.equal(again)
