"""`allneg plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import a_number, device_option, json_option, set_option, with_flags
from allneg.cli.say import SCHEMA_VERSION, json_document, table
from allneg.errors import RecipeError, close_names

if TYPE_CHECKING:
    from allneg.recipe import Recipe
    from allneg.training.cost import Cost, Counts, Rates
    from allneg.training.memory import MemoryPlan

_SAMPLE = 1000  # shared negatives that the exact softmax is compared with
_GPU = "h200"  # where a mesh is asked for and no device is named
_SIZE = click.IntRange(1, 10**15)  # of a graph; more fits on no disk


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@set_option
@device_option
@click.option("--mesh", metavar="rows=N,batch=M", help="MemoryPlan for so many devices.")
@click.option("--on", "gpu", metavar="NAME", help="Time on h200 or a100, by their stated rates.")
@click.option(
    "--price", type=click.FloatRange(0, max=1e9), callback=a_number, help="Of a device, an hour."
)
@click.option("--entities", type=_SIZE, help="With the two below: plan without data.")
@click.option("--relations", type=_SIZE, help="How many the graph has.")
@click.option("--triples", type=_SIZE, help="How many there are to train on.")
@json_option
def command(
    recipe: Path,
    settings: tuple[str, ...],
    device: str | None,
    mesh: str | None,
    gpu: str | None,
    price: float | None,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    as_json: bool,
) -> None:
    """Print the memory that RECIPE will take, before anything is allocated.

    With --on or --mesh, also the time and the price of an epoch, by a count of products, memory
    traffic and bytes on the wire (docs/many-gpus.md).
    """
    import torch

    from allneg.hardware import find_device, memory
    from allneg.mesh import Mesh
    from allneg.recipe import Recipe
    from allneg.recipes import find_recipe
    from allneg.training.cost import cost, sampled
    from allneg.training.memory import plan

    flags = with_flags(settings, device=device, mesh=mesh)
    chosen = Recipe.read(find_recipe(recipe)).with_settings(flags)
    counts, name = _counted(chosen, entities, relations, triples)
    grid = Mesh.read(chosen.hardware.mesh) if chosen.hardware.mesh is not None else Mesh()
    timed = gpu is not None or chosen.hardware.mesh is not None
    if price is not None and not timed:
        raise RecipeError("--price is of an hour: say --on or --mesh, too, whose time is reckoned")
    # A device that is planned for need not be here.
    away = timed and chosen.hardware.device == "auto"
    place = torch.device("cuda") if away else find_device(chosen.hardware.device)
    made, costs = plan(chosen, counts, place, grid), {}
    there_is = memory(place) if not away else None
    if timed:
        rates = _rates(gpu or _GPU, price)
        there_is = rates.bytes if away else there_is
        costs["exact"] = cost(chosen, counts, grid, rates)
        if chosen.loss.negatives == "all":
            costs["sampled"] = cost(sampled(chosen, _SAMPLE), counts, grid, rates)
    if as_json:
        fits = None if there_is is None else made.peak <= there_is
        more = {"available": there_is, "fits": fits}
        said = {name: each.to_json() for name, each in costs.items()}
        json_document({"schema_version": SCHEMA_VERSION, **made.to_json(), **more, **said})
        return
    _show_memory(f"{chosen.model.name} on {name}, {made.device}", made, there_is)
    if costs:
        _show_cost(f"{grid} of {gpu or _GPU}", costs)


def _counted(
    recipe: Recipe, entities: int | None, relations: int | None, triples: int | None
) -> tuple[Counts, str]:
    """The size of the graph and its name; without data where its size is said."""
    from allneg.graph import read_graph
    from allneg.training.cost import Counts

    if entities is not None and relations is not None and triples is not None:
        some = max(1, triples // 1000)  # as a plan's valid and test, which it does not ask for
        return Counts(entities, relations, triples, some, some), f"{entities:,} entities"
    if (entities, relations, triples) != (None, None, None):
        raise RecipeError("say all of --entities, --relations and --triples, or none of them")
    graph = read_graph(recipe.data.name, recipe.data)
    return Counts.of(graph), graph.name


def _rates(name: str, price: float | None) -> Rates:
    from allneg.training.cost import RATES

    if name not in RATES:
        known = ", ".join(RATES)
        raise RecipeError(
            f"--on {name}: nothing is known of it{close_names(name, RATES)}; there is {known}"
        )
    return RATES[name] if price is None else replace(RATES[name], price=price)


def _show_memory(title: str, made: MemoryPlan, there_is: int | None) -> None:
    rows = [
        (phase, name, f"{size / 2**20:,.1f}")
        for phase in ("host", "kept", "training", "ranking")
        for name, size in getattr(made, phase).items()
    ]
    table(title, ("when", "what", "MiB#"), [*rows, ("peak", "", f"{made.peak / 2**20:,.1f}")])
    print(made.path)
    if there_is is not None:
        print(_comparison(made, there_is))


def _comparison(made: MemoryPlan, there_is: int) -> str:
    """Whether the plan fits into the memory there is, and what to lower if not."""
    said = f"{made.device} has {there_is / 2**20:,.1f} MiB: "
    if made.peak <= there_is:
        return said + "fits"
    if sum(made.kept.values()) > there_is:
        return said + "does not fit; lower model.dim"
    phases = {"training": "training.micro_batch or loss.block", "ranking": "evaluation.block"}
    largest = max(phases, key=lambda phase: sum(getattr(made, phase).values()))
    return said + f"does not fit; lower {phases[largest]}"


def _show_cost(title: str, costs: dict[str, Cost]) -> None:
    exact = costs["exact"]
    amounts = {
        "products": f"{exact.operations / 1e9:,.1f} G operations",
        "memory": f"{exact.traffic / 2**20:,.1f} MiB",
        "rows' wire": f"{exact.rows_wire / 2**20:,.1f} MiB",
        "batch's wire": f"{exact.batch_wire / 2**20:,.1f} MiB",
    }
    rows = [
        (name, amounts.get(name, ""), f"{took * 1e3:,.3f}", f"{took / exact.step_seconds:.0%}")
        for name, took in exact.seconds.items()
    ]
    table(f"a step, each device of {title}", ("what", "how much#", "ms#", "share#"), rows)
    print(
        f"an epoch: {exact.steps:,} steps, {exact.epoch_seconds:,.0f} seconds, "
        f"{exact.epoch_price:,.2f} at {exact.price / exact.mesh.size:g} a device and hour"
    )
    if "sampled" in costs:
        times = exact.step_seconds / costs["sampled"].step_seconds
        print(
            f"against {_SAMPLE:,} shared negatives a step would be {times:.1f} times as fast: "
            f"sampling pays if it needs fewer than {times:.1f} times the epochs"
        )
