"""From a graph's name to a finished run, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from allneg.graph import read_graph
from allneg.hardware import find_device
from allneg.recipe import Recipe, load_tables, merged, parse_settings
from allneg.run import Run, check_new, new_folder
from allneg.training.fit import fit
from allneg.training.watch import Watch


def train(
    data: str | Path,
    *,
    model: str | None = None,
    recipe: Recipe | str | Path | None = None,
    settings: Iterable[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    watch: Watch | None = None,
    stopped_by: Callable[[], int] = lambda: 0,
) -> Run:
    """Train on `data`, a known set's name or a path, and return the finished run.

    `settings` such as {"training.epochs": 20}, or texts such as "training.epochs=20", count above
    the recipe, and `data` and `model` above them. The run is written to `out`, or to a new
    folder under runs/.
    """
    plan = planned(data, model=model, recipe=recipe, settings=settings)
    # What is missing or taken is said before anything is read or written.
    find_device(plan.hardware.device)
    if out is not None:
        check_new(Path(out))
    watch = watch or Watch()
    graph = read_graph(plan.data.name, plan.data)
    for line in graph.notes:
        watch.said(line)
    run = Run.create(Path(out) if out is not None else new_folder(plan), plan, graph)
    with run.held():
        fit(run, watch, stopped_by)
    return run


def planned(
    data: str | Path,
    *,
    model: str | None = None,
    recipe: Recipe | str | Path | None = None,
    settings: Iterable[str] | Mapping[str, object] = (),
) -> Recipe:
    """The whole recipe that these arguments ask for, checked as one."""
    where, tables = "recipe", {}
    if isinstance(recipe, Recipe):
        tables = recipe.to_tables()
    elif recipe is not None:
        where, tables = Path(recipe).name, load_tables(recipe)
    if isinstance(settings, Mapping):
        settings = [f"{name}={_as_text(value)}" for name, value in settings.items()]
    elif isinstance(settings, str):
        settings = [settings]
    tables = merged(merged(tables, parse_settings(settings)), {"data": {"name": str(data)}})
    if model is not None:
        tables = merged(tables, {"model": {"name": model}})
    return Recipe.from_tables(tables, where)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
