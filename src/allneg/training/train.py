"""From a graph's name to a finished run, in one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from allneg.errors import BadRecipe
from allneg.graph import read_graph
from allneg.hardware import find_device
from allneg.mesh import Mesh
from allneg.recipe import Recipe, load_tables, merged, parse_settings
from allneg.run import Run, check_new, new_folder
from allneg.run.environment import is_ours
from allneg.training.fit import go_on
from allneg.training.launch import is_first, launched, may_restart, n_launched
from allneg.training.plan import refuse_if_too_large
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
        raise BadRecipe("torchrun may start this anew: say --out, so that it finds its run again")
    with launched(plan.hardware) as world, contextlib.ExitStack() as stack:
        watch = watch if watch is not None and world.leads else Watch()

        def begin() -> None:
            nonlocal folder
            if not is_ours(folder):
                graph = read_graph(plan.data.name, plan.data)
                for line in graph.notes:
                    watch.said(line)
                refuse_if_too_large(plan, graph, device, world.rows.size)
                if out is None:
                    folder = new_folder(plan)  # another training may have taken the name meanwhile
                Run.create(folder, plan, graph)
            stack.enter_context(Run.open(folder).held())

        world.led(begin)
        folder = Path(world.told(str(folder)))
        run = Run.open(folder, writes=world.leads)
        go_on(run, watch, stopped_by, world=world)
    return run


def resume(
    folder: str | Path,
    *,
    mesh: str | None = None,
    watch: Watch | None = None,
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
        world.led(lambda: stack.enter_context(run.held()))
        watch = watch if watch is not None and world.leads else Watch()
        if changed:
            watch.said(f"the recipe's mesh is {hardware.mesh}; it goes on as {Mesh.of(mesh, size)}")
        go_on(replace(run, writes=world.leads), watch, stopped_by, world=world)
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
        where, tables = str(recipe), load_tables(recipe)
    said = parse_settings(settings)
    if (other := said.get("data", {}).get("name", str(data))) != str(data):
        raise BadRecipe(f"data.name is {other!r} in the settings, and {str(data)!r} is to be read")
    tables = merged(merged(tables, said), {"data": {"name": str(data)}})
    if model is not None:
        tables = merged(tables, {"model": {"name": model}})
    return Recipe.from_tables(tables, where)
