"""New trials for a tuning: the defaults of each model, then neighbours of the best trials."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from allneg.errors import RecipeError
from allneg.models import MODELS
from allneg.models.base import Factors
from allneg.recipe import Recipe
from allneg.tuning.space import Trial


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

    def proposals(self, models: Sequence[str], best: Iterable[Trial]) -> Iterator[Trial]:
        """The defaults of `models`, then the trials that differ in one step from one in `best`.

        A setting that was changed with success is changed further first.
        """
        for model in models:
            yield self.trial(self.defaults[model])
        for trial in best:
            axes = self._axes(trial.recipe)
            for name in sorted(axes, key=lambda name: name not in trial.settings):
                values = axes[name]
                at = values.index(attrgetter(name)(trial.recipe))
                for value in (*values[at + 1 : at + 2], *values[max(0, at - 1) : at]):
                    try:
                        yield self.trial(trial.recipe.with_settings({name: value}))
                    except RecipeError:
                        continue  # the setting does not go with this model or loss

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
