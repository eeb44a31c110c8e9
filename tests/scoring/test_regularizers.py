"""Penalties against loops over numbers, and their gradients against autograd."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.kernels import fused
from allneg.models import CP, MODELS, RESCAL, ComplEx, Model, TuckER
from allneg.scoring.regularizers import DURA, IVR, L2, N3, REGULARIZERS, WeightedDURA
from allneg.scoring.tables import BatchRows
from interpreter import GPU, interpreted, needs_triton

B = 5
SIDE = torch.tensor([0, 1, 1, 0, 1])
YES_NO = (True, False)


def some_rows(model: Model, seed: int = 3) -> list[Tensor]:
    """Rows of heads (or known entities), relations and tails (or answers)."""
    generator = torch.Generator().manual_seed(seed)
    widths = model.entity_width, model.relation_width, model.entity_width
    return [torch.randn(B, width, generator=generator) for width in widths]


def queries() -> Queries:
    ids = torch.arange(B)
    return Queries(SIDE, ids, ids, ids)


def of_triples(entity: Tensor, answer: Tensor, reciprocal: bool) -> tuple[Tensor, Tensor]:
    """Heads and tails of queries for both sides."""
    if reciprocal:
        return entity, answer
    tails = SIDE.unsqueeze(1) == 0
    return torch.where(tails, entity, answer), torch.where(tails, answer, entity)


def power_sum(row: Tensor, power: int, axes: int) -> float:
    """Σ |x|^power of a row's coordinates, one by one."""
    parts = [part.tolist() for part in row.chunk(axes)]
    return sum(sum(x * x for x in numbers) ** (power / 2) for numbers in zip(*parts, strict=True))


