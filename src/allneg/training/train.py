"""From a graph's name to a finished run, in one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from allneg.errors import RecipeError
from allneg.graph import read_graph
from allneg.hardware import find_device
from allneg.mesh import Mesh
from allneg.recipe import Recipe, load_tables, merged, parse_settings
from allneg.recipes import find_recipe
from allneg.runs import Run, check_new, new_folder
from allneg.runs.environment import is_ours
from allneg.training.callbacks import Callbacks
from allneg.training.launch import is_first, launched, may_restart, n_launched
from allneg.training.loop import run_training
from allneg.training.memory import refuse_if_too_large


def train(
    data: str | Path,
    *,
    model: str | None = None,
    recipe: Recipe | str | Path | None = None,
    settings: Iterable[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    callbacks: Callbacks | None = None,
    stopped_by: Callable[[], int] = lambda: 0,
) -> Run:
    """Train on `data`, a known set's name or a path, and return the finished run.

    `settings` such as {"training.epochs": 20}, or texts such as "training.epochs=20", count above
    the recipe, and `data` and `model` above them. The run is written to `out`, or to a new
    folder under runs/. Started by torchrun, all processes train one run; where one has failed
    and torchrun starts them anew, they go on with it.
    """
    plan = planned(data, model=model, recipe=recipe, settings=settings)
    # What is missing or taken is said before anything is read or written.
    device = find_device(plan.hardware.device)
    folder = new_folder(plan) if out is None else Path(out)
    if is_first() and not is_ours(folder):  # only the first one's torchrun is known
        check_new(folder)
    if out is None and may_restart():
        raise RecipeError("torchrun may start this anew: say --out, so that it finds its run again")
    with launched(plan.hardware) as world, contextlib.ExitStack() as stack:
        callbacks = callbacks if callbacks is not None and world.is_rank_zero else Callbacks()

        def begin() -> None:
            nonlocal folder
            if not is_ours(folder):
                graph = read_graph(plan.data.name, plan.data)
                for line in graph.notes:
                    callbacks.said(line)
                refuse_if_too_large(plan, graph, device, world.rows.size)
                if out is None:
                    folder = new_folder(plan)  # another training may have taken the name meanwhile
                Run.create(folder, plan, graph)
            stack.enter_context(Run.open(folder).locked())

        world.on_rank_zero(begin)
        folder = Path(world.broadcast(str(folder)))
        run = Run.open(folder, writes=world.is_rank_zero)
        run_training(run, callbacks, stopped_by, world=world)
    return run


def resume(
    folder: str | Path,
    *,
    mesh: str | None = None,
    callbacks: Callbacks | None = None,
    stopped_by: Callable[[], int] = lambda: 0,
) -> Run:
    """Go on with a run, in as many processes as there are; one that is finished stays as it is.

    Without `mesh` that of the recipe counts, if it is of as many processes.
    """
    run = Run.open(folder)
    if run.finished:
        return run
    hardware, size = run.recipe.hardware, n_launched()
    changed = hardware.mesh is not None and Mesh.read(hardware.mesh).size != size
    if mesh is None and not changed:
        mesh = hardware.mesh
    with launched(replace(hardware, mesh=mesh)) as world, contextlib.ExitStack() as stack:
        world.on_rank_zero(lambda: stack.enter_context(run.locked()))
        callbacks = callbacks if callbacks is not None and world.is_rank_zero else Callbacks()
        if changed:
            callbacks.said(
                f"the recipe's mesh is {hardware.mesh}; it goes on as {Mesh.of(mesh, size)}"
            )
        run_training(replace(run, writes=world.is_rank_zero), callbacks, stopped_by, world=world)
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
        where, tables = str(recipe), load_tables(find_recipe(recipe))
    said = parse_settings(settings)
    if (other := said.get("data", {}).get("name", str(data))) != str(data):
        raise RecipeError(
            f"data.name is {other!r} in the settings, and {str(data)!r} is to be read"
        )
    tables = merged(merged(tables, said), {"data": {"name": str(data)}})
    if model is not None:
        tables = merged(tables, {"model": {"name": model}})
    return Recipe.from_tables(tables, where)
