"""run.json: what a run is, with the checksums of its names and triples."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from allneg.errors import RecipeError, RunError, close_names
from allneg.graph.graph import Graph
from allneg.recipe import LARGEST_FILE, Recipe, parse_tables
from allneg.runs import files, plain
from allneg.runs.parents import Parent

FORMAT_VERSION = 2
# Runs in the package, by name; scripts/make_demo.py makes them.
PACKAGED = {"countries-demo": Path(__file__).with_name("countries-demo")}
UNTRAINED_VERSION = 3  # of ensembles and of bfloat16 weights, which are not trained further


@dataclass(frozen=True)
class Member:
    """One member of an ensemble."""

    name: str  # the folder of its run
    recipe: Recipe
    spread: float  # of its scores, see `Ensemble`
    is_counted: bool = False  # `Counts`, not a trained CP

    @property
    def model_name(self) -> str:
        return "counts" if self.is_counted else self.recipe.model.name

    def to_json(self) -> dict[str, Any]:
        about = {"name": self.name, "spread": self.spread, "recipe": self.recipe.to_tables()}
        return {**about, "is_counted": True} if self.is_counted else about

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """A member in run.json; a `ValueError` or a `RecipeError` if it is none."""
        match content:
            case {"name": str(name), "spread": float(spread), "recipe": dict(recipe)}:
                if 0 < spread < math.inf:
                    is_counted = content.get("is_counted", False) is True
                    return cls(name, Recipe.from_saved(recipe), spread, is_counted)
        raise ValueError("not a member of an ensemble")


@dataclass(frozen=True)
class About:
    """What run.json and recipe.toml tell of a run; see `Run` for the fields."""

    recipe: Recipe
    id: str | None = None
    members: tuple[Member, ...] = ()
    is_trainable: bool = True
    parents: tuple[Parent, ...] = ()

    def to_json(self, graph: Graph, checksums: Mapping[str, Any]) -> dict[str, Any]:
        """The content of run.json; `about_hash` of it is the id of the run."""
        about: dict[str, Any] = {
            "format_version": FORMAT_VERSION if self.is_trainable else UNTRAINED_VERSION,
            "data": graph.name,
            "recipe": self.recipe.fixed_tables(),
            "files": checksums,
        }
        if not self.is_trainable:
            about["members"] = [member.to_json() for member in self.members]
        if self.parents:
            about["parents"] = [parent.to_json() for parent in self.parents]
        return about

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What the files of a folder tell; a `RunError` if it is no run or of a newer version."""
        if not folder.exists():
            what = f"not a run (there is no such folder){_close_folders(folder)}"
            raise RunError(f"{folder}: {what}; `allneg train … --out` makes one")
        if not folder.is_dir():
            raise RunError(f"{folder}: a file, not the folder of a run")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise RunError(f"{folder}: cannot be read (Permission denied)")
        path = folder / "run.json"
        if not plain.exists(path):
            remedy = "`allneg train … --out` makes one"
            is_new = not plain.exists(folder / "metrics.jsonl")  # it has not trained an epoch
            if is_new and plain.exists(folder / "checkpoints"):
                remedy = "it was stopped while it was made: delete it and run the command again"
            raise RunError(f"{folder}: not a run (no run.json); {remedy}")
        if not plain.is_utf8(folder):
            raise RunError(f"{folder}: not a name in UTF-8; rename the folder")
        about = files.read_json(path)
        version = about.get("format_version")
        if type(version) is not int or not isinstance(about.get("data"), str):
            raise RunError(f"{path}: has no format_version or no data; damaged")
        if not 1 <= version <= UNTRAINED_VERSION:
            raise RunError(
                f"{folder}: format version {version}, and this allneg reads up to "
                f"{UNTRAINED_VERSION}; install a newer allneg"
            )
        recipe = _read_recipe(folder / "recipe.toml")
        if version == 1:  # such a run records neither its recipe nor, in checkpoints, its id
            return cls(recipe)
        if not isinstance(about.get("recipe"), dict):
            raise RunError(f"{path}: does not record the run's recipe; damaged")
        try:
            changes = recipe.fixed_changes(Recipe.from_saved(about["recipe"], str(path)))
        except RecipeError as error:
            raise RunError(str(error)) from None
        if changes:
            raise RunError(f"{folder / 'recipe.toml'}: {changes[0]}; change it back")
        parents, found = _read_parents(about, path), about_hash(about)
        if version == FORMAT_VERSION:
            return cls(recipe, found, parents=parents)
        return cls(recipe, found, _read_members(about, path), False, parents)


def about_hash(about: Mapping[str, Any]) -> str:
    """The SHA-256 of the content of run.json: the run's recipe, and its names and triples."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _read_members(about: Mapping[str, Any], path: Path) -> tuple[Member, ...]:
    try:
        return tuple(map(Member.from_json, about["members"]))
    except (KeyError, TypeError, ValueError, RecipeError):
        raise RunError(f"{path}: does not list the members of an ensemble; damaged") from None


def _read_parents(about: Mapping[str, Any], path: Path) -> tuple[Parent, ...]:
    try:
        return tuple(map(Parent.from_json, about.get("parents", [])))
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{path}: does not list the run's parents; damaged") from None


def _read_recipe(path: Path) -> Recipe:
    try:
        return Recipe.from_saved(
            parse_tables(files.read_bytes(path, LARGEST_FILE), path), str(path)
        )
    except RecipeError as error:
        raise RunError(str(error)) from None


def _close_folders(folder: Path) -> str:
    """The packaged runs and the folders beside `folder` with a close name, for a message."""
    names = list(PACKAGED)
    with contextlib.suppress(OSError):
        names += [path.name for path in folder.parent.iterdir() if path.is_dir()]
    return close_names(folder.name, names)