FORMS = {
    **{name: model(3, 0.5) for name, model in MODELS.items()},
    "transe with a bias": MODELS["transe"](3, 0.5, 2, True, True),
    "rotate with a bias": MODELS["rotate"](3, 0.5, 2, True, True),
}
# The programs of Triton do not know whether relations are reciprocal: two cases are enough.
ENGINES = [
    *(("reference", reciprocal, with_answer) for reciprocal in YES_NO for with_answer in YES_NO),
    *(
        pytest.param(
            *("gpu", both, both),
            marks=[
                needs_triton,
                pytest.mark.skipif(GPU, reason="tests/kernels runs the programs on the GPU"),
            ],
        )
        for both in YES_NO
    ),
]


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused operations of the reference, or of Triton in its interpreter."""
    if request.param == "gpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        gpu = interpreted("allneg.kernels.fused.gpu")
        monkeypatch.setattr(fused, "_engine", lambda device: gpu)


# Factors without some numbers of the rows are tested in tests/models.
@pytest.mark.parametrize("name", sorted(FORMS.keys() - {"cp", "rote"}))
@pytest.mark.parametrize("kind, power", [(L2, 2), (N3, 3)])
def test_a_penalty_sums_the_powers_of_all_three_rows(name: str, kind: type[L2], power: int) -> None:
    model = FORMS[name]
    head, relation, tail = some_rows(model)
    truth = []
    for h, r, t in zip(model.coordinates(head), relation, model.coordinates(tail), strict=True):
        total = power_sum(h, power, model.entity_axes) + power_sum(t, power, model.entity_axes)
        if model.relation_axes:  # an angle has no size
            total += power_sum(r, power, model.relation_axes)
        truth.append(total)
    found = kind(1.0, True).penalty(model, head, relation, tail)
    torch.testing.assert_close(found, torch.tensor(truth))


CASES = [
    (name, kind)
    for name, model in FORMS.items()
    for kind in filter(None, REGULARIZERS.values())
    if not (kind.bilinear_only and model.is_distance)
    and not (kind.uses_relation_query and not model.has_relation_query())
]


@pytest.mark.parametrize("engine, reciprocal, answer_has_gradient", ENGINES, indirect=["engine"])
@pytest.mark.parametrize("name, kind", CASES)
@pytest.mark.usefixtures("engine")
def test_backward_adds_the_weighted_penalty_and_its_gradients(
    name: str, kind: type[L2], reciprocal: bool, answer_has_gradient: bool
) -> None:
    model = FORMS[name]
    entity, relation, answer = leaves = [row.requires_grad_() for row in some_rows(model)]
    shared = None
    if model.shared_shape is not None:
        shared = torch.randn(model.shared_shape, generator=torch.Generator().manual_seed(0))
        leaves.append(shared.requires_grad_())
    regularizer, share = kind(0.25, reciprocal), 0.2
    head, tail = of_triples(entity, answer, reciprocal)
    used = model.combine(relation, shared) if kind.uses_queries and shared is not None else relation
    penalty = regularizer.penalty(model, head, used, tail)
    truth = torch.autograd.grad(0.25 * share * penalty.sum(), leaves, allow_unused=True)
    before = [torch.randn_like(row) for row in leaves]
    for row, grad in zip(leaves, before, strict=True):
        row.grad = grad.clone()
    if not answer_has_gradient:
        answer.grad, before[2] = None, torch.zeros_like(answer)
    rows = BatchRows(torch.arange(B), entity, relation, answer, shared)
    losses = torch.arange(float(B))
    expected = losses + 0.25 * share * penalty.detach()
    regularizer.backward(model, rows, queries(), share, losses)
    torch.testing.assert_close(losses, expected)
    for row, grad, true in zip(leaves, before, truth, strict=True):
        added = torch.zeros_like(grad) if true is None else true
        torch.testing.assert_close(row.grad, grad + added, rtol=1e-5, atol=1e-5)


def test_a_row_of_zeros_has_the_gradient_0() -> None:
    model = ComplEx(dim=3, scale=0.5)
    leaves = [torch.zeros_like(row).requires_grad_() for row in some_rows(model)]
    N3(1.0, True).backward(
        model, BatchRows(torch.arange(B), *leaves), queries(), 1.0, torch.zeros(B)
    )
    assert not any(row.grad.any() for row in leaves)


@pytest.mark.parametrize("name", [name for name, kind in REGULARIZERS.items() if kind])
@pytest.mark.parametrize("reciprocal", [True, False])
def test_the_half_of_a_row_for_the_other_role_is_not_shrunk(name: str, reciprocal: bool) -> None:
    model, kind = CP(dim=3, scale=0.5), REGULARIZERS[name]
    assert kind is not None
    entity, relation, answer = (row.requires_grad_() for row in some_rows(model))
    rows = BatchRows(torch.arange(B), entity, relation, answer)
    kind(1.0, reciprocal).backward(model, rows, queries(), 1.0, torch.zeros(B))
    head, tail = of_triples(entity.grad, answer.grad, reciprocal)
    assert not head[:, 3:].any()
    assert head[:, :3].all()
    assert not tail[:, :3].any()
    assert tail[:, 3:].all()


@pytest.mark.parametrize("kind, alone, moved", [(DURA, 1.0, 1.0), (WeightedDURA, 0.5, 1.5)])
def test_dura_of_complex_is_the_formula_of_its_paper(
    kind: type[DURA], alone: float, moved: float
) -> None:
    model = ComplEx(dim=2, scale=1.0)
    rows = some_rows(model)
    h, r, t = (torch.complex(row[:, :2], row[:, 2:]).abs().square() for row in rows)
    truth = (alone * (h + t) + moved * (h * r + t * r)).sum(1)
    torch.testing.assert_close(kind(0.1, True).penalty(model, *rows), truth)


def test_dura_of_rescal_is_the_formula_of_its_paper() -> None:
    model = RESCAL(dim=3, scale=1.0)
    head, relation, tail = (row.double() for row in some_rows(model))
    truth = []
    for h, flat, t in zip(head, relation, tail, strict=True):
        matrix = flat.view(3, 3)
        terms = h, t, matrix.T @ h, matrix @ t
        truth.append(sum(float(x) ** 2 for vector in terms for x in vector))
    found = DURA(0.1, True).penalty(model, head, relation, tail)
    torch.testing.assert_close(found, torch.tensor(truth, dtype=torch.float64))


def test_ivr_of_complex_is_the_formula_of_its_paper() -> None:
    model = ComplEx(dim=2, scale=1.0)
    rows = some_rows(model)
    h, r, t = (torch.complex(row[:, :2], row[:, 2:]).abs() for row in rows)
    products = sum(x**2.5 for x in (h * r, r * t, t * h))
    truth = (h**2.5 + r**2.5 + t**2.5 + 0.3 * products).sum(1)
    found = IVR(0.1, True, exponent=2.5, product_weight=0.3).penalty(model, *rows)
    torch.testing.assert_close(found, truth)


def test_ivr_of_tucker_bounds_each_mode_of_the_tensor() -> None:
    model = TuckER(dim=3, scale=1.0)
    head, relation, tail = (row.double() for row in some_rows(model))
    core = torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(1)).double()
    truth = []
    for h, r, t in zip(head, relation, tail, strict=True):
        matrix = sum(r[k] * core[k] for k in range(3))
        terms = h, matrix / 3**0.5, t, 2 ** (1 / 3) * matrix.T @ h, 2 ** (1 / 3) * matrix @ t
        terms += (2 ** (1 / 3) * torch.outer(h, t),)
        truth.append(sum(float(x.square().sum()) ** 1.5 for x in terms))
    used = model.combine(relation, core)
    found = IVR(0.1, True, product_weight=2.0).penalty(model, head, used, tail)
    torch.testing.assert_close(found, torch.tensor(truth, dtype=torch.float64))


def test_every_regularizer_is_a_frozen_value() -> None:
    for kind in filter(None, REGULARIZERS.values()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            kind(0.1, True).weight = 0.2  # type: ignore[misc]
