"""What chance decides for a batch, what is hidden from it, and how it is cut into parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
import torch
from allneg.scoring.objective import answer_weights
from torch import Generator, Tensor

from allneg.graph import Graph, Vocabulary
from allneg.graph.queries import SIDES, KnownAnswers, Queries
from allneg.models import MODELS, ComplEx, DistMult, Model
from allneg.recipe import Loss, Regularizer
from allneg.scoring import Objective, Shard, Tables, scores

Start = Callable[[Model, bool], Tables]
Name = Literal["softmax", "margin", "logistic", "self-adversarial"]
Negatives = Literal["all", "shared", "own"]

LOSSES: list[Name] = ["softmax", "margin", "logistic", "self-adversarial"]
NORMS = {"transe": (1, 2), "rotate": (1, 2)}
EVERY = [(name, norm) for name in MODELS for norm in NORMS.get(name, (1,))]
NONE = Regularizer("none")


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.parametrize("name, norm", EVERY)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("negatives, count", [("all", None), ("shared", 4), ("own", 5)])
@pytest.mark.parametrize("masked", [False, True])
def test_the_parts_of_a_batch_have_the_whole_batchs_gradient(
    name: str,
    norm: int,
    loss: Name,
    negatives: Negatives,
    count: int | None,
    masked: bool,
    triples: Tensor,
    known: KnownAnswers,
    started: Start,
) -> None:
    model = MODELS[name](dim=3, scale=0.8, norm=norm)
    settings = Loss(
        loss,
        negatives,
        count,
        correction=loss == "softmax" and negatives == "shared",
        smoothing=0.1 if loss == "softmax" else 0.0,
        margin=0.0 if loss == "softmax" else 2.0,
        mask_known=masked,
        subsampling=masked,
    )
    objective = Objective(model, settings, Regularizer("n3", 0.1), known, 0.3, 0.2)
    queries = Queries.of(triples, "head")

    def summed(size: int) -> tuple[Tensor, Tensor, Tensor]:
        tables = started(model, masked)
        total = torch.zeros(())
        n_parts = 0
        drawn = objective.draw(tables, queries, seeded(3))
        for value in objective.parts(tables, queries, size, drawn):
            value.backward()
            total += value.detach()
            n_parts += 1
        assert n_parts == -(-len(queries) // size)
        assert tables.entities.grad is not None
        assert tables.relations.grad is not None
        return total, tables.entities.grad, tables.relations.grad

    whole = summed(len(queries))
    for size in (1, 4):  # 4 leaves a part of 1 over
        for found, true in zip(summed(size), whole, strict=True):
            torch.testing.assert_close(found, true, rtol=1e-5, atol=1e-6)
    value = objective.value(started(model, masked), queries, seeded(3))
    torch.testing.assert_close(value.detach(), whole[0])


def test_a_shared_sample_is_so_many_beside_the_batchs_answers(
    triples: Tensor, known: KnownAnswers, started: Start
) -> None:
    model = DistMult(dim=3, scale=0.8)
    objective = Objective(model, Loss(negatives="shared", count=4), NONE, known)
    queries = Queries.of(triples, "tail")
    seen = set()
    for seed in range(50):
        drawn = objective.draw(started(model, False), queries, seeded(seed))
        assert drawn.shared is not None
        assert drawn.answers is not None
        ids = drawn.shared.tolist()
        assert len(ids) == len(set(ids)) == 4
        assert drawn.answers.equal(queries.answer)
        seen |= set(ids)
    assert seen == set(range(11))


def test_a_shared_sample_of_everybody_is_all(
    triples: Tensor, known: KnownAnswers, started: Start
) -> None:
    model = ComplEx(dim=3, scale=0.8)
    tables, queries = started(model, False), Queries.of(triples, "tail")
    for settings in (Loss(), Loss(mask_known=True), Loss("logistic")):
        against_all = Objective(model, settings, NONE, known).value(tables, queries, seeded(0))
        everybody = replace(settings, negatives="shared", count=11)
        shared = Objective(model, everybody, NONE, known).value(tables, queries, seeded(0))
        torch.testing.assert_close(shared, against_all)


def test_own_rivals_are_drawn_for_each_question_from_everybody(
    triples: Tensor, known: KnownAnswers, started: Start
) -> None:
    model = DistMult(dim=3, scale=0.8)
    objective = Objective(model, Loss(negatives="per_query", count=200), NONE, known)
    queries = Queries.of(triples, "tail")
    drawn = objective.draw(started(model, False), queries, seeded(0)).own
    assert drawn is not None
    assert drawn.shape == (len(triples), 201)
    assert drawn[:, 0].equal(queries.answer)
    assert all(set(row.tolist()) == set(range(11)) for row in drawn[:, 1:])
    assert not drawn[0, 1:].equal(drawn[1, 1:])


def test_the_correction_makes_the_sample_an_unbiased_estimate_of_the_whole_sum(
    started: Start,
) -> None:
    # One query with two others' answers in the batch; its loss is log Σ exp - answer, so
    # exp(loss + answer) is the estimate of Σ exp, and its mean over draws must be the sum.
    triples = torch.tensor([[0, 0, 1], [4, 0, 2], [5, 0, 3]])
    known = KnownAnswers.of([triples.numpy()], 11, 3)
    model = DistMult(dim=3, scale=0.9)
    tables = started(model, False)
    queries = Queries.of(triples, "tail")
    truth = scores(model, tables, queries).detach().double().exp().sum(1)
    answer = scores(model, tables, queries)[0, 1].detach().double()

    def mean_and_error(correction: bool) -> tuple[float, float]:
        settings = Loss(negatives="shared", count=4, correction=correction)
        objective = Objective(model, settings, NONE, known)
        chance = seeded(0)
        with torch.no_grad():
            found = torch.stack([_first(objective, tables, queries, chance) for _ in range(800)])
        estimate = (found.double() + answer).exp()
        return estimate.mean().item(), estimate.std().item() / 800**0.5

    mean, error = mean_and_error(correction=True)
    assert abs(mean - truth[0].item()) < 4 * error
    assert error < 0.02 * mean
    mean, error = mean_and_error(correction=False)
    assert truth[0].item() - mean > 10 * error  # uncorrected, the sum is too small


def _first(objective: Objective, tables: Tables, queries: Queries, chance: Generator) -> Tensor:
    """The loss of the batch's first query."""
    drawn = objective.draw(tables, queries, chance)
    parts = list(objective.parts(tables, queries, 1, drawn))
    return parts[0] * len(queries)


