"""The numbers of Jain et al. (2020), "Knowledge Base Completion: Baseline Strikes Back (Again)":
the paper's cells, the tasks that train them, and the result files that hold our numbers."""

from __future__ import annotations

import hashlib
import math
import shutil
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from allneg import recipes
from allneg.errors import RecipeError, RunError, close_names
from allneg.evaluation.report import HITS, is_number
from allneg.recipe import Hardware, Recipe
from allneg.recipe.text import shown
from allneg.runs import Run
from allneg.runs.files import read_json, write_errors, write_json, write_text
from allneg.runs.run import best_of

# The rows whose runs of the same seed are the members of an ensemble.
MEMBERS = ("bilinear", "complex-n3", "rotate-full", "transe-full")
SEEDS = range(3)  # of every published number
UNAVAILABLE = {"yago3-10": "not run: the split is not available"}
_VERSION = 1  # of the format of result files
_TYPES = {"data": str, "row": str, "recipe": str, "seeds": list, "quick": bool}
_MAXIMA = {"mrr": 1, "valid_mrr": 1} | dict.fromkeys(
    ("seconds", "epochs", "candidates", "peak_bytes", "best_epoch"), math.inf
)
_OPTIONAL = ("valid_mrr", "peak_bytes", "best_epoch")  # may be None: not ranked, not measured
_QUICK = ["data.name=countries", "model.dim=16", "training.epochs=3", "training.batch_size=500"]
# These settings change results only by rounding; an empty value is the default.
_NEUTRAL = [
    "data.store=", "loss.block=", "evaluation.block=", "training.seed=", "training.micro_batch=",
    "training.save_seconds=",
    *(f"hardware.{field.name}=" for field in fields(Hardware) if field.name != "precision"),
]  # fmt: skip


@dataclass(frozen=True)
class Printed:
    """What the paper prints: filtered test MRR and, in table 1, Hits."""

    mrr: float
    hits1: float | None = None
    hits10: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """One number: the shipped recipe DATA/ROW makes it, and results/DATA/ROW.json holds it.

    The number of an ensemble is made from the runs of other cells.
    """

    part: str
    data: str
    row: str
    paper: Printed | None = None

    @property
    def name(self) -> str:
        return f"{self.data}/{self.row}"

    @property
    def members(self) -> list[Cell]:
        """The cells whose runs an ensemble combines; none for other cells."""
        rows = MEMBERS if self.part == "ensemble" else ()
        return [Cell("beyond", self.data, row) for row in rows]

    def recipe(self) -> Recipe:
        """The recipe; of an ensemble, that of its first member."""
        if self.members:
            return self.members[0].recipe()
        return Recipe.read(recipes.FOLDER / f"{self.name}.toml")


CELLS = tuple(
    Cell(part, data, row, Printed(*numbers) if numbers else None)
    for part, rows in tomllib.loads(
        Path(__file__).with_name("paper.toml").read_text(encoding="utf-8")
    ).items()
    for row, cells in rows.items()
    for data, numbers in cells.items()
)


def select(
    parts: Collection[str], datasets: Collection[str] = (), rows: Collection[str] = ()
) -> list[Cell]:
    """The cells of some parts; those of unavailable datasets only if `datasets` names them."""
    for what, names, known in (
        ("dataset", datasets, {cell.data for cell in CELLS}),
        ("row", rows, {cell.row for cell in CELLS}),
    ):
        for name in set(names) - known:
            hint = close_names(name, known) or f"; known names: {', '.join(sorted(known))}"
            raise RecipeError(f"no {what} is called {name!r}{hint}")
    found = [
        cell
        for cell in CELLS
        if cell.part in parts
        and (cell.data in datasets if datasets else cell.data not in UNAVAILABLE)
        and (not rows or cell.row in rows)
    ]
    if not found:
        raise RecipeError(f"{', '.join(parts)}: no cell has these --datasets and --rows")
    return found


def comparable(recipe: Recipe) -> Recipe:
    """Equal for recipes that give the same results."""
    return recipe.with_settings(_NEUTRAL)


