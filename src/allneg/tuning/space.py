"""A search space: a recipe with one more table, `[search]`.

`[search]` maps the dotted name of a setting to a list of values or to a range. A grid has only
lists; its trials are all combinations. A space with ranges gets its trials from Optuna (study.py).
"""

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from allneg.errors import RecipeError
from allneg.recipe import Recipe, load_tables, merged, parse_settings, unused_settings
from allneg.recipes import find_recipe, recipe_names

STATES = ("finished", "running", "paused", "dropped", "diverged", "too large", "waiting")
_MAX_TRIALS = 100_000


@dataclass(frozen=True)
class Trial:
    """One recipe of a space."""

    settings: Mapping[str, Any]  # the searched settings, by dotted name
    recipe: Recipe  # the whole recipe, these settings included

    @cached_property
    def id(self) -> str:
        """Equal recipes have equal ids on every machine."""
        return hashlib.sha256(self.recipe.to_toml().encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return ", ".join(f"{name} {format_value(value)}" for name, value in self.settings.items())


def format_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class TrialStatus:
    """How far a trial is, or how it ended."""

    trial: Trial
    state: str  # one of STATES; halving ends a trial as "dropped"
    valid_mrr: float | None = None  # the best so far; None for a trial that failed
    best_epoch: int | None = None
    epochs: int = 0  # trained
    seconds: float = 0.0  # of training, all sessions
    reason: str | None = None  # why it failed
    data: str | None = None  # a hash of the triples and the names, in a result

    def to_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "data"}
        return {**fields, "trial": self.trial.id, "settings": dict(self.trial.settings)}


@dataclass(frozen=True)
class Range:
    """The interval of a searched setting. Two integer ends make an integer setting."""

    low: float
    high: float
    log: bool = False  # sample uniformly on a logarithmic scale


@dataclass(frozen=True)
class Space:
    """The searched settings and what all trials have in common, the data among it."""

    name: str  # of its file
    tables: Mapping[str, Any]  # the recipe without the searched settings
    axes: Mapping[str, Range | list[Any]]  # by dotted name

    @property
    def has_ranges(self) -> bool:
        return any(isinstance(axis, Range) for axis in self.axes.values())

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """All trials of a grid, without those that differ only in settings without effect.

        For ranges: two opposite corners and their neighbours along each axis. They are checked
        instead of the trials, which do not exist yet.
        """
        values = [
            [axis.low, axis.high] if isinstance(axis, Range) else axis
            for axis in self.axes.values()
        ]
        if self.has_ranges:
            corners = [[axis[end] for axis in values] for end in (0, -1)]
            return self._checked(
                (*corner[:i], value, *corner[i + 1 :])
                for corner in corners
                for i, axis in enumerate(values)
                for value in axis
            )
        if (count := math.prod(map(len, values))) > _MAX_TRIALS:
            raise RecipeError(f"{self.name}: {count:,} trials; at most {_MAX_TRIALS:,} allowed")
        first = {name: axis[0] for name, axis in zip(self.axes, values, strict=True)}
        return tuple(
            trial
            for trial in self._checked(itertools.product(*values))
            if all(
                trial.settings[name] == first[name]
                for name in unused_settings(trial.recipe) & first.keys()
            )
        )

    @property
    def recipe(self) -> Recipe:
        """One of the recipes, for what all trials have in common."""
        return self.trials[0].recipe

    def trial(self, settings: Mapping[str, Any]) -> Trial:
        """The trial with these settings; a `RecipeError` if the recipe is invalid."""
        tables = merged(self.tables, parse_settings(settings))
        recipe = Recipe.from_tables(tables, self.name, [tables])
        # Read the values back: the recipe may have made 1.0 of a 1.
        return Trial({name: attrgetter(name)(recipe) for name in settings}, recipe)

    def _checked(self, points: Iterable[Iterable[Any]]) -> tuple[Trial, ...]:
        """The trials at these points. An error that only some have names the first of them."""
        trials: dict[str, Trial] = {}
        errors: dict[str, str] = {}
        for values in points:
            settings = dict(zip(self.axes, values, strict=True))
            try:
                trial = self.trial(settings)
            except RecipeError as error:
                for line in str(error).splitlines():
                    errors.setdefault(line, f" (in {Trial(settings, Recipe())})")
            else:
                trials[trial.id] = trial
        if errors:
            lines = (line + (where if trials else "") for line, where in errors.items())
            raise RecipeError("\n".join(lines))
        return tuple(trials.values())