@pytest.mark.parametrize("negatives, count", [("all", None), ("shared", 8), ("own", 60)])
def test_masking_hides_other_known_answers_and_never_the_answer(
    negatives: Negatives, count: int | None, triples: Tensor, known: KnownAnswers, started: Start
) -> None:
    # The gradient of one query tells who took part: (0, 0, ?) with the answer 1.
    model = DistMult(dim=3, scale=0.8)
    queries = Queries.of(triples[:1], "tail")

    def pulled(masked: bool) -> set[int]:
        tables = started(model, False)
        settings = Loss("softmax", negatives, count, mask_known=masked)
        objective = Objective(model, settings, NONE, known)
        objective.value(tables, queries, seeded(1)).backward()
        assert tables.entities.grad is not None
        return set(tables.entities.grad.any(1).nonzero().flatten().tolist()) - {0}

    assert {1, 2, 3} <= pulled(False)
    assert pulled(True) == pulled(False) - {2, 3}


def test_subsampling_weighs_by_one_over_the_root_of_both_pairs_counts(
    triples: Tensor, known: KnownAnswers
) -> None:
    model = DistMult(dim=3, scale=0.8)
    objective = Objective(model, Loss("self-adversarial", subsampling=True), NONE, known)
    for side in SIDES:
        share = objective.shares(Queries.of(triples, side))
        # As in RotatE's code: a pair counts 4 when first seen, and 1 more each further time.
        # (0, 0, 1): (0, 0, ?) is seen three times, (?, 0, 1) twice. (8, 2, 9): both once.
        weight = {0: (6 + 5) ** -0.5, 7: (4 + 4) ** -0.5}
        assert (share[0] / share[7]).item() == pytest.approx(weight[0] / weight[7])
        assert share.sum().item() == pytest.approx(1)
    even = Objective(model, Loss(), NONE, known).shares(Queries.of(triples, "tail"))
    torch.testing.assert_close(even, torch.full((9,), 1 / 9))