@dataclass(frozen=True)
class Result:
    """The content of a result file."""

    data: str
    row: str
    recipe: str  # the whole recipe as TOML; its seed does not count
    seeds: Sequence[Mapping[str, Any]]  # see `entry`; sorted by seed
    quick: bool = False  # made by --quick

    @classmethod
    def read(cls, path: Path) -> Result:
        content = read_json(path)
        if content.keys() != {"schema_version", *_TYPES}:
            raise RunError(f"{path}: not a result file")
        try:
            _check(content)
        except (KeyError, TypeError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise RunError(f"{path}: damaged ({what}); restore or delete it") from None
        return cls(*(content[name] for name in _TYPES))

    def write(self, path: Path) -> None:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"schema_version": _VERSION, **vars(self)})

    @property
    def made_by(self) -> Recipe:
        """The recipe; a `RecipeError` if it has settings of another version."""
        return Recipe.from_saved(tomllib.loads(self.recipe))

    def is_of(self, recipe: Recipe) -> bool:
        """Does `recipe` give the same results as the one of this file?"""
        try:
            return comparable(self.made_by) == comparable(recipe)
        except RecipeError:
            return False

    @property
    def members(self) -> list[str]:
        """The runs of an ensemble, without their seeds; none for other results."""
        return members_of(self.seeds[0])

    def seed(self, seed: int) -> Mapping[str, Any] | None:
        return next((entry for entry in self.seeds if entry["seed"] == seed), None)

    def with_seeds(self, entries: Iterable[Mapping[str, Any]]) -> Result:
        """With these entries as well; they replace those with the same seed."""
        by_seed = {entry["seed"]: entry for entry in (*self.seeds, *entries)}
        return replace(self, seeds=[by_seed[seed] for seed in sorted(by_seed)])

    def values(self, name: str) -> list[Any]:
        """One value per seed, without those that are None."""
        return [entry[name] for entry in self.seeds if entry[name] is not None]

    def summary(self) -> dict[str, Any]:
        """Means over seeds; `spread` is the standard deviation of the MRR."""
        mrrs = self.values("mrr")
        return {
            "mrr": fmean(mrrs),
            "spread": stdev(mrrs) if len(mrrs) > 1 else None,
            "hits": {str(k): fmean(hits[str(k)] for hits in self.values("hits")) for k in HITS},
            "seeds": self.values("seed"),
            "seconds": fmean(self.values("seconds")),
        }


def _check(content: Mapping[str, Any]) -> None:
    """Raise an error for the first value of a result file that is missing or wrong."""

    def need(valid: bool, name: str, value: Any) -> None:
        if not valid:
            raise ValueError(f"{name} is {shown(value)}")

    need(content["schema_version"] == _VERSION, "schema_version", content["schema_version"])
    for name, kind in _TYPES.items():
        need(type(content[name]) is kind, name, content[name])
    tomllib.loads(content["recipe"])
    seeds = [entry["seed"] for entry in content["seeds"]]
    need(bool(seeds) and sorted(set(seeds)) == seeds, "the list of seeds", seeds)
    for entry in content["seeds"]:
        values = {name: entry[name] for name in _MAXIMA}
        for name, value in (values | {f"hits.{k}": entry["hits"][str(k)] for k in HITS}).items():
            valid = is_number(value) and 0 <= value <= _MAXIMA.get(name, 1)
            need(valid or (value is None and name in _OPTIONAL), name, value)
        for part, name in (("machine", "device"), ("protocol", "in_words")):
            need(isinstance(entry[part][name], str), f"{part}.{name}", entry[part][name])


@dataclass(frozen=True)
class Results:
    """A folder of result files."""

    folder: Path
    quick: bool = False  # results of --quick, which are not for publication

    def path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.name}.json"

    def get(self, cell: Cell) -> Result | None:
        path = self.path(cell)
        if not path.exists() and not path.is_symlink():
            return None
        found = Result.read(path)
        if (found.data, found.row, found.quick) != (cell.data, cell.row, self.quick):
            size = "a --quick result" if found.quick else "a full-size result"
            raise RunError(f"{path}: is {size} of {found.data}/{found.row}; move it away")
        return found

    def has(self, task: Task) -> bool:
        found = self.get(task.cell)
        if found is None or not found.is_of(task.recipe) or not found.seed(task.seed):
            return False
        return found.members == [_without_seed(member.folder.name) for member in task.members]

    def add(self, cell: Cell, recipe: Recipe, entry: Mapping[str, Any]) -> None:
        """Add a seed to the file of a cell; seeds of another recipe are replaced."""
        found = self.get(cell)
        same = found is not None and found.is_of(recipe) and found.members == members_of(entry)
        kept = found.seeds if found is not None and same else []
        result = Result(cell.data, cell.row, recipe.to_toml(), kept, self.quick)
        result.with_seeds([entry]).write(self.path(cell))


