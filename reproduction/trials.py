"""`python -m reproduction.trials`: train the recipes in trials.toml; adopt the best on valid."""

from __future__ import annotations

import argparse
import itertools
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from allneg import recipes
from allneg.cli.output import table
from allneg.cli.reports import stop_signal
from allneg.cli.workers import ParallelTraining
from allneg.errors import AllnegError, RecipeError, close_names
from allneg.recipe import Recipe
from allneg.recipe.text import toml_value
from allneg.reproduce import CELLS, Cell, Result, Results, Task, comparable, entry, quick_recipe
from allneg.runs import Run
from allneg.runs.files import write_json, write_text
from allneg.terminal import note
from reproduction.published import tried

ROOT = Path(__file__).parents[1]
TRIALS = Path(__file__).with_name("trials.toml")
SUMMARY = "summary.json"
_OPTIONS = ("minutes", "base")


@dataclass(frozen=True)
class Trial:
    """A recipe that may be better for a cell than its own."""

    cell: Cell
    recipe: Recipe
    minutes: float  # about; of one run on an H200
    settings: Mapping[str, Any]  # in which it differs from its base

    def tasks(self, seeds: Sequence[int], runs: Path) -> list[Task]:
        recipes = (self.recipe.with_settings([f"training.seed={seed}"]) for seed in seeds)
        return [Task(self.cell, recipe, runs) for recipe in recipes]

    @property
    def words(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


def read_trials(path: Path = TRIALS, quick: bool = False) -> list[Trial]:
    """All trials of a file, the shortest first."""
    cells, found = {cell.name: cell for cell in CELLS}, list[Trial]()
    for name, groups in tomllib.loads(path.read_text()).items():
        if name not in cells:
            raise RecipeError(f"{path}: no cell is called {name!r}{close_names(name, cells)}")
        for group in groups:
            base = _base(group.get("base", name))
            rule = cells[name].recipe().evaluation.filter
            axes = {key: value for key, value in group.items() if key not in _OPTIONS}
            values = (value if isinstance(value, list) else [value] for value in axes.values())
            for combination in itertools.product(*values):
                chosen = dict(zip(axes, combination, strict=True))
                # TOML has no None, which resets a setting.
                settings = {key: None if v == "" else v for key, v in chosen.items()}
                recipe = base.with_settings({**settings, "evaluation.filter": rule})
                recipe = quick_recipe(recipe) if quick else recipe
                found.append(Trial(cells[name], recipe, group["minutes"], chosen))
    return sorted(found, key=lambda trial: trial.minutes)


def _base(name: str) -> Recipe:
    if name.endswith(".json"):
        return Result.read(ROOT / name).made_by
    return Recipe.read(recipes.find_recipe(name))


def result_path(out: Path, task: Task) -> Path:
    """The result file of a trial, for all seeds."""
    digest = task.folder.name.split("-")[-3]
    return out / task.cell.data / f"{task.cell.row.replace('/', '-')}-{digest}.json"


def train(tasks: list[Task], out: Path, parallel: int, limit: float | None, quick: bool) -> None:
    """Train the tasks without a result, and write their results."""

    def add_result(task: Task) -> None:
        path, new = result_path(out, task), entry(Run.open(task.folder))
        old = Result.read(path).seeds if path.exists() else []
        result = Result(task.cell.data, task.cell.row, task.recipe.to_toml(), old, quick)
        result.with_seeds([new]).write(path)
        note(f"{training.progress()}: {task.name}: valid MRR {new['valid_mrr']:.4f}")

    with stop_signal() as stopped_by:
        training = ParallelTraining(tasks, parallel, stopped_by, add_result, limit_seconds=limit)
        training.train()
    for name, error in training.failed.items():
        note(f"{name}: {error}")
    if training.waiting:
        note(f"{len(training.waiting)} runs are left; run the same command to continue")


def is_done(task: Task, out: Path, results: Results) -> bool:
    """Whether a trial has a result: in `out`, published, or kept when another was adopted."""
    path = result_path(out, task)
    if path.exists() and Result.read(path).seed(task.seed) is not None:
        return True
    earlier = (results.get(task.cell), *tried(results, task.cell).values())
    found = (each for each in earlier if each is not None and each.is_of(task.recipe))
    return any(each.seed(task.seed) is not None for each in found)


def standings(trials: Sequence[Trial], out: Path, results: Results) -> dict[Cell, list[Standing]]:
    """The trials of each cell with a result and its published recipe, best on valid first.

    They are compared by the seeds that all of them have. Test plays no part.
    """
    found: dict[Cell, list[Standing]] = {}
    for trial in trials:
        path = result_path(out, trial.tasks([0], out)[0])
        if path.exists():
            found.setdefault(trial.cell, []).append(Standing(path, Result.read(path), trial.words))
    for cell, several in found.items():
        if (chosen := results.get(cell)) is not None:
            several.insert(0, Standing(results.path(cell), chosen, "the published recipe"))
        seeds = set.intersection(*({*one.result.values("seed")} for one in several))
        several.sort(key=lambda one: -one.valid_mrr(seeds))
    return found


@dataclass(frozen=True)
class Standing:
    """A result among those of the same cell."""

    path: Path
    result: Result
    words: str

    def valid_mrr(self, seeds: set[int]) -> float:
        entries = [each for each in self.result.seeds if each["seed"] in seeds]
        return fmean(each["valid_mrr"] for each in entries or self.result.seeds)


def adopt(found: Mapping[Cell, Sequence[Standing]], results: Results) -> None:
    """Publish the best recipe of each cell on valid, and keep the others under tried/."""
    for cell, (best, *others) in found.items():
        if results.get(cell) is None:
            note(f"{cell.name}: its own recipe has no result yet; `allneg reproduce` trains it")
            continue
        known = {comparable(r.made_by) for r in (best.result, *tried(results, cell).values())}
        for other in others:
            if comparable(other.result.made_by) not in known:
                other.result.write(_free(results, cell))
        if best.path != results.path(cell):
            best.result.write(results.path(cell))
            path = recipes.FOLDER / f"{cell.name}.toml"
            comment = f"# {cell.name}: the best validation MRR of reproduction/trials.toml.\n"
            write_text(path, comment + short_toml(best.result.made_by))
            note(f"{cell.name}: {best.words}")


def _free(results: Results, cell: Cell) -> Path:
    folder = results.folder / "tried" / cell.data
    names = (folder / f"{cell.row}-{number}.json" for number in itertools.count(1))
    return next(path for path in names if not path.exists())


def short_toml(recipe: Recipe) -> str:
    """The settings of a recipe other than the defaults, as TOML; the seed is left out."""
    default, lines = Recipe().to_tables(), list[str]()
    for part, settings in recipe.with_settings(["training.seed="]).to_tables().items():
        own = {n: v for n, v in settings.items() if n == "name" or v != default[part].get(n)}
        if part == "data" or settings != default[part]:
            lines += [f"[{part}]", *(f"{n} = {toml_value(v)}" for n, v in own.items()), ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m reproduction.trials", description=__doc__)
    parser.add_argument("--cells", help="only these, such as wn18rr/simple,fb15k/complex")
    parser.add_argument("--most-minutes", type=float, help="leave out longer trials")
    parser.add_argument("--seeds", default="0", help="default: 0")
    parser.add_argument("--parallel", type=int, default=1, help="runs at the same time")
    parser.add_argument("--limit-seconds", type=float, help="then save and stop")
    parser.add_argument("--runs", type=Path, default=Path("runs/trials"), help="folder of runs")
    parser.add_argument("--out", type=Path, default=Path("trials"), help="folder of result files")
    parser.add_argument("--quick", action="store_true", help="small models of an embedded graph")
    parser.add_argument("--status", action="store_true", help="train nothing, only print")
    parser.add_argument("--adopt", action="store_true", help="publish the best of each cell")
    chosen = parser.parse_args(arguments)
    try:
        return _run(chosen)
    except AllnegError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _run(chosen: argparse.Namespace) -> int:
    trials = read_trials(quick=chosen.quick)
    if chosen.cells:
        names = chosen.cells.split(",")
        trials = [trial for trial in trials if trial.cell.name in names]
    if chosen.most_minutes is not None:
        trials = [trial for trial in trials if trial.minutes <= chosen.most_minutes]
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    tasks = [task for trial in trials for task in trial.tasks(seeds, chosen.runs)]
    results = Results((chosen.out if chosen.quick else ROOT) / "results", chosen.quick)
    left = [task for task in tasks if not is_done(task, chosen.out, results)]
    total = sum(trial.minutes for trial in trials) * len(seeds)
    chosen.out.mkdir(parents=True, exist_ok=True)
    note(f"{len(left)} of {len(tasks)} runs are left; all take about {total:.0f} minutes")
    if left and not chosen.status and not chosen.adopt:
        train(left, chosen.out, chosen.parallel, chosen.limit_seconds, chosen.quick)
    found = standings(trials, chosen.out, results)
    rows = [
        (cell.name, one.words, fmean(one.result.values("valid_mrr")), len(one.result.seeds))
        for cell, several in found.items()
        for one in several
    ]
    table("the best on valid first", ("cell", "settings", "valid MRR#", "seeds#"), rows)
    names = ("cell", "settings", "valid_mrr", "seeds")
    write_json(chosen.out / SUMMARY, [dict(zip(names, row, strict=True)) for row in rows])
    if chosen.adopt:
        adopt(found, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