def read_space(path: Path | str, settings: Iterable[str] = ()) -> Space:
    """A space from a TOML file, with `part.field=value` texts applied to all trials.
    `base` names a recipe that the file's tables override: a path relative to the file, as
    "other.toml", or a shipped recipe.
    All errors of the file are listed in one `RecipeError`.
    """
    path = Path(path)
    tables = load_tables(path)
    searched, base = tables.pop("search", None), tables.pop("base", None)
    if base is not None:
        if not isinstance(base, str):
            raise RecipeError(f'{path.name}: base must be the path of a recipe, as "complex.toml"')
        # Values that are not tables are invalid; `Recipe.from_tables` reports them.
        invalid = {name: value for name, value in tables.items() if not isinstance(value, Mapping)}
        valid = {name: value for name, value in tables.items() if name not in invalid}
        below = find_recipe(base) if base in recipe_names() else path.parent / base
        tables = {**merged(load_tables(below), valid), **invalid}
    axes, fixed = _axes(path.name, searched), parse_settings(settings)
    for part, table in fixed.items():
        for name in table:
            if f"{part}.{name}" in axes:
                raise RecipeError(f"--set {part}.{name}: {path.name} searches it; remove one")
    space = Space(path.name, merged(tables, fixed), axes)
    space.trials  # noqa: B018 (reports invalid trials before anything is written)
    return space


def _axes(where: str, searched: Any) -> dict[str, Range | list[Any]]:
    """The values or the range of each searched setting, by dotted name."""
    if not isinstance(searched, Mapping) or not searched:
        raise RecipeError(
            f"{where}: a space needs a table [search] of settings and lists of values, such as "
            '"regularizer.weight" = [0.1, 0.01]'
        )
    axes = dict(_flat(searched))
    errors = {name: error for name, axis in axes.items() if (error := _axis_error(name, axis))}
    if errors:
        lines = (f"{where}: search.{name} {error}" for name, error in errors.items())
        raise RecipeError("\n".join(lines))
    return {
        _current_name(name): Range(**axis) if isinstance(axis, Mapping) else axis
        for name, axis in axes.items()
    }


def _current_name(name: str) -> str:
    """The name of a setting; earlier versions may have called it otherwise."""
    ((part, fields),) = parse_settings({name: None}).items()
    return f"{part}.{next(iter(fields))}"


def _axis_error(name: str, axis: Any) -> str | None:
    example = "{ low = 1e-4, high = 0.1, log = true }"
    if "." not in name:
        return 'is not a setting: write its part, too, such as "model.dim"'
    if name.startswith("data."):
        return "cannot be searched: MRRs on different data are not comparable"
    if name == "evaluation.filter":
        return "cannot be searched: validation MRRs with different filters are not comparable"
    if isinstance(axis, list):
        if not axis:
            return "has no values to try"
        is_twice = any(value in axis[:i] for i, value in enumerate(axis))
        return "lists a value twice; every trial runs once" if is_twice else None
    fields = axis.keys() if isinstance(axis, Mapping) else set()
    if not {"low", "high"} <= fields <= {"low", "high", "log"}:
        return f"must be a list of values or a range such as {example}"
    low, high, log = axis["low"], axis["high"], axis.get("log", False)
    if type(low) not in (int, float) or type(high) not in (int, float) or type(log) is not bool:
        return f"must have numbers as low and high, and a true or false log, such as {example}"
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return f"must have a finite low below a finite high, not {low} and {high}"
    return "must have a low above 0 for log = true" if log and low <= 0 else None


def _flat(searched: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted names and their values; TOML reads an unquoted dotted name as a nested table."""
    for name, values in searched.items():
        if isinstance(values, Mapping) and "." not in name:
            yield from ((f"{name}.{field}", axis) for field, axis in values.items())
        else:
            yield name, values
