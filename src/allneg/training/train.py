"""`train` and `resume`: one call for a whole training."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from allneg.errors import RecipeError, UsageError, counted
from allneg.graph.graph import Graph
from allneg.graph.read import check_source, read_graph, source_name
from allneg.hardware import find_device, torch_settings
from allneg.kernels.engines import check_engine
from allneg.models import MODELS
from allneg.recipe import Mesh, Recipe, load_tables, merged, parse_settings
from allneg.recipes import find_recipe
from allneg.runs import Run, check_new, new_folder
from allneg.runs.files import need_bytes
from allneg.runs.folder import existing_parent, is_ours
from allneg.scoring import Shard
from allneg.training.callbacks import AllCallbacks, Callbacks, ProgressLines
from allneg.training.defaults import default_recipe, model_settings
from allneg.training.interrupt import interruptible
from allneg.training.launch import is_rank_zero, join_processes, may_restart, n_processes
from allneg.training.loop import run_training
from allneg.training.memory import check_memory
from allneg.training.start import begin, check_start, start_recipe
from allneg.training.trackers import tracker
from allneg.training.trainer import check_weights
from allneg.training.warm_up import first_product, in_background

_FEW_VALID = 30  # triples, whose MRR has a standard error of about 0.05


def train(
    data: Any,
    *,
    model: str | None = None,
    recipe: Recipe | str | Path | None = None,
    settings: Iterable[str] | Mapping[str, object] = (),
    start: Run | str | Path | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    track: str | Sequence[str] = (),
    callbacks: Callbacks | Sequence[Callbacks] = (),
    stopped_by: Callable[[], int] | None = None,
    watch: Callbacks | None = None,
) -> Run:
    """Train on `data`, anything that `read_graph` takes, and return the finished run.

    Without a recipe, the defaults of the model are used, with sizes that fit the graph and the
    device. `settings` such as {"training.epochs": 20}, or texts such as "training.epochs=20",
    override the recipe or the defaults; `data` and `model` override the recipe. The run is written
    to `out`, or to a new folder under runs/. Under torchrun, all processes train one run; if
    torchrun restarts them after a failure, they continue it.

    `start` is a run with the same model. Rows start from its rows of the same names. Its recipe
    with half of the epochs is used, unless another one is given.

    `progress` prints lines on stderr. `track` names trackers: tensorboard, wandb, mlflow. Ctrl-C
    saves the run and raises `KeyboardInterrupt`; with `stopped_by`, a function that returns the
    number of a received signal or 0, `Interrupted` is raised instead. `watch` is an earlier name
    of `callbacks`.
    """
    own = combined(callbacks if watch is None else watch, progress, track)
    settings = settings if isinstance(settings, str | Mapping) else list(settings)
    parent = start if isinstance(start, Run | None) else Run.open(start)
    if parent is not None and recipe is None:
        recipe = start_recipe(parent, model)
    plan = planned(data, model=model, recipe=recipe, settings=settings)
    # Report what is missing or taken before anything is read or written.
    if parent is not None:
        check_start(parent, plan)
    device = find_device(plan.hardware.device)
    check_engine(plan.hardware.engine, device)
    folder = new_folder(plan) if out is None else Path(out)
    if is_rank_zero() and not is_ours(folder):  # the others do not know the launcher's id
        check_new(folder)
    if out is None and may_restart():
        raise UsageError("torchrun may restart this training; give --out so that it can continue")
    given = {"--out": out, **plan.to_settings()}
    with join_processes(plan.hardware, given) as world, contextlib.ExitStack() as stack:
        own = own if world.is_rank_zero else Callbacks()

        def create() -> None:
            nonlocal folder, plan
            if not is_ours(folder):
                graph = read_graph(data, plan.data)
                if recipe is None:
                    plan = planned(data, model=model, settings=settings, graph=graph)
                for line in notes(graph):
                    own.on_message(line)
                if plan.training.average and not len(graph.valid):
                    raise RecipeError(
                        f"training.average needs valid triples; {graph.name} has none"
                    )
                check_weights(plan, graph)
                Shard.of(graph.n_entities, world)
                mesh = Mesh(world.rows.size, world.batch.size)
                needed = check_memory(plan, graph, device, mesh)
                own.on_message(_describe(plan, graph, needed.peak))
                if out is None:
                    folder = new_folder(plan)  # another training may have taken the name
                need_bytes(existing_parent(folder), mesh.rows * needed.saved)
                with torch_settings(plan.hardware):
                    begin(folder, plan, graph, parent, own.on_message)
            stack.enter_context(Run.open(folder).locked())

        with in_background(first_product, plan.hardware):
            world.on_rank_zero(create)
        folder = Path(world.broadcast(str(folder)))
        run = Run.open(folder, writes=world.is_rank_zero)
        with interruptible(stopped_by) as stop:
            run_training(run, own, stop, world=world)
    return run


def resume(
    folder: str | Path,
    *,
    mesh: str | None = None,
    settings: Iterable[str] | Mapping[str, object] = (),
    progress: bool = False,
    track: str | Sequence[str] = (),
    callbacks: Callbacks | Sequence[Callbacks] = (),
    stopped_by: Callable[[], int] | None = None,
) -> Run:
    """Continue a run in the processes that were started; a finished run does not change.

    Without `mesh`, the mesh of the recipe is used if its number of processes is the same.
    `settings` change the recipe: how long to train, and the hardware. With them, a finished run
    also continues. The other arguments are those of `train`.
    """
    own, opened = combined(callbacks, progress, track), Run.open(folder)
    run = opened.with_settings(settings)
    was_finished, status = opened.finished, opened.status
    if was_finished and run.recipe == opened.recipe:
        return run
    opened.need_trainable("resume the runs behind it")
    hardware, size = run.recipe.hardware, n_processes()
    find_device(hardware.device)  # report a missing one before anything is written
    changed = hardware.mesh is not None and Mesh.read(hardware.mesh).size != size
    if mesh is None and not changed:
        mesh = hardware.mesh
    given = {"RUN": folder, **run.recipe.to_settings(), "--mesh": mesh}
    chosen = replace(hardware, mesh=mesh)
    with join_processes(chosen, given) as world, contextlib.ExitStack() as stack:
        run = replace(run, writes=world.is_rank_zero)

        def lock() -> None:
            stack.enter_context(run.locked())
            if run.recipe != opened.recipe:
                run.write_recipe()

        world.on_rank_zero(lock)
        own = own if world.is_rank_zero else Callbacks()
        if was_finished:
            own.on_message(_difference(opened, run.recipe, status.get("epoch", 0)))
        if changed:
            now = Mesh.of(mesh, size)
            own.on_message(f"the recipe's mesh is {hardware.mesh}; training uses {now}")
        with interruptible(stopped_by) as stop:
            run_training(run, own, stop, world=world)
    return run


def _difference(run: Run, recipe: Recipe, epoch: int) -> str:
    """How a run that finished after `epoch` and continues differs from one with the new recipe."""
    earlier = run.recipe
    if (
        epoch < earlier.training.epochs
        and recipe.evaluation.patience <= earlier.evaluation.patience
    ):
        return (
            f"training stopped at epoch {epoch}, as the validation MRR did not improve; "
            "raise evaluation.patience to continue"
        )
    differences = []
    if recipe.optimizer.schedule == "cosine" and recipe.training.epochs > epoch:
        differences.append("the learning rate had already followed the cosine to its end")
    if len(run.graph.valid) and epoch % recipe.evaluation.every:
        differences.append(f"valid was also ranked after epoch {epoch}, which counts for patience")
    what = "; ".join(differences) or "none"
    return f"difference from a run that was started with these settings: {what}"


def combined(
    callbacks: Callbacks | Sequence[Callbacks], progress: bool, track: str | Sequence[str]
) -> Callbacks:
    """One object that calls these callbacks, those of `progress` and the trackers."""
    given = [callbacks] if isinstance(callbacks, Callbacks) else list(callbacks)
    names = [track] if isinstance(track, str) else track
    return AllCallbacks([*given, *[ProgressLines()] * progress, *map(tracker, names)])


def planned(
    data: Any,
    *,
    model: str | None = None,
    recipe: Recipe | str | Path | None = None,
    settings: Iterable[str] | Mapping[str, object] = (),
    graph: Graph | None = None,
) -> Recipe:
    """The complete, checked recipe of these arguments.

    Without `recipe`, it has the defaults of the model and, with `graph`, sizes that fit the graph
    and the device.
    """
    check_source(data)
    name = source_name(data)
    where, tables = "recipe", {}
    if isinstance(recipe, Recipe):
        tables = recipe.to_tables()
    elif recipe is not None:
        where, tables = str(recipe), load_tables(find_recipe(recipe))
    given = parse_settings(settings)
    written = [given] if isinstance(recipe, Recipe) else [tables, given]
    if recipe is None:
        written = [{**given, "loss": {}}]  # the device decides whether queries are grouped
        tables = _default_tables(model, given, graph)
    if (other := given.get("data", {}).get("name", name)) != name:
        raise UsageError(f"data.name is {other!r} in the settings, but DATA is {name!r}")
    tables = merged(merged(tables, given), {"data": {"name": name}})
    if model is not None:
        if (other := given.get("model", {}).get("name", model)) != model:
            raise UsageError(f"model.name is {other!r} in the settings, but the model is {model!r}")
        tables = merged(tables, {"model": {"name": model}})
    return Recipe.from_tables(tables, where, written)


def _default_tables(
    model: str | None,
    given: Mapping[str, Mapping[str, Any]],
    graph: Graph | None,
) -> dict[str, Any]:
    """The default settings of the model that is given, or of ComplEx."""
    name = model or given.get("model", {}).get("name") or Recipe().model.name
    if not isinstance(name, str) or name.lower() not in MODELS:
        return {}  # the recipe's own check names the models
    settings = model_settings(name.lower())
    if graph is None:
        return parse_settings(settings)
    device = find_device(given.get("hardware", {}).get("device") or "auto")
    pairs = {
        f"{part}.{key}": value for part, table in given.items() for key, value in table.items()
    }
    return default_recipe(name.lower(), graph, device, pairs).to_tables()


def notes(graph: Graph) -> list[str]:
    """The notes of a graph, and one if valid is too small to select well."""
    n = len(graph.valid)
    few = f"{graph.name}: valid has only {counted(n, 'triple')}: too few to choose the best epoch"
    return [*graph.notes, *[few] * (0 < n < _FEW_VALID)]


def _describe(recipe: Recipe, graph: Graph, peak: int) -> str:
    """One line about the size of a training, and one if it does not use all negatives."""
    line = (
        f"{recipe.model.name}, dim {recipe.model.dim}, on {counted(graph.n_entities, 'entity')}, "
        f"{counted(graph.n_relations, 'relation')} and {counted(len(graph.train), 'triple')}: "
        f"{max(1, peak / 2**20):,.0f} MiB, at most {counted(recipe.training.epochs, 'epoch')}"
    )
    if recipe.loss.negatives != "all":
        line += (
            f"\n{recipe.loss.n_negatives:,} entities per batch are negatives; "
            "for all: --set loss.negatives=all --set loss.n_negatives="
        )
    return line
