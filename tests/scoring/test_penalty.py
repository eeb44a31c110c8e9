"""Penalties as kbc normalises them: each question's own three factors, a mean over queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from allneg.scoring.penalty import penalties, row_size
from torch import Generator, Tensor

from allneg.graph.queries import SIDES, KnownAnswers, Queries, Side
from allneg.models import MODELS, ComplEx, Model
from allneg.recipe import Loss, Regularizer
from allneg.scoring import Objective, Tables
from allneg.scoring.tables import Looked

Start = Callable[[Model, bool], Tables]


def sum_of_powers(row: Tensor, power: int, is_complex: bool) -> float:
    """Σ |x|^power of a row's coordinates, one by one."""
    numbers: list[float] = row.tolist()
    if is_complex:
        half = len(numbers) // 2
        moduli = [abs(complex(*pair)) for pair in zip(numbers[:half], numbers[half:], strict=True)]
    else:
        moduli = [abs(each) for each in numbers]
    return sum(modulus**power for modulus in moduli)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("penalty, power", [("l2", 2), ("n3", 3)])
def test_a_questions_penalty_sums_its_three_factors(
    name: str,
    side: Side,
    reciprocal: bool,
    penalty: Literal["l2", "n3"],
    power: int,
    triples: Tensor,
    started: Start,
) -> None:
    model = MODELS[name](dim=3, scale=0.5)
    tables = started(model, reciprocal)
    settings = Regularizer(penalty, 0.25)
    asked = Queries.of(triples, side)
    found = penalties(model, tables.look(asked), settings)
    truth = []
    for head, relation, tail in triples.tolist():
        row = relation + (3 if reciprocal and side == "head" else 0)
        total = sum_of_powers(tables.entities[head], power, name in ("complex", "rotate"))
        total += sum_of_powers(tables.entities[tail], power, name in ("complex", "rotate"))
        if name != "rotate":  # an angle is no size
            total += sum_of_powers(tables.relations[row], power, name == "complex")
        truth.append(0.25 * total)
    torch.testing.assert_close(found, torch.tensor(truth))
    size = row_size(model, settings)
    assert (size is None) == (name == "rotate")
    measured = tables.look(asked, size=size)
    assert (measured.sizes is None) == (size is None)
    torch.testing.assert_close(penalties(model, measured, settings), found)


def test_a_batch_adds_the_mean_of_its_penalties(
    triples: Tensor, known: KnownAnswers, started: Start
) -> None:
    model = ComplEx(dim=3, scale=0.5)
    tables = started(model, True)
    queries = Queries.of(triples, "tail")

    def value(penalty: Regularizer) -> Tensor:
        objective = Objective(model, Loss(), penalty, known)
        return objective.value(tables, queries, Generator())

    n3 = Regularizer("n3", 0.25)
    added = value(n3) - value(Regularizer("none", 0.25))
    torch.testing.assert_close(added, penalties(model, tables.look(queries), n3).mean())


@pytest.mark.parametrize("name", ["complex", "distmult", "simple", "transe"])
@pytest.mark.parametrize("penalty", ["l2", "n3"])
def test_rows_measured_when_looked_up_have_the_gradients_of_those_measured_later(
    name: str, penalty: Literal["l2", "n3"], triples: Tensor, started: Start
) -> None:
    model, settings = MODELS[name](dim=3, scale=0.5), Regularizer(penalty, 0.25)
    asked, weight = Queries.of(triples, "head"), torch.linspace(0.1, 1.0, len(triples))
    found = []
    for size in (None, row_size(model, settings)):
        tables = started(model, True)
        looked = tables.look(asked, size=size)
        cost = (weight * penalties(model, looked, settings)).sum()
        value = (model.tail_query(looked.entity, looked.relation) * looked.answer).sum()
        # A gradient to every row must be under way.
        (cost + value + tables.entities.square().sum()).backward()
        assert tables.entities.grad is not None
        assert tables.relations.grad is not None
        found.append((cost, value, tables.entities.grad, tables.relations.grad))
    for later, at_once in zip(*found, strict=True):
        torch.testing.assert_close(at_once, later)


def test_rows_measured_for_nothing_have_the_gradients_of_others(
    triples: Tensor, started: Start
) -> None:
    model, asked = ComplEx(dim=3, scale=0.5), Queries.of(triples, "tail")
    found = []
    for size in (None, row_size(model, Regularizer("n3", 1.0))):
        tables = started(model, True)
        looked = tables.look(asked, size=size)
        value = model.tail_query(looked.entity, looked.relation).square().sum()
        (value + tables.entities.square().sum()).backward()
        assert tables.entities.grad is not None
        found.append(tables.entities.grad)
    torch.testing.assert_close(*found)


def test_a_row_of_zeros_has_a_gradient_of_zeros(triples: Tensor, started: Start) -> None:
    model = ComplEx(dim=3, scale=0.5)
    tables = started(model, True)
    with torch.no_grad():
        tables.entities.zero_()
    asked = Queries.of(triples, "tail")
    rows = tables.rows(asked.entity), tables.relation_rows(asked), tables.rows(asked.answer)
    penalties(model, Looked(*rows), Regularizer("n3", 1.0)).sum().backward()
    assert tables.entities.grad is not None
    assert tables.entities.grad.equal(torch.zeros_like(tables.entities))


@pytest.mark.parametrize("name, alone, turned", [("dura", 1.0, 1.0), ("dura-w", 0.5, 1.5)])
def test_dura_adds_the_rows_and_their_products_with_the_relation(
    name: Literal["dura", "dura-w"], alone: float, turned: float
) -> None:
    model = ComplEx(dim=2, scale=1.0)
    rows = [torch.randn(3, 4, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    h, r, t = (torch.complex(row[:, :2], row[:, 2:]).abs().square() for row in rows)
    truth = 0.1 * (alone * (h + t) + turned * (h * r + t * r)).sum(1)
    found = penalties(model, Looked(rows[0], rows[1], rows[2]), Regularizer(name, 0.1))
    torch.testing.assert_close(found, truth)