def test_class_weights_weigh_a_question_by_how_often_its_answer_occurs(
    triples: Tensor, known: KnownAnswers
) -> None:
    names = Vocabulary(tuple(map(str, range(11))), ("a", "b", "c"))
    graph = Graph("toy", names, triples.numpy(), triples[:0].numpy(), triples[:0].numpy())
    weights = answer_weights(graph)
    # 0 and 2 occur three times, the others once or twice, 10 not at all.
    torch.testing.assert_close(weights[[0, 2, 1, 4, 10]], torch.tensor([1.0, 1.0, 0.7, 0.4, 0.1]))
    model = DistMult(dim=3, scale=0.8)
    settings = Loss(class_weights=True)
    objective = Objective(model, settings, NONE, known, weights=weights)
    share = objective.shares(Queries.of(triples, "tail"))
    assert share.sum().item() == pytest.approx(1)
    assert (share[1] / share[0]).item() == pytest.approx(1.0 / 0.7)  # the answers 2 and 1
    tables = Tables.start(model, 3, Shard.whole(11), False, seed=0)
    queries = Queries.of(triples, "tail")
    truth = torch.nn.functional.cross_entropy(
        scores(model, tables, queries), queries.answer, weight=weights
    )
    torch.testing.assert_close(objective.value(tables, queries, seeded(0)), truth)


@pytest.mark.parametrize("masked", [False, True])
def test_without_the_batchs_answers_only_those_drawn_are_rivals(
    masked: bool, triples: Tensor, known: KnownAnswers, started: Start
) -> None:
    model = DistMult(dim=3, scale=0.8)
    tables, queries = started(model, False), Queries.of(triples, "tail")
    settings = Loss(negatives="shared", count=3, answers_too=False, mask_known=masked)
    objective = Objective(model, settings, NONE, known)
    every = scores(model, tables, queries).detach()
    for seed in range(20):
        chance = seeded(seed)
        drawn = torch.randperm(11, generator=chance)[:3].tolist()
        losses = []
        for i, answer in enumerate(queries.answer.tolist()):
            right = {int(t) for h, r, t in triples if [h, r] == triples[i, :2].tolist()}
            rivals = [e for e in drawn if e != answer and not (masked and e in right)]
            some = every[i, [answer, *rivals]]
            losses.append(some.logsumexp(0) - some[0])
        found = objective.value(tables, queries, seeded(seed))
        torch.testing.assert_close(found, torch.stack(losses).mean())


def test_dropout_keeps_the_mean_and_differs_from_batch_to_batch(known: KnownAnswers) -> None:
    model = ComplEx(dim=8, scale=0.8)
    tables = Tables.start(model, 3, Shard.whole(11), False, seed=0)
    objective = Objective(model, Loss(), NONE, known, entity_dropout=0.25, relation_dropout=0.5)
    queries = Queries.asking("tail", *torch.zeros(3, 4000, dtype=torch.int64))
    chance = seeded(0)
    first, second = (objective.draw(tables, queries, chance) for _ in range(2))
    for keep, again, dropout in (
        (first.keep_entity, second.keep_entity, 0.25),
        (first.keep_relation, second.keep_relation, 0.5),
    ):
        assert keep is not None
        assert again is not None
        assert keep.shape == (4000, 16)
        torch.testing.assert_close(keep.unique(), torch.tensor([0, 1 / (1 - dropout)]))
        assert keep.mean().item() == pytest.approx(1, abs=0.02)
        assert not keep.equal(again)


