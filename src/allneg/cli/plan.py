"""`allneg plan`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import device_option, json_option, set_option, with_flags
from allneg.cli.say import SCHEMA_VERSION, json_document, table


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@set_option
@device_option
@json_option
def command(recipe: Path, settings: tuple[str, ...], device: str | None, as_json: bool) -> None:
    """Print the memory that RECIPE will take, before anything is allocated."""
    from allneg.graph import read_graph
    from allneg.hardware import find_device
    from allneg.recipe import Recipe
    from allneg.training.plan import plan

    chosen = Recipe.read(recipe).with_settings(with_flags(settings, device=device))
    graph = read_graph(chosen.data.name, chosen.data)
    made = plan(chosen, graph, find_device(chosen.hardware.device))
    if as_json:
        json_document({"schema_version": SCHEMA_VERSION, **made.to_json()})
        return
    rows = [
        (phase, name, f"{size / 2**20:,.1f}")
        for phase in ("host", "kept", "training", "ranking")
        for name, size in getattr(made, phase).items()
    ]
    title = f"{chosen.model.name} on {graph.name}, {made.device}"
    table(title, ("when", "what", "MiB#"), [*rows, ("peak", "", f"{made.peak / 2**20:,.1f}")])
    print(made.path)
