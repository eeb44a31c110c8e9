"""A recipe: everything that decides a run. Strict to read, complete when written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allneg.errors import RecipeError
from allneg.recipe.clashes import clashes
from allneg.recipe.parts import (
    PARTS,
    Data,
    Evaluation,
    Hardware,
    Loss,
    Model,
    Optimizer,
    Regularizer,
    Training,
)
from allneg.recipe.reading import meant, read_part
from allneg.recipe.text import (
    load_tables,
    merged,
    parse_settings,
    shown,
    toml_value,
    with_current_names,
)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run; see the parts."""

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    loss: Loss = field(default_factory=Loss)
    regularizer: Regularizer = field(default_factory=Regularizer)
    optimizer: Optimizer = field(default_factory=Optimizer)
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)
    hardware: Hardware = field(default_factory=Hardware)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], where: str = "recipe") -> Recipe:
        """A recipe from nested tables, checked; every mistake is named in one `RecipeError`."""
        mistakes: list[str] = []
        made: dict[str, Any] = {}
        for name, table in with_current_names(tables).items():
            if name not in PARTS:
                mistakes.append(f"{name} is not a part{meant(name, PARTS)}")
            elif not isinstance(table, Mapping):
                mistakes.append(f"{name} is a table of settings, not {shown(table)}")
            else:
                made[name] = PARTS[name](**read_part(name, table, mistakes))
        recipe = cls(**made)
        mistakes += clashes(recipe)
        if mistakes:
            raise RecipeError("\n".join(f"{where}: {mistake}" for mistake in mistakes))
        return recipe

    @classmethod
    def read(cls, path: Path | str) -> Recipe:
        """A recipe from a TOML file."""
        return cls.from_tables(load_tables(path), str(path))

    def with_settings(self, settings: Iterable[str] | Mapping[str, object]) -> Recipe:
        """This recipe with `part.field=value` texts, or names and values, on top."""
        return Recipe.from_tables(merged(self.to_tables(), parse_settings(settings)), "--set")

    def to_tables(self) -> dict[str, dict[str, Any]]:
        """Nested tables of every field; a None is left out, as TOML has none."""
        return {
            name: {key: value for key, value in table.items() if value is not None}
            for name, table in dataclasses.asdict(self).items()
        }

    def to_toml(self) -> str:
        lines = []
        for name, table in self.to_tables().items():
            settings = (f"{key} = {toml_value(value)}" for key, value in table.items())
            lines += [f"[{name}]", *settings, ""]
        return "\n".join(lines)
