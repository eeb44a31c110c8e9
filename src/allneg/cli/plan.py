"""`allneg plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import PATH, device_option, json_option, set_option, with_flags
from allneg.cli.output import json_document, table
from allneg.errors import UsageError, close_names

if TYPE_CHECKING:
    from allneg.recipe import Recipe
    from allneg.training.counts import Counts
    from allneg.training.memory import MemoryPlan

_SIZE = click.IntRange(1, 10**15)  # of a graph; no disk holds more
_GPU_BYTES = {"h200": 141 * 10**9, "a100": 80 * 10**9}  # to plan for a GPU that is not here


@click.command()
@click.argument("recipe", type=PATH)
@set_option
@device_option
@click.option("--mesh", metavar="rows=N,batch=M", help="Plan for several devices.")
@click.option("--on", "gpu", metavar="NAME", help="Plan for an h200 or a100 that is not here.")
@click.option("--entities", type=_SIZE, help="With --relations and --triples: plan without data.")
@click.option("--relations", type=_SIZE, help="Number of relations.")
@click.option("--triples", type=_SIZE, help="Number of triples in train.")
@json_option
def plan_command(
    recipe: Path,
    settings: tuple[str, ...],
    device: str | None,
    mesh: str | None,
    gpu: str | None,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    as_json: bool,
) -> None:
    """Print the memory that RECIPE needs on each device, before anything is allocated."""
    import torch

    from allneg.hardware import find_device, memory
    from allneg.mesh import Mesh
    from allneg.recipe import Recipe
    from allneg.recipes import find_recipe
    from allneg.training.memory import plan

    flags = {"hardware.device": device, "hardware.mesh": mesh}
    chosen = Recipe.read(find_recipe(recipe)).with_settings(with_flags(settings, flags))
    counts, name = _counts(chosen, entities, relations, triples)
    grid = Mesh.read(chosen.hardware.mesh) if chosen.hardware.mesh is not None else Mesh()
    if gpu is not None and gpu not in _GPU_BYTES:
        close, known = close_names(gpu, _GPU_BYTES), ", ".join(_GPU_BYTES)
        raise UsageError(f"--on {gpu}: unknown{close}; known: {known}")
    if chosen.hardware.device == "auto" and (gpu or chosen.hardware.mesh):
        planned, gpu = torch.device("cuda"), gpu or "h200"  # it need not be here
        available: int | None = _GPU_BYTES[gpu]
    else:
        planned = find_device(chosen.hardware.device)
        available = memory(planned)
    made = plan(chosen, counts, planned, grid)
    if as_json:
        fits = None if available is None else made.peak <= available
        more = {"mesh": str(grid), "available": available, "fits": fits}
        json_document({**made.to_json(), **more})
        return
    rows = [
        (phase, what, f"{size / 2**20:,.1f}")
        for phase in ("host", "kept", "training", "ranking")
        for what, size in getattr(made, phase).items()
    ]
    rows.append(("peak", "", f"{made.peak / 2**20:,.1f}"))
    title = f"{chosen.model.name} on {name}, {made.device}"
    if grid.size > 1:
        title += f", each of {grid}"
    table(title, ("when", "what", "MiB#"), rows)
    print(made.path)
    if available is not None:
        print(f"{gpu or made.device} has {available / 2**20:,.1f} MiB: {_verdict(made, available)}")


def _counts(
    recipe: Recipe, entities: int | None, relations: int | None, triples: int | None
) -> tuple[Counts, str]:
    """The size of the graph, and its name."""
    from allneg.graph import read_graph
    from allneg.training.counts import Counts

    if entities is not None and relations is not None and triples is not None:
        others = max(1, triples // 1000)  # a typical size of valid and test
        return Counts(entities, relations, triples, others, others), f"{entities:,} entities"
    if (entities, relations, triples) != (None, None, None):
        raise UsageError("give all of --entities, --relations and --triples, or none of them")
    graph = read_graph(recipe.data.name, recipe.data)
    return Counts.of(graph), graph.name


def _verdict(made: MemoryPlan, available: int) -> str:
    """Whether the plan fits, and if not, what to lower."""
    if made.peak <= available:
        return "fits"
    if sum(made.kept.values()) > available:
        return "does not fit; lower model.dim"
    phases = {"training": "training.micro_batch or loss.block", "ranking": "evaluation.block"}
    largest = max(phases, key=lambda phase: sum(getattr(made, phase).values()))
    return f"does not fit; lower {phases[largest]}"
