"""Every loss, in value and in gradient, against loops in float64 written from its formula."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args, get_type_hints

import pytest
import torch
from torch import Generator, Tensor

from allneg.graph.queries import SIDES, KnownAnswers, Queries, Side
from allneg.models import MODELS, ComplEx, Model
from allneg.recipe import Loss, Regularizer
from allneg.scoring import Objective, Shard, Tables

Start = Callable[[Model, bool], Tables]

SETTINGS = {
    "softmax": [
        Loss("softmax"),
        Loss("softmax", smoothing=0.2),
        Loss("softmax", mask_known=True),
        Loss("softmax", smoothing=0.2, mask_known=True),
    ],
    "margin": [Loss("margin", margin=0.7), Loss("margin", margin=2.0, mask_known=True)],
    "logistic": [Loss("logistic"), Loss("logistic", margin=2.0, mask_known=True)],
    "self-adversarial": [
        Loss("self-adversarial", margin=2.0),
        Loss("self-adversarial", margin=2.0, temperature=0.5, mask_known=True, subsampling=True),
    ],
}
EVERY = [
    pytest.param(settings, id=f"{name}-{number}")
    for name, each in SETTINGS.items()
    for number, settings in enumerate(each)
]


def test_every_loss_of_a_recipe_is_here() -> None:
    assert set(get_args(get_type_hints(Loss)["name"])) == set(SETTINGS)


def one_loss(answer: Tensor, rivals: Tensor, settings: Loss) -> Tensor:
    """The loss of one query, from its answer's score and its rivals'."""
    if settings.name == "softmax":
        shares = torch.cat([answer.view(1), rivals]).exp()
        shares = shares / shares.sum()
        spread = settings.label_smoothing * shares.log().mean()
        return -(1 - settings.label_smoothing) * shares[0].log() - spread
    if settings.name == "margin":
        hinges = [(score + settings.margin).clamp(min=0) for score in rivals]
        return sum(hinges, -answer)
    agree = -torch.sigmoid(answer + settings.margin).log()
    differ = [-torch.sigmoid(-score - settings.margin).log() for score in rivals]
    if settings.name == "logistic":
        return sum(differ, agree)
    weights = (settings.temperature * rivals.detach()).exp()
    weights = weights / weights.sum()
    weighed = [weight * each for weight, each in zip(weights, differ, strict=True)]
    return sum(weighed, agree) / 2


def naive_value(
    objective: Objective, tables: Tables, queries: Queries, train: Tensor, drawn: Tensor | None
) -> Tensor:
    """The batch's loss, a query and a candidate at a time."""
    model, settings, side = objective.model, objective.loss, SIDES[int(queries.side[0])]
    assert (queries.side == queries.side[0]).all()  # the loop below asks for one side
    facts = {(h, r, t) if side == "tail" else (t, r, h) for h, r, t in train.tolist()}
    ask = model.tail_query if side == "tail" or tables.reciprocal else model.head_query
    first_row = tables.n_relations if side == "head" and tables.reciprocal else 0
    total, weights = torch.zeros((), dtype=torch.float64), 0.0
    asked = zip(queries.entity, queries.relation, queries.answer, strict=True)
    for i, (entity, relation, answer) in enumerate((int(e), int(r), int(a)) for e, r, a in asked):
        every = torch.arange(len(tables.entities)) if drawn is None else drawn
        candidates = (every if every.dim() == 1 else every[i]).tolist()
        rivals = [
            each
            for each in candidates
            if each != answer and not (settings.mask_known and (entity, relation, each) in facts)
        ]
        query = ask(tables.entities[[entity]], tables.relations[[first_row + relation]])
        scores = model.compare(query, tables.entities[[answer, *rivals]])[0]
        # RotatE's code begins to count a pair at 4.
        count = 6 + sum(fact[:2] == (entity, relation) for fact in facts)
        count += sum(fact[1:] == (relation, answer) for fact in facts)
        weight = count**-0.5 if settings.subsampling else 1.0
        total = total + weight * one_loss(scores[0], scores[1:], settings)
        weights += weight
    return total / weights


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("negatives, count", [("all", None), ("shared", 4), ("own", 5)])
@pytest.mark.parametrize("settings", EVERY)
def test_value_and_gradients_are_the_formulas(
    name: str,
    side: Side,
    negatives: Literal["all", "shared", "own"],
    count: int | None,
    settings: Loss,
    triples: Tensor,
    known: KnownAnswers,
    started: Start,
) -> None:
    model = MODELS[name](dim=3, scale=0.8)
    tables = started(model, side == "head" and name != "transe")
    settings = replace(settings, negatives=negatives, count=count)
    objective = Objective(model, settings, Regularizer("none"), known)
    queries = Queries.of(triples, side)
    value = objective.value(tables, queries, Generator().manual_seed(2))
    value.backward()

    exact = copy.deepcopy(tables).double()
    exact.zero_grad()
    drawn = objective.draw(tables, queries, Generator().manual_seed(2))
    candidates = drawn.own
    if drawn.shared is not None:
        candidates = torch.cat([drawn.shared, queries.answer]).unique()
    truth = naive_value(objective, exact, queries, triples, candidates)
    truth.backward()
    torch.testing.assert_close(value.double(), truth, rtol=1e-5, atol=1e-6)
    for found, true in zip(tables.parameters(), exact.parameters(), strict=True):
        assert found.grad is not None
        assert true.grad is not None
        torch.testing.assert_close(found.grad.double(), true.grad, rtol=1e-4, atol=1e-6)


