"""Result files: one a number, with an entry a seed, written by the program and committed."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allneg.errors import RecipeError, RunError
from allneg.evaluation.report import HITS, is_number
from allneg.paper.numbers import Number
from allneg.recipe import Data, Evaluation, Hardware, Loss, Recipe, Training
from allneg.recipe.text import shown
from allneg.runs import Run
from allneg.runs.epochs import best_of
from allneg.runs.files import full_disk_named, read_json, write_json

SCHEMA_VERSION = 1
_KEYS = {"schema_version", "data", "row", "quick", "recipe", "seeds"}
_PERHAPS = ("valid_mrr", "peak_bytes", "best_epoch")  # may be None: not ranked, not measured


@dataclass(frozen=True)
class Result:
    """What a recipe reached, seed by seed."""

    data: str
    row: str
    recipe: str  # whole, as TOML; its seed is not meant
    seeds: tuple[Mapping[str, Any], ...]  # see `entry`, by rising seed
    quick: bool = False  # of a small size

    @property
    def name(self) -> str:
        return f"{self.data}/{self.row}"

    def values(self, *names: str) -> list[float]:
        """One number of each seed's entry: `values("hits", "10")`."""
        found = []
        for each in self.seeds:
            value: Any = each
            for name in names:
                value = value[name]
            found.append(float(value))
        return found

    @property
    def negatives(self) -> int:
        """How many its recipe compares an answer with."""
        recipe = self.parsed()
        return (recipe.loss.n_negatives if recipe else None) or int(self.seeds[0]["candidates"])

    def is_of(self, recipe: Recipe | None) -> bool:
        """Was it made by a recipe that gives the same numbers?"""
        mine = self.parsed()
        return mine is not None and recipe is not None and what_counts(mine) == what_counts(recipe)

    def parsed(self) -> Recipe | None:
        """Its recipe; None where today's settings have none like it."""
        try:
            return Recipe.from_tables(tomllib.loads(self.recipe))
        except (RecipeError, tomllib.TOMLDecodeError):
            return None

    def seed(self, seed: int) -> Mapping[str, Any] | None:
        return next((each for each in self.seeds if each["seed"] == seed), None)

    def joined(self, entries: Iterable[Mapping[str, Any]]) -> Result:
        """With more entries, each above an old one of its seed."""
        by_seed = {each["seed"]: each for each in (*self.seeds, *entries)}
        return replace(self, seeds=tuple(by_seed[seed] for seed in sorted(by_seed)))

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **vars(self), "seeds": list(self.seeds)}

    @classmethod
    def from_json(cls, said: Any, where: str) -> Result:
        if not isinstance(said, dict) or said.keys() != _KEYS:
            raise RunError(f"{where}: not a result file")
        if said["schema_version"] != SCHEMA_VERSION:
            raise RunError(f"{where}: schema version {said['schema_version']} is not known here")
        try:
            _check(said)
        except (
            KeyError,
            TypeError,
            ValueError,
        ) as wrong:  # TypeError: no table where one should be
            what = f"{wrong} is missing" if isinstance(wrong, KeyError) else wrong
            raise RunError(
                f"{where}: damaged ({what}); take it from a copy, or remove it"
            ) from None
        fields = {name: said[name] for name in _KEYS - {"schema_version", "seeds"}}
        return cls(**fields, seeds=tuple(said["seeds"]))


def _check(said: Mapping[str, Any]) -> None:
    """Raise what a result that is edited by hand, or by another program, lacks or has wrong."""
    for name, kind in (("data", str), ("row", str), ("recipe", str), ("quick", bool)):
        _need(type(said[name]) is kind, name, said[name])
    tomllib.loads(said["recipe"])
    _need(isinstance(said["seeds"], list), "seeds", said["seeds"])
    seeds = [each["seed"] for each in said["seeds"]]
    if sorted(set(seeds)) != seeds:
        raise ValueError(f"its seeds are {shown(seeds)}")
    for each in said["seeds"]:
        shares = {f"hits of {k}": each["hits"][str(k)] for k in HITS}
        shares |= {name: each[name] for name in ("mrr", "valid_mrr")}
        counts = ("seconds", "epochs", "candidates", "peak_bytes", "best_epoch")
        for name, value in (shares | {name: each[name] for name in counts}).items():
            if value is not None or name not in _PERHAPS:
                fits = is_number(value) and 0 <= value <= (1 if name in shares else math.inf)
                _need(fits, name, value)
        for part, name in (("machine", "device"), ("protocol", "in_words")):
            _need(isinstance(each[part][name], str), f"{part}.{name}", each[part][name])


def _need(fits: bool, name: str, value: Any) -> None:
    if not fits:
        raise ValueError(f"{name} is {shown(value)}")


