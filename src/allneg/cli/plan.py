"""`allneg plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import device_option, json_option, set_option, with_flags
from allneg.cli.say import SCHEMA_VERSION, json_document, table

if TYPE_CHECKING:
    from allneg.training.plan import Plan


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@set_option
@device_option
@json_option
def command(recipe: Path, settings: tuple[str, ...], device: str | None, as_json: bool) -> None:
    """Print the memory that RECIPE will take, before anything is allocated."""
    from allneg.graph import read_graph
    from allneg.hardware import find_device, memory
    from allneg.recipe import Recipe
    from allneg.training.plan import plan

    chosen = Recipe.read(recipe).with_settings(with_flags(settings, device=device))
    graph = read_graph(chosen.data.name, chosen.data)
    device_here = find_device(chosen.hardware.device)
    made, there_is = plan(chosen, graph, device_here), memory(device_here)
    if as_json:
        fits = None if there_is is None else made.peak <= there_is
        more = {"available": there_is, "fits": fits}
        json_document({"schema_version": SCHEMA_VERSION, **made.to_json(), **more})
        return
    rows = [
        (phase, name, f"{size / 2**20:,.1f}")
        for phase in ("kept", "training", "ranking")
        for name, size in getattr(made, phase).items()
    ]
    title = f"{chosen.model.name} on {graph.name}, {made.device}"
    table(title, ("when", "what", "MiB#"), [*rows, ("peak", "", f"{made.peak / 2**20:,.1f}")])
    print(made.path)
    if there_is is not None:
        print(_comparison(made, there_is))


def _comparison(made: Plan, there_is: int) -> str:
    """Whether the plan fits into the memory there is, and what to lower if not."""
    said = f"{made.device} has {there_is / 2**20:,.1f} MiB: "
    if made.peak <= there_is:
        return said + "fits"
    if sum(made.kept.values()) > there_is:
        return said + "does not fit; lower model.dim"
    phases = {"training": "training.micro_batch or loss.block", "ranking": "evaluation.block"}
    largest = max(phases, key=lambda phase: sum(getattr(made, phase).values()))
    return said + f"does not fit; lower {phases[largest]}"
