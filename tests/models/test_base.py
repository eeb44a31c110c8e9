"""What holds of every model, whatever its formula."""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from allneg.models import CP, MODELS, Model, RotatE, RotE

# Norm, squared, bias.
FORMS = [(1, False, False), (2, False, False), (2, True, False), (2, True, True)]
EVERY = [
    (name, *form)
    for name, model in MODELS.items()
    for form in (FORMS if model.is_distance else FORMS[:1])
]


@pytest.fixture(params=EVERY, ids=lambda form: "-".join(map(str, form)))
def model(request: pytest.FixtureRequest) -> Model:
    name, norm, squared, bias = request.param
    return MODELS[name](6, 0.5, norm, squared, bias)


def some_rows(model: Model, b: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = Generator().manual_seed(3)
    widths = (model.entity_width, model.relation_width, model.entity_width)
    head, relation, tail = (torch.randn(b, width, generator=generator) for width in widths)
    return head, relation, tail


def some_used_rows(model: Model, b: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `some_rows`, with relations as queries use them."""
    head, relation, tail = some_rows(model, b)
    if model.shared_shape is not None:
        shared = torch.randn(model.shared_shape, generator=Generator().manual_seed(4))
        relation = model.combine(relation, shared)
    return head, relation, tail


def test_every_model_has_a_page_of_tests_against_its_paper() -> None:
    for model in MODELS.values():
        page = Path(__file__).with_name(f"test_{Path(inspect.getfile(model)).name}")
        assert "check_formula(" in page.read_text(), f"{page.name} compares with no formula"


def test_both_queries_of_a_triple_give_the_same_score(model: Model) -> None:
    head, relation, tail = some_used_rows(model, 5)
    by_tail = model.kernel(model.tail_query(head, relation), tail).diagonal()
    by_head = model.kernel(model.head_query(tail, relation), head).diagonal()
    torch.testing.assert_close(by_tail, by_head)
    assert by_tail.std() > 0.1


def test_own_rows_score_as_the_same_rows_of_a_table(model: Model) -> None:
    head, relation, table = some_used_rows(model, 5)
    query = model.tail_query(head, relation)
    chosen = torch.tensor([[0, 4], [1, 1], [3, 2], [2, 0], [4, 3]])
    whole = model.kernel(query, table)
    torch.testing.assert_close(model.kernel(query, table[chosen]), whole.gather(1, chosen))


def test_a_query_is_as_wide_as_an_entity_row(model: Model) -> None:
    head, relation, tail = some_used_rows(model, 2)
    assert model.tail_query(head, relation).shape == (2, model.entity_width)
    assert model.head_query(tail, relation).shape == (2, model.entity_width)


def test_initial_values_come_from_the_generator_and_have_the_scale(model: Model) -> None:
    first, again = torch.empty(2, 400, model.entity_width).unbind()
    model.init_entities(first, Generator().manual_seed(1))
    model.init_entities(again, Generator().manual_seed(1))
    assert first.equal(again)
    if model.bias:
        assert not first[:, -1].any()
        first = first[:, :-1]
    assert first.std().item() == pytest.approx(model.scale, rel=0.05)
    assert first.mean().abs() < 0.05
    relations, others = torch.empty(2, 400, model.relation_width).unbind()
    model.init_relations(relations, Generator().manual_seed(1))
    model.init_relations(others, Generator().manual_seed(2))
    assert not relations.equal(others)
    # Angles, the last numbers of a row, are uniform over a full turn; all else has the scale.
    angles = model.dim if isinstance(model, RotatE) else 0
    moves, angle = relations.split([model.relation_width - angles, angles], dim=1)
    if angles:
        assert angle.std().item() == pytest.approx(math.pi / math.sqrt(3), rel=0.05)
    if moves.numel():
        assert moves.std().item() == pytest.approx(model.scale, rel=0.05)


def test_factors_hold_every_regularized_number_once(model: Model) -> None:
    rows = some_rows(model, 2)
    if model.bias:
        rows[0][:, -1] = rows[2][:, -1] = torch.inf  # a bias is not regularized
    head, relation, tail = model.coordinates(rows[0]), rows[1], model.coordinates(rows[2])
    if isinstance(model, CP):  # the other halves are for other roles
        head, tail = head[:, :6], tail[:, 6:]
    if isinstance(model, RotE):  # an angle has no size
        relation = relation[:, :12]
    factors = model.factors(*rows)
    assert factors[0].shape[1] == factors[-1].shape[1] == model.entity_axes
    assert factors[0].flatten(1).equal(head)
    assert factors[-1].flatten(1).equal(tail)
    if model.relation_axes:
        assert factors[1].flatten(1).equal(relation)
        assert factors[1].shape[1] == model.relation_axes
    else:
        assert len(factors) == 2  # an angle has no size


def test_a_coordinate_has_two_axes_where_it_is_complex_and_four_in_a_quaternion() -> None:
    axes = {name: (model.entity_axes, model.relation_axes) for name, model in MODELS.items()}
    # An angle and a unit quaternion have no size.
    others = {"complex": (2, 2), "rotate": (2, 0), "rote": (2, 2), "quate": (4, 0)}
    assert axes == {name: others.get(name, (1, 1)) for name in MODELS}


@pytest.mark.parametrize(
    "name", [name for name, model in MODELS.items() if model.supports_relation_query()]
)
def test_the_relation_query_gives_a_triple_the_same_score(name: str) -> None:
    model = MODELS[name](dim=5, scale=1.0)
    generator = torch.Generator().manual_seed(0)
    head, tail = torch.randn(2, 4, model.entity_width, generator=generator)
    relation = torch.randn(4, model.relation_width, generator=generator)
    by_tail = model.kernel(model.tail_query(head, relation), tail).diagonal()
    by_relation = (model.relation_query(head, tail) * relation).sum(1)
    torch.testing.assert_close(by_relation, by_tail)


def test_a_distance_has_no_relation_query() -> None:
    rows = torch.zeros(1, 4)
    with pytest.raises(TypeError, match="RotatE has no relation query"):
        MODELS["rotate"](dim=2, scale=1.0).relation_query(rows, rows)


def test_combined_relations_are_no_candidates() -> None:
    # TuckER inherits a relation query, but its products are with matrices, not with rows.
    assert MODELS["rescal"].supports_relation_query()
    assert not MODELS["tucker"].supports_relation_query()
