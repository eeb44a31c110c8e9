"""New trials: the defaults of each model, then steps from the best trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.tuning.neighbours import Neighbours, Step
from allneg.tuning.space import Trial


@pytest.fixture
def neighbours(quick: Callable[..., Recipe]) -> Neighbours:
    defaults = {name: quick(f"model.name={name}") for name in ("complex", "transe")}
    fixed = {"model.dim", "regularizer.name", "loss.class_weights"}
    return Neighbours(defaults, frozenset(fixed))


def changed(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in trial.settings.items() if name != "model.name"}
        for trial in trials
    ]


def test_defaults_come_first_and_then_steps_from_the_best(neighbours: Neighbours) -> None:
    default = neighbours.defaults["complex"]
    best = neighbours.trial(default.with_settings({"regularizer.weight": 0.03}))
    assert best.settings == {"model.name": "complex", "regularizer.weight": 0.03}
    trials = list(neighbours.proposals(["complex", "transe"], [best], {}))
    assert [trial.settings for trial in trials[:2]] == [
        {"model.name": "complex"}, {"model.name": "transe"}
    ]  # fmt: skip
    assert changed(trials[2:]) == [
        {"regularizer.weight": 0.1},
        {},  # one step back; the caller skips what was tried
        {"regularizer.weight": 0.03, "loss.relation_weight": 0.25},
        {"regularizer.weight": 0.03, "training.batch_size": 2},
        {"regularizer.weight": 0.03, "training.average": 0.9},
        {"regularizer.weight": 0.03, "model.entity_dropout": 0.1},
        {"regularizer.weight": 0.03, "optimizer.learning_rate": 0.3},
        {"regularizer.weight": 0.03, "optimizer.learning_rate": 0.03},
    ]


def test_steps_with_a_gain_elsewhere_come_together_and_then_alone(neighbours: Neighbours) -> None:
    base = neighbours.trial(neighbours.defaults["complex"])
    gains = {
        Step("complex", "regularizer.weight", None, 0.03): 0.01,
        Step("complex", "regularizer.weight", None, 0.003): -0.01,
        Step("complex", "training.batch_size", None, 2): 0.02,
        Step("complex", "loss.relation_weight", None, 0.25): 0.0,
        Step("transe", "optimizer.learning_rate", None, 0.3): 0.03,  # another model
    }
    assert changed(neighbours.proposals([], [base], gains)) == [
        {"training.batch_size": 2, "regularizer.weight": 0.03},
        {"training.batch_size": 2},
        {"regularizer.weight": 0.03},
        {"training.average": 0.9},
        {"model.entity_dropout": 0.1},
        {"optimizer.learning_rate": 0.3},
        {"optimizer.learning_rate": 0.03},
        {"loss.relation_weight": 0.25},
        {"regularizer.weight": 0.003},
    ]


def test_a_step_changes_one_setting(neighbours: Neighbours) -> None:
    def trial(model: str, *settings: str) -> Trial:
        return neighbours.trial(neighbours.defaults[model].with_settings(settings))

    default, heavy = trial("complex"), trial("complex", "regularizer.weight=0.1")
    both = trial("complex", "regularizer.weight=0.03", "optimizer.learning_rate=0.3")
    step = Step("complex", "regularizer.weight", None, 0.1)
    assert Step.between(default, heavy) == step
    assert Step.between(heavy, default) == replace(step, old=0.1, new=None)
    assert Step.between(default, default) is None
    assert Step.between(heavy, both) is None
    assert Step.between(default, trial("transe")) is None


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_tuned(name: str, quick: Callable[..., Recipe]) -> None:
    default = quick(f"model.name={name}", "regularizer.weight=0.01")
    neighbours = Neighbours({name: default}, frozenset())
    trials = list(islice(neighbours.proposals([], [neighbours.trial(default)], {}), 20))
    names = {setting for trial in trials for setting in trial.settings} - {"model.name"}
    assert names <= MODELS[name].tunable.keys()
    # A relation loss does not go with every model; such trials are left out.
    assert MODELS[name].tunable.keys() - names <= {"loss.relation_weight"}
    assert len({trial.id for trial in trials}) == len(trials)
