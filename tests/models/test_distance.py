"""The forms of a distance: squared, and with a bias per entity."""

from __future__ import annotations

import torch
from torch import Generator

from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.runs import make_model


def test_a_bias_raises_an_entitys_score_in_every_query() -> None:
    model = MODELS["transe"](3, 0.5, norm=2, squared=True, bias=True)
    rows = torch.randn(5, 4, generator=Generator().manual_seed(0))
    raised = rows.clone()
    raised[2, -1] += 1
    query = model.tail_query(rows, torch.zeros(5, 3))
    change = model.kernel(query, raised) - model.kernel(query, rows)
    torch.testing.assert_close(change, torch.eye(5)[2].expand(5, 5), rtol=0, atol=1e-5)


def test_a_recipe_decides_the_form() -> None:
    settings = ["model.name=rotate", "model.norm=2", "model.squared=true", "model.bias=true"]
    model = make_model(Recipe().with_settings(settings))
    assert (model.norm, model.squared, model.bias) == (2, True, True)
    assert model.entity_width == 201
    assert model.kernel.name == "squared_l2"