@dataclass(frozen=True)
class Results:
    """A folder of result files."""

    folder: Path
    quick: bool = False  # of small sizes, to try the command out: no numbers to publish

    def get(self, number: Number) -> Result | None:
        path = number.result_file(self.folder)
        if not path.exists() and not path.is_symlink():
            return None
        found = Result.from_json(read_json(path), str(path))
        if found.name != number.name:
            raise RunError(f"{path}: is the result of {found.name}; put it where it belongs")
        if found.quick != self.quick:
            size = "a small size (--quick)" if found.quick else "full size"
            raise RunError(f"{path}: is of {size}, as the others are not; move it away")
        return found

    def has(self, number: Number, recipe: Recipe, seed: int) -> bool:
        found = self.get(number)
        return found is not None and found.seed(seed) is not None and found.is_of(recipe)

    def add(self, number: Number, recipe: Recipe, entry: Mapping[str, Any]) -> None:
        """Put a seed's entry into the number's file; those of another recipe are set aside."""
        found = self.get(number)
        if found is None or not found.is_of(recipe):
            self._set_aside(found)
            found = Result(number.data, number.row, recipe.to_toml(), (), self.quick)
        self.write(found.joined([entry]))

    def tried(self, number: Number) -> dict[Path, Result]:
        """What other recipes reached than the one that was chosen, by file."""
        paths = sorted((self.folder / "tried" / number.data).glob(f"{number.row}-[0-9]*.json"))
        return {path: Result.from_json(read_json(path), str(path)) for path in paths}

    def _set_aside(self, result: Result | None) -> None:
        """Keep what another recipe reached: a reader may ask what was tried."""
        if result is None or result.quick:
            return
        tried = self.tried(Number("", result.data, result.row))
        if result not in tried.values():
            last = max((int(path.stem.rpartition("-")[2]) for path in tried), default=0)
            self._write(self.folder / "tried" / f"{result.name}-{last + 1}.json", result)

    def borrowed(
        self, number: Number, recipe: Recipe, seed: int, others: Iterable[Number]
    ) -> Mapping[str, Any] | None:
        """The entry of another number that the same recipe makes, if it is there."""
        for other in others:
            if other.data == number.data and other != number and self.has(other, recipe, seed):
                found = self.get(other)
                return found.seed(seed) if found is not None else None
        return None

    def write(self, result: Result) -> None:
        self._write(self.folder / f"{result.name}.json", result)

    def _write(self, path: Path, result: Result) -> None:
        with full_disk_named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, result.to_json())

    def bundle(self, numbers: Iterable[Number], path: Path) -> None:
        """Write the results of some numbers, and what was tried for them, into one file."""
        found: list[Result | None] = []
        for number in numbers:
            # In this order `take` puts those aside that were.
            found += [*self.tried(number).values(), self.get(number)]
        with full_disk_named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        several = [each.to_json() for each in found if each is not None]
        write_json(path, {"schema_version": SCHEMA_VERSION, "results": several})

    def take(self, path: Path, numbers: Iterable[Number], recipes: Path) -> Iterator[str]:
        """Put the results of a bundle into this folder; a line about each that is not taken.

        What the recipes of today made is never replaced by what others made: that is set aside.
        """
        said, by_name = read_json(path), {each.name: each for each in numbers}
        if not isinstance(said, dict) or not isinstance(said.get("results"), list):
            raise RunError(f"{path}: not a bundle; `allneg reproduce … --bundle FILE` writes one")
        for each in said["results"]:
            new = Result.from_json(each, str(path))
            if new.name not in by_name or new.quick:
                yield f"{new.name}: {'a quick result' if new.quick else 'no such number'}; left"
                continue
            number = by_name[new.name]
            recipe, old = Recipe.read(number.recipe_file(recipes)), self.get(number)
            if old is not None and old.is_of(recipe) and not new.is_of(recipe):
                self._set_aside(new)
                yield f"{new.name}: not by {number.recipe_file(recipes)}; put with what was tried"
                continue
            if old is not None and old.is_of(new.parsed()):
                new = old.joined(new.seeds)
            else:
                self._set_aside(old)
            self.write(new)


def entry(run: Run) -> dict[str, Any]:
    """What a finished run says for its seed."""
    report, metrics, status = run.report.to_json(), run.metrics(), run.status
    kept = ("mrr", "mr", "hits", "count", "by_side", "optimistic", "pessimistic", "unseen")
    ranked = [each for each in metrics if "valid" in each]
    return {
        "seed": run.recipe.training.seed,
        **{name: report[name] for name in kept},
        "candidates": report["candidates"],
        "protocol": report["protocol"],
        "valid_mrr": best_of(ranked)[0],
        "best_epoch": status.get("best_epoch"),
        "epochs": len(metrics),
        "seconds": metrics[-1]["seconds"],
        "peak_bytes": status.get("peak_bytes"),
        "machine": machine(run),
        "curve": [
            {"epoch": each["epoch"], "seconds": each["seconds"], "valid_mrr": each["valid"]["mrr"]}
            for each in ranked
        ],
    }


def machine(run: Run) -> dict[str, Any]:
    """Where a run was trained, and by what."""
    said = run.environment
    device = said.get("cuda") or said.get("device", "cpu")  # a GPU's name, mps or cpu
    return {
        "device": f"CPU, {said['threads']} threads" if device == "cpu" else device,
        **{name: said.get(name) for name in ("platform", "python", "torch", "allneg", "started")},
    }


def what_counts(recipe: Recipe) -> Recipe:
    """A recipe with what does not change its numbers, but for rounding, as it is by default."""
    return replace(
        recipe,
        data=replace(recipe.data, store=Data.store),
        training=replace(
            recipe.training,
            seed=0,
            micro_batch=Training.micro_batch,
            save_seconds=Training.save_seconds,
        ),
        loss=replace(recipe.loss, block=Loss.block),
        evaluation=replace(recipe.evaluation, block=Evaluation.block),
        hardware=Hardware(precision=recipe.hardware.precision),
    )
