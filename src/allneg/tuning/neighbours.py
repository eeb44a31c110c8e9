"""New trials for a tuning: the defaults of each model, then neighbours of the best trials."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Self

from allneg.errors import RecipeError
from allneg.models import MODELS
from allneg.models.base import Factors
from allneg.recipe import Recipe
from allneg.tuning.space import Trial


@dataclass(frozen=True)
class Step:
    """A change of one setting. A value of None is the default of the model."""

    model: str
    name: str
    old: Any
    new: Any

    @classmethod
    def between(cls, one: Trial, other: Trial) -> Self | None:
        """The step from one trial to another; None unless they differ in one setting."""
        before, after = one.settings, other.settings
        if before["model.name"] != after["model.name"]:
            return None
        changed = [
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        ]
        if len(changed) != 1:
            return None
        (name,) = changed
        return cls(before["model.name"], name, before.get(name), after.get(name))


@dataclass(frozen=True)
class Neighbours:
    """The defaults of each model, and the settings that all trials share."""

    defaults: Mapping[str, Recipe]  # by model
    fixed: frozenset[str]  # dotted names that the user has set

    def trial(self, recipe: Recipe) -> Trial:
        """A trial, described by its model and by what differs from the model's defaults."""
        default = self.defaults[recipe.model.name]
        changed = {
            name: value
            for name in MODELS[recipe.model.name].tunable
            if (value := attrgetter(name)(recipe)) != attrgetter(name)(default)
        }
        return Trial({"model.name": recipe.model.name, **changed}, recipe)

    def proposals(
        self, models: Sequence[str], bases: Iterable[Trial], gains: Mapping[Step, float]
    ) -> Iterator[Trial]:
        """The defaults of `models`, then trials in the neighbourhood of each one in `bases`.

        `gains` are the gains of steps elsewhere. All steps with a gain are taken at once, then each
        of them alone, then steps that were not tried, and at last those with a loss. Of steps that
        were not tried, those that change a changed setting further come first.
        """
        for model in models:
            yield self.trial(self.defaults[model])
        for base in bases:
            gained: dict[str, tuple[float, Trial]] = {}  # by setting
            order = []
            for trial, name in self._steps(base):
                gain = gains.get(step) if (step := Step.between(base, trial)) else None
                if gain is None:
                    order.append((1, float(name not in base.settings), trial))
                else:
                    order.append((0 if gain > 0 else 2, -gain, trial))
                if gain is not None and gain > max(0.0, gained.get(name, (0.0,))[0]):
                    gained[name] = gain, trial
            if len(gained) > 1:
                yield from self._with(
                    base, {name: attrgetter(name)(at.recipe) for name, (_, at) in gained.items()}
                )
            yield from (trial for *_, trial in sorted(order, key=lambda entry: entry[:2]))

    def _steps(self, base: Trial) -> Iterator[tuple[Trial, str]]:
        """The trials that differ from `base` by one step, and the setting that differs."""
        for name, values in self._axes(base.recipe).items():
            at = values.index(attrgetter(name)(base.recipe))
            for value in (*values[at + 1 : at + 2], *values[max(0, at - 1) : at]):
                yield from ((trial, name) for trial in self._with(base, {name: value}))

    def _with(self, base: Trial, settings: Mapping[str, Any]) -> Iterator[Trial]:
        """The trial with these settings; nothing if they do not go with its model or loss."""
        with contextlib.suppress(RecipeError):
            yield self.trial(base.recipe.with_settings(settings))

    def _axes(self, recipe: Recipe) -> dict[str, list[Any]]:
        """The values of each tunable setting of a recipe in order, the recipe's own among them."""
        model, axes = recipe.model.name, {}
        for name, values in MODELS[model].tunable.items():
            default = attrgetter(name)(self.defaults[model])
            if isinstance(values, Factors):
                # Three digits: 0.1 × 3 is 0.3, not 0.30000000000000004.
                values = tuple(type(default)(float(f"{default * by:.3g}")) for by in values)
            if name not in self.fixed:
                axes[name] = sorted({default, attrgetter(name)(recipe), *values})
        return axes
