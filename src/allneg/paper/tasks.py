"""What is to be trained for a number: one run a seed."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from allneg.errors import RecipeError
from allneg.graph.benchmarks import DATASETS
from allneg.paper.numbers import Number
from allneg.paper.quick import small, small_data
from allneg.paper.results import Results, entry, what_counts
from allneg.recipe import Recipe
from allneg.runs import Run, disk, make_model
from allneg.runs.files import full_disk_named, write_text
from allneg.runs.folder import locked


@dataclass(frozen=True)
class Task:
    """One seed of one number."""

    number: Number
    recipe: Recipe  # whole, this seed included
    runs: Path  # the folder of all runs

    @property
    def seed(self) -> int:
        return self.recipe.training.seed

    @property
    def name(self) -> str:
        return f"{self.number.name}, seed {self.seed}"

    @cached_property
    def folder(self) -> Path:
        """Where its run is: one for all numbers that the same recipe makes."""
        content = what_counts(self.recipe).to_toml().encode()
        digest = hashlib.sha256(content).hexdigest()[:8]
        name = f"{self.recipe.model.name}-{digest}-seed-{self.seed}"
        return self.runs / self.number.data / name

    @cached_property
    def work(self) -> float:
        """About how much there is to compute, in coordinates compared; for estimates of time."""
        recipe = self.recipe
        known = DATASETS.get(recipe.data.name)  # small data is all of one size
        triples, n = (known.files["train"].lines, known.n_entities) if known else (1, 1)
        if recipe.loss.negatives != "all":
            n = min(n, recipe.loss.n_negatives or n)
        # A step takes its time however few it compares with.
        return float(
            recipe.training.epochs * triples * (n + 1000) * make_model(recipe).entity_width
        )

    @property
    def share(self) -> float:
        """How much of the work is done; early stopping may end it sooner."""
        if not (self.folder / "metrics.jsonl").exists():
            return 0.0
        return self.epochs / self.recipe.training.epochs

    @property
    def epochs(self) -> int:
        return len(Run(self.folder, self.recipe).metrics())

    @property
    def state(self) -> str:
        """new, finished, diverged, or whatever its run says of itself."""
        if not self._is_begun:
            return "new"
        return "finished" if self.run.finished else str(self.run.status["state"])

    @property
    def _is_begun(self) -> bool:
        return (self.folder / "run.json").exists()

    @property
    def run(self) -> Run:
        return Run.open(self.folder)

    def arguments(self) -> list[str]:
        """What to call allneg with, to begin or to go on."""
        if self._is_begun:
            return ["resume", str(self.folder), "--quiet"]
        with full_disk_named(self.folder):
            disk.remove(self.folder)  # a process was killed while it made the run
            self.folder.parent.mkdir(parents=True, exist_ok=True)
        written = self.folder.with_suffix(".toml")
        write_text(written, self.recipe.to_toml())
        data = self.recipe.data.name
        return ["train", data, "--recipe", str(written), "--out", str(self.folder), "--quiet"]

    def collect(self, results: Results) -> None:
        """Put what the finished run says into its number's file."""
        results.add(self.number, self.recipe, entry(self.run))

    def drop(self) -> None:
        """Delete the run."""
        with full_disk_named(self.folder):
            disk.remove(self.folder)
            disk.remove(self.folder.with_suffix(".toml"))


def held(runs: Path) -> contextlib.AbstractContextManager[None]:
    """Keep other processes from making and collecting the runs in a folder."""
    with full_disk_named(runs):
        runs.mkdir(parents=True, exist_ok=True)
    why = "another `allneg reproduce` trains there; wait for it, or say --runs"
    return locked(runs, lambda: why)


def tasks(
    numbers: Sequence[Number], seeds: Iterable[int] | None, recipes: Path, runs: Path, quick: bool
) -> list[Task]:
    """A task for each number and seed: all numbers with the first seed, then with the next."""
    found = []
    for number in numbers:
        path = number.recipe_file(recipes)
        if not path.exists():
            raise RecipeError(
                f"{path}: there is no such recipe; call from a checkout, or --recipes"
            )
        recipe = Recipe.read(path)
        if quick:
            known = DATASETS.get(number.data)
            n = known.n_entities if known else 1
            recipe = small(recipe, small_data(recipe.data, runs / "data" / number.data), n)
        for order, seed in enumerate(seeds if seeds is not None else default_seeds(number)):
            training = replace(recipe.training, seed=seed)
            found.append((order, Task(number, replace(recipe, training=training), runs)))
    return [task for _, task in sorted(found, key=lambda each: each[0])]


def default_seeds(number: Number) -> tuple[int, ...]:
    """The figure shows its spread; elsewhere one seed is what time allows."""
    return (0, 1, 2) if number.part == "figure1" else (0,)