def test_dropout_weighs_the_known_entity_and_the_relation_and_nobody_else(
    triples: Tensor, known: KnownAnswers, started: Start
) -> None:
    model = DistMult(dim=6, scale=0.8)
    tables = started(model, False)
    objective = Objective(model, Loss(), NONE, known, entity_dropout=0.5, relation_dropout=0.3)
    queries = Queries.of(triples, "head")
    found = objective.value(tables, queries, seeded(1))
    drawn = objective.draw(tables, queries, seeded(1))
    assert drawn.keep_entity is not None
    assert drawn.keep_relation is not None
    tail = tables.entities[queries.entity] * drawn.keep_entity
    relation = tables.relations[queries.relation] * drawn.keep_relation
    every = (tail * relation) @ tables.entities.T
    torch.testing.assert_close(found, torch.nn.functional.cross_entropy(every, queries.answer))


@pytest.mark.parametrize("name, norm", EVERY)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("negatives, count", [("all", None), ("own", 5)])
def test_comparing_in_bfloat16_is_close_to_float32(
    name: str,
    norm: int,
    loss: Name,
    negatives: Negatives,
    count: int | None,
    triples: Tensor,
    known: KnownAnswers,
    started: Start,
) -> None:
    model = MODELS[name](dim=16, scale=0.5, norm=norm)
    settings = Loss(loss, negatives, count, margin=0.0 if loss == "softmax" else 4.0)
    exact = Objective(model, settings, NONE, known)
    queries = Queries.of(triples, "tail")
    values, gradients = [], []
    for objective in (exact, replace(exact, narrow=True)):
        tables = started(model, True)
        value = objective.value(tables, queries, seeded(0))
        value.backward()
        assert tables.entities.grad is not None
        assert tables.entities.grad.dtype == torch.float32
        values.append(value.item())
        gradients.append(tables.entities.grad)
    assert values[1] == pytest.approx(values[0], rel=0.01)
    # The product with a table is what is narrowed.
    if name in ("complex", "distmult", "simple") and negatives != "per_query":
        assert values[1] != values[0]
    apart = (gradients[1] - gradients[0]).norm() / gradients[0].norm()
    assert apart < 0.05


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("name", ["complex", "distmult", "simple"])
def test_relation_prediction_adds_a_softmax_over_relation_rows(
    name: str, reciprocal: bool, triples: Tensor, known: KnownAnswers, started: Start
) -> None:
    model = MODELS[name](dim=4, scale=0.5)
    plain = Objective(model, Loss(), NONE, known)
    more = replace(plain, loss=Loss(relation_weight=0.5))
    for side in SIDES:
        tables, asked = started(model, reciprocal), Queries.of(triples, side)
        added = more.value(tables, asked, seeded(0)) - plain.value(tables, asked, seeded(0))
        head, tail = tables.rows(triples[:, 0]), tables.rows(triples[:, 2])
        if reciprocal and side == "head":  # the row leads from the tail to the head
            head, tail = tail, head
        logits = model.relation_query(head, tail) @ tables.relations.T
        target = triples[:, 1] + (tables.n_relations if reciprocal and side == "head" else 0)
        truth = 0.5 * torch.nn.functional.cross_entropy(logits, target)
        torch.testing.assert_close(added, truth)


@pytest.mark.parametrize("negatives, count", [("shared", 2), ("own", 2)])
def test_a_questions_own_bias_has_no_gradient_in_a_softmax(
    negatives: Negatives, count: int, started: Start
) -> None:
    model = MODELS["transe"](4, 0.5, 2, True, True)
    tables = started(model, True)
    asked = Queries.of(torch.tensor([[0, 0, 1], [4, 1, 5]]), "tail")
    objective = Objective(model, Loss(negatives=negatives, count=count), NONE, None)
    drawn = objective.draw(tables, asked, seeded(0))
    rivals = drawn.shared if drawn.shared is not None else drawn.own
    assert rivals is not None
    alone = [each for each in (0, 4) if each not in rivals]
    assert alone
    next(objective.parts(tables, asked, 2, drawn)).backward()
    assert tables.entities.grad is not None
    assert tables.entities.grad[alone, -1].tolist() == [0.0] * len(alone)
    assert tables.entities.grad[alone, :-1].abs().min() > 0
