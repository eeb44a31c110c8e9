"""New trials: the defaults of each model, then steps from the best trials."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.tuning.neighbours import Neighbours


def test_defaults_come_first_and_then_steps_from_the_best(quick: Callable[..., Recipe]) -> None:
    defaults = {name: quick(f"model.name={name}") for name in ("complex", "transe")}
    neighbours = Neighbours(defaults, frozenset({"model.dim"}))
    best = neighbours.trial(defaults["complex"].with_settings({"regularizer.weight": 0.03}))
    assert best.settings == {"model.name": "complex", "regularizer.weight": 0.03}
    found = [dict(trial.settings) for trial in neighbours.proposals(["complex", "transe"], [best])]
    assert found[:2] == [{"model.name": "complex"}, {"model.name": "transe"}]
    assert found[2:] == [
        {"model.name": "complex", "regularizer.weight": 0.1},
        {"model.name": "complex"},  # one step back; the caller skips what was tried
        {"model.name": "complex", "regularizer.weight": 0.03, "loss.relation_weight": 0.25},
        {"model.name": "complex", "regularizer.weight": 0.03, "training.batch_size": 2},
        {"model.name": "complex", "regularizer.weight": 0.03, "optimizer.learning_rate": 0.3},
        {"model.name": "complex", "regularizer.weight": 0.03, "optimizer.learning_rate": 0.03},
    ]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_tuned(name: str, quick: Callable[..., Recipe]) -> None:
    default = quick(f"model.name={name}", "regularizer.weight=0.01")
    neighbours = Neighbours({name: default}, frozenset())
    trials = list(islice(neighbours.proposals([], [neighbours.trial(default)]), 20))
    changed = {setting for trial in trials for setting in trial.settings} - {"model.name"}
    assert changed <= MODELS[name].tunable.keys()
    # A relation loss does not go with every model; such trials are left out.
    assert MODELS[name].tunable.keys() - changed <= {"loss.relation_weight"}
    assert len({trial.id for trial in trials}) == len(trials)
