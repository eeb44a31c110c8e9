"""A space: a recipe, and the values that some of its settings take in turn.

A space is a recipe with a table more, `[search]`, which gives a setting by its dotted name and
the list of its values. The trials are all combinations. Instead of a list a setting may have a
range; what then is tried is asked for one by one (ranges.py).
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from allneg.errors import RecipeError
from allneg.recipe import Recipe, load_tables, merged, parse_settings

_MOST_TRIALS = 100_000


@dataclass(frozen=True)
class Trial:
    """One recipe of a space."""

    settings: Mapping[str, Any]  # the ones that are searched, by dotted name
    recipe: Recipe  # whole, these settings included

    @cached_property
    def id(self) -> str:
        """Equal recipes have equal ids, on every machine."""
        return hashlib.sha256(self.recipe.to_toml().encode()).hexdigest()[:16]

    def in_words(self) -> str:
        return ", ".join(f"{name} {shown(value)}" for name, value in self.settings.items())


@dataclass(frozen=True)
class Space:
    """Recipes to try. They are about the same data, so that they can be compared."""

    name: str  # of its file
    names: tuple[str, ...]  # of the settings that are searched
    trials: tuple[Trial, ...]  # each once

    @property
    def recipe(self) -> Recipe:
        """One of the recipes, for what they have in common."""
        return self.trials[0].recipe


@dataclass(frozen=True)
class Range:
    """From where to where a setting may be."""

    low: float
    high: float
    log: bool = False  # as likely between .01 and .1 as between .1 and 1

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


Axes: TypeAlias = Mapping[str, Range | list[Any]]  # by dotted name


def read_space(path: Path | str, settings: Iterable[str] = ()) -> Space:
    """A space from a TOML file, with `part.field=value` texts on top.

    `base = "other.toml"`, from where the file is, puts another recipe under its own tables.
    Every mistake is named in one `RecipeError`.
    """
    name = Path(path).name
    tables, axes = loaded(path, settings)
    lists = {}
    for each, axis in axes.items():
        if isinstance(axis, Range):
            raise RecipeError(f"{name}: search.{each} is a range: say how many to try by --trials")
        lists[each] = axis
    count = math.prod(len(values) for values in lists.values())
    if count > _MOST_TRIALS:
        raise RecipeError(f"{name}: {count:,} trials; at most {_MOST_TRIALS:,} make a search")
    return Space(name, tuple(axes), _trials(name, tables, lists, count))


def loaded(path: Path | str, settings: Iterable[str]) -> tuple[dict[str, Any], Axes]:
    """What all trials of a file have in common, and what they do not."""
    path = Path(path)
    tables = load_tables(path)
    searched, base = tables.pop("search", None), tables.pop("base", None)
    if base is not None:
        if not isinstance(base, str):
            raise RecipeError(f'{path.name}: base is the path of a recipe, such as "complex.toml"')
        tables = _over(load_tables(path.parent / base), tables)
    axes, fixed = _axes(path.name, searched), parse_settings(settings)
    for part, table in fixed.items():
        for name in table:
            if f"{part}.{name}" in axes:
                raise RecipeError(f"--set {part}.{name}: {path.name} searches it; leave one out")
    return merged(tables, fixed), axes


def shown(value: Any) -> str:
    """A setting's value as people write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _over(base: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables over those of a base. What is no table goes along, to be complained of as usual."""
    odd = {name: each for name, each in tables.items() if not isinstance(each, Mapping)}
    return {**merged(base, {name: tables[name] for name in tables if name not in odd}), **odd}


def _axes(where: str, searched: Any) -> dict[str, Range | list[Any]]:
    """The values or the range of each searched setting, by dotted name."""
    if not isinstance(searched, Mapping) or not searched:
        raise RecipeError(
            f"{where}: a space has a table [search] of settings and lists of values, such as "
            '"regularizer.weight" = [0.1, 0.01]'
        )
    mistakes: list[str] = []
    axes: dict[str, Range | list[Any]] = {}
    for name, values in _flat(searched):
        if "." not in name:
            mistakes.append(f'{name} is no setting: write its part, too, such as "model.dim"')
        elif name.startswith("data."):
            mistakes.append(f"{name} cannot be searched: MRRs on other data are not comparable")
        elif isinstance(values, Mapping):
            wrong = _not_a_range(values)
            if wrong:
                mistakes.append(f"{name} {wrong}")
            else:
                axes[name] = Range(**values)
                continue
        elif not isinstance(values, list):
            mistakes.append(f"{name} must be a list of the values to try")
        elif not values:
            mistakes.append(f"{name} lists no value to try")
        elif any(value in values[:i] for i, value in enumerate(values)):
            mistakes.append(f"{name} lists a value twice; each trial is tried once")
        axes[name] = values
    if mistakes:
        raise RecipeError("\n".join(f"{where}: search.{mistake}" for mistake in mistakes))
    return axes


def _not_a_range(said: Mapping[str, Any]) -> str | None:
    """What is wrong with a range, if anything is."""
    example = "{ low = 1e-4, high = 0.1, log = true }"
    unknown = said.keys() - {"low", "high", "log"}
    if {"low", "high"} & said.keys() and unknown:
        return f"has no {' or '.join(sorted(unknown))}: a range is such as {example}"
    if unknown or not {"low", "high"} <= said.keys():
        return f"must be a list of the values to try, or a range such as {example}"
    low, high, log = said["low"], said["high"], said.get("log", False)
    if any(type(end) not in (int, float) for end in (low, high)):
        return f"must have numbers as its ends, such as {example}"
    if type(log) is not bool:
        return f"must have true or false as its log, such as {example}"
    if not math.isfinite(low) or not math.isfinite(high):
        return f"must have finite ends, not {low} and {high}"
    if low >= high:
        return f"must have a low below its high, not {low} and {high}"
    return "must begin above 0 for log = true" if log and low <= 0 else None


def _flat(searched: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted names and their values; without its quotes, TOML reads a dotted name as a table."""
    for name, values in searched.items():
        if isinstance(values, Mapping) and "." not in name:
            yield from ((f"{name}.{each}", under) for each, under in values.items())
        else:
            yield name, values


def _trials(
    where: str, tables: Mapping[str, Any], axes: Mapping[str, list[Any]], count: int
) -> tuple[Trial, ...]:
    """Every combination, checked; a mistake that only some have comes with the first of them."""
    trials: dict[str, Trial] = {}
    mistakes: dict[str, list[str]] = {}
    for values in itertools.product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        try:
            trial = one_trial(where, tables, settings)
        except RecipeError as problem:
            for line in str(problem).splitlines():
                mistakes.setdefault(line, []).append(Trial(settings, Recipe()).in_words())
            continue
        trials[trial.id] = trial
    if mistakes:
        raise RecipeError(
            "\n".join(
                line if len(trials) == count else f"{line} (in {trials[0]})"
                for line, trials in mistakes.items()
            )
        )
    return tuple(trials.values())


def one_trial(where: str, tables: Mapping[str, Any], settings: Mapping[str, Any]) -> Trial:
    """The trial of some settings, checked."""
    recipe = Recipe.from_tables(_with(tables, settings), where)
    # As the recipe has them: a 1 may have become a 1.0.
    return Trial({name: _setting(recipe, name) for name in settings}, recipe)


def _with(tables: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    top: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        part, _, each = name.partition(".")
        top.setdefault(part, {})[each] = value
    return merged(tables, top)


def _setting(recipe: Recipe, name: str) -> Any:
    part, _, each = name.partition(".")
    return getattr(getattr(recipe, part), each)
