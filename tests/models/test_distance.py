"""The forms of a distance: what autocast leaves alone, and what a bias does."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from allneg.models import MODELS
from allneg.recipe import Recipe, Regularizer
from allneg.runs import make_model
from allneg.scoring.penalty import penalties
from allneg.scoring.tables import Looked


@pytest.mark.parametrize("name", ["transe", "rotate"])
def test_a_squared_distance_keeps_its_digits_in_bfloat16(name: str) -> None:
    model = MODELS[name](16, 0.5, norm=2, squared=True, bias=True)
    rows = torch.randn(9, model.entity_width, generator=Generator().manual_seed(0))
    plain = model.compare(rows, rows)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.compare(rows, rows).equal(plain)


def test_a_bias_lifts_an_entity_whatever_is_asked() -> None:
    model = MODELS["transe"](3, 0.5, norm=2, squared=True, bias=True)
    rows = torch.randn(5, 4, generator=Generator().manual_seed(0))
    lifted = rows.clone()
    lifted[2, -1] += 1
    query = model.tail_query(rows, torch.zeros(5, 3))
    change = model.compare(query, lifted) - model.compare(query, rows)
    torch.testing.assert_close(change, torch.eye(5)[2].expand(5, 5), rtol=0, atol=1e-5)


def test_a_recipe_makes_the_form_it_says() -> None:
    settings = ["model.name=rotate", "model.norm=2", "model.squared=true", "model.bias=true"]
    model = make_model(Recipe().with_settings(settings))
    assert (model.norm, model.squared, model.bias) == (2, True, True)
    assert model.entity_width == 201
    assert model.kernel == "l2"


@pytest.mark.parametrize("name", ["transe", "rotate"])
def test_a_penalty_leaves_the_bias_alone(name: str) -> None:
    plain, biased = (MODELS[name](3, 0.5, 2, True, bias) for bias in (False, True))
    rows = torch.randn(2, plain.entity_width, generator=Generator().manual_seed(0))
    with_bias = torch.cat([rows, torch.tensor([[5.0], [7.0]])], dim=1)
    angles = torch.ones(2, 3)
    for penalty in (Regularizer("l2", 0.5), Regularizer("n3", 0.5)):
        found = penalties(biased, Looked(with_bias, angles, with_bias), penalty)
        assert found.equal(penalties(plain, Looked(rows, angles, rows), penalty))