def members_of(entry: Mapping[str, Any]) -> list[str]:
    """The runs of an ensemble in an entry, without their seeds."""
    return [_without_seed(name) for name in entry.get("members", ())]


def _without_seed(run: str) -> str:
    return run.rpartition("-seed-")[0]


def entry(run: Run) -> dict[str, Any]:
    """The entry of a finished run: test metrics, validation curve, time, memory and machine."""
    report, metrics, status, env = run.report.to_json(), run.metrics(), run.status, run.environment
    kept = ("mrr", "mr", "hits", "count", "by_side", "optimistic", "pessimistic", "unseen")
    ranked, about = [epoch for epoch in metrics if "valid" in epoch], report["ensemble"]
    device = env.get("cuda") or env.get("device", "cpu")  # the name of a GPU, mps or cpu
    return {
        "seed": run.recipe.training.seed,
        **{name: report[name] for name in (*kept, "candidates", "protocol")},
        "valid_mrr": about["valid_mrr"] if about else best_of(ranked)[0],
        "best_epoch": status.get("best_epoch"),
        "epochs": len(metrics),
        "seconds": metrics[-1]["seconds"] if metrics else 0.0,
        "peak_bytes": status.get("peak_bytes"),
        "machine": {
            "device": f"CPU, {env['threads']} threads" if device == "cpu" else device,
            **{key: env.get(key) for key in ("platform", "python", "torch", "allneg", "started")},
        },
        "curve": [
            {"epoch": at["epoch"], "seconds": at["seconds"], "valid_mrr": at["valid"]["mrr"]}
            for at in ranked
        ],
        **({"members": [member["run"] for member in about["members"]]} if about else {}),
    }


@dataclass(frozen=True)
class Task:
    """One seed of one cell: a run to train, or to make from the runs of other tasks."""

    cell: Cell
    recipe: Recipe  # with this seed
    runs: Path  # the folder of all runs
    members: tuple[Task, ...] = ()  # of an ensemble

    @property
    def seed(self) -> int:
        return self.recipe.training.seed

    @property
    def name(self) -> str:
        return f"{self.cell.name}, seed {self.seed}"

    @cached_property
    def folder(self) -> Path:
        """The folder of the run, shared by all cells that the same recipe makes."""
        names = " ".join(_without_seed(member.folder.name) for member in self.members)
        text = names or comparable(self.recipe).to_toml()
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        kind = "ensemble" if names else self.recipe.model.name
        return self.runs / self.cell.data / f"{kind}-{digest}-seed-{self.seed}"

    @property
    def state(self) -> str:
        """new, finished, or the state in the run's status: interrupted, diverged, …"""
        if not (self.folder / "run.json").exists():
            return "new"
        run = Run.open(self.folder)
        return "finished" if run.finished else str(run.status["state"])

    @property
    def epochs(self) -> int:
        return len(Run(self.folder, self.recipe).metrics())

    def arguments(self) -> list[str]:
        """The arguments of `allneg` that start or resume the run."""
        if self.state != "new":
            return ["resume", str(self.folder), "--quiet"]
        shutil.rmtree(self.folder, ignore_errors=True)  # left by a process that was killed early
        recipe = self.folder.with_suffix(".toml")
        with write_errors(recipe):
            recipe.parent.mkdir(parents=True, exist_ok=True)
        write_text(recipe, self.recipe.to_toml())
        data, out = self.recipe.data.name, str(self.folder)
        return ["train", data, "--recipe", str(recipe), "--out", out, "--quiet"]


def quick_recipe(recipe: Recipe) -> Recipe:
    """A small model of the embedded graph with the other settings of a recipe."""
    shared = ["loss.n_negatives=50"] if recipe.loss.negatives == "shared" else []
    return recipe.with_settings([*_QUICK, *shared])


def make_tasks(cells: Iterable[Cell], seeds: Sequence[int], runs: Path, quick: bool) -> list[Task]:
    """One task per cell and seed: all cells with the first seed, then with the next."""

    def task(cell: Cell, seed: int) -> Task:
        recipe = quick_recipe(cell.recipe()) if quick else cell.recipe()
        members = tuple(task(member, seed) for member in cell.members)
        return Task(cell, recipe.with_settings([f"training.seed={seed}"]), runs, members)

    cells = list(cells)
    return [task(cell, seed) for seed in seeds or SEEDS for cell in cells]
