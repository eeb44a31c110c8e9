"""What holds of every model, whatever its formula."""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from allneg.models import MODELS, Model

# Norm, squared, bias.
FORMS = [(1, False, False), (2, False, False), (2, True, False), (2, True, True)]
DISTANCES = ("transe", "rotate")
EVERY = [(name, *form) for name in MODELS for form in (FORMS if name in DISTANCES else FORMS[:1])]


@pytest.fixture(params=EVERY, ids=lambda each: "-".join(map(str, each)))
def model(request: pytest.FixtureRequest) -> Model:
    name, norm, squared, bias = request.param
    return MODELS[name](6, 0.5, norm, squared, bias)


def some_rows(model: Model, b: int) -> tuple[Tensor, Tensor, Tensor]:
    chance = Generator().manual_seed(3)
    widths = (model.entity_width, model.relation_width, model.entity_width)
    head, relation, tail = (torch.randn(b, width, generator=chance) for width in widths)
    return head, relation, tail


def test_every_model_has_a_page_of_tests_against_its_paper() -> None:
    for model in MODELS.values():
        page = Path(__file__).with_name(f"test_{Path(inspect.getfile(model)).name}")
        assert "agrees(" in page.read_text(), f"{page.name} compares with no formula"


def test_both_questions_of_a_triple_give_one_score(model: Model) -> None:
    head, relation, tail = some_rows(model, 5)
    asked_for_tail = model.compare(model.tail_query(head, relation), tail).diagonal()
    asked_for_head = model.compare(model.head_query(tail, relation), head).diagonal()
    torch.testing.assert_close(asked_for_tail, asked_for_head)
    assert asked_for_tail.std() > 0.1


def test_own_rows_score_as_the_same_rows_of_a_table(model: Model) -> None:
    head, relation, table = some_rows(model, 5)
    query = model.tail_query(head, relation)
    chosen = torch.tensor([[0, 4], [1, 1], [3, 2], [2, 0], [4, 3]])
    whole = model.compare(query, table)
    torch.testing.assert_close(model.compare(query, table[chosen]), whole.gather(1, chosen))


def test_a_query_is_as_wide_as_an_entity_row(model: Model) -> None:
    head, relation, tail = some_rows(model, 2)
    assert model.tail_query(head, relation).shape == (2, model.entity_width)
    assert model.head_query(tail, relation).shape == (2, model.entity_width)


def test_first_values_come_from_the_generator_and_have_the_scale(model: Model) -> None:
    first, again = torch.empty(2, 400, model.entity_width).unbind()
    model.start_entities(first, Generator().manual_seed(1))
    model.start_entities(again, Generator().manual_seed(1))
    assert first.equal(again)
    if model.bias:
        assert not first[:, -1].any()
        first = first[:, :-1]
    assert first.std().item() == pytest.approx(model.scale, rel=0.05)
    assert first.mean().abs() < 0.05
    relations, others = torch.empty(2, 400, model.relation_width).unbind()
    model.start_relations(relations, Generator().manual_seed(1))
    model.start_relations(others, Generator().manual_seed(2))
    assert not relations.equal(others)
    # An angle is uniform over a full turn, everything else normal with the scale.
    spread = math.pi / math.sqrt(3) if type(model).__name__ == "RotatE" else model.scale
    assert relations.std().item() == pytest.approx(spread, rel=0.05)


def test_a_coordinate_has_two_axes_where_it_is_complex(model: Model) -> None:
    axes = {"ComplEx": (2, 2), "RotatE": (2, 0)}  # an angle has no size
    expected = axes.get(type(model).__name__, (1, 1))
    assert (model.entity_axes, model.relation_axes) == expected


@pytest.mark.parametrize("name", ["complex", "distmult", "simple"])
def test_asking_for_the_relation_gives_a_triple_the_same_score(name: str) -> None:
    model = MODELS[name](dim=5, scale=1.0)
    chance = torch.Generator().manual_seed(0)
    head, tail = torch.randn(2, 4, model.entity_width, generator=chance)
    relation = torch.randn(4, model.relation_width, generator=chance)
    by_tail = model.compare(model.tail_query(head, relation), tail).diagonal()
    by_relation = (model.relation_query(head, tail) * relation).sum(1)
    torch.testing.assert_close(by_relation, by_tail)


def test_a_distance_has_no_relation_query() -> None:
    rows = torch.zeros(1, 4)
    with pytest.raises(TypeError, match="RotatE has no relation query"):
        MODELS["rotate"](dim=2, scale=1.0).relation_query(rows, rows)