def test_both_directions_together_are_the_papers_softmax_loss(
    triples: Tensor, known: KnownAnswers, started: Start
) -> None:
    model = ComplEx(dim=3, scale=0.8)
    tables = started(model, False)
    objective = Objective(model, Loss(), Regularizer("none"), known)
    values = [objective.value(tables, Queries.of(triples, side), Generator()) for side in SIDES]

    entities = torch.complex(*tables.entities.double().chunk(2, dim=1))
    relations = torch.complex(*tables.relations.double().chunk(2, dim=1))

    def phi(s: int, r: int, o: int) -> Tensor:
        return (entities[s] * relations[r] * entities[o].conj()).sum().real

    papers = torch.zeros((), dtype=torch.float64)
    for s, r, o in triples.tolist():
        over_o = sum(phi(s, r, other).exp() for other in range(len(entities)))
        over_s = sum(phi(other, r, o).exp() for other in range(len(entities)))
        papers -= (phi(s, r, o).exp() / over_o).log() + (phi(s, r, o).exp() / over_s).log()
    together = (values[0] + values[1]).double() * len(triples)
    torch.testing.assert_close(together, papers, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("settings", EVERY)
def test_a_question_without_rivals_still_has_a_finite_loss(settings: Loss) -> None:
    # Two entities, both right answers: masking leaves no rival at all.
    train = torch.tensor([[0, 0, 0], [0, 0, 1]])
    known = KnownAnswers.of([train.numpy()], 2, 1)
    model = ComplEx(dim=2, scale=0.8)
    tables = Tables.start(model, 1, Shard.whole(2), False, seed=0)
    settings = replace(settings, mask_known=True)
    objective = Objective(model, settings, Regularizer("none"), known)
    value = objective.value(tables, Queries.of(train, "tail"), Generator())
    value.backward()
    assert value.isfinite()
    assert tables.entities.grad is not None
    assert tables.entities.grad.isfinite().all()


@pytest.mark.parametrize("settings", EVERY)
def test_large_scores_do_not_overflow(
    settings: Loss, known: KnownAnswers, triples: Tensor, started: Start
) -> None:
    model = ComplEx(dim=3, scale=0.8)
    tables = started(model, False)
    with torch.no_grad():
        tables.entities.mul_(100)
    objective = Objective(model, settings, Regularizer("none"), known)
    value = objective.value(tables, Queries.of(triples, "tail"), Generator())
    value.backward()
    assert value.isfinite()
    assert tables.entities.grad is not None
    assert tables.entities.grad.isfinite().all()
