"""`allneg train`, `allneg resume` and `allneg plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli import options
from allneg.cli.output import is_rank_zero, json_document, table
from allneg.terminal import note

if TYPE_CHECKING:
    from allneg.recipe import Recipe

_SIZE = click.IntRange(1, 10**15)  # of a graph; no disk holds more
# What it means that a setting has no value.
UNSET = {
    ("data", "weight"): "every triple counts the same",
    ("data", "header"): "found out for each file",
    ("data", "keep_relations"): "all of them",
    ("model", "start"): "rows begin at random",
    ("model", "features"): "rows have no features",
    ("loss", "n_negatives"): "no sample; every entity is a negative",
    ("training", "micro_batch"): "the whole batch at once",
    ("hardware", "threads"): "as many as PyTorch chooses",
    ("hardware", "mesh"): "as many shards of rows as there are processes",
}


@click.command()
@click.argument("data")
@options.model
@options.recipe
@click.option("--from", "start", type=options.PATH, metavar="RUN", help="Start from its weights.")
@options.keep
@options.weight
@options.settings
@options.seed
@options.device_setting
@options.mesh
@click.option("--out", type=options.PATH, help="The folder of the run; it must not exist.")
@options.track
@click.option("--print-recipe", is_flag=True, help="Print the whole recipe and exit.")
@options.as_json
@options.quiet
@options.parent
def train_command(
    data: str,
    model: str | None,
    recipe: str | None,
    start: Path | None,
    keep: str | None,
    weight: str | None,
    settings: tuple[str, ...],
    seed: int | None,
    device: str | None,
    mesh: str | None,
    out: Path | None,
    track: tuple[str, ...],
    print_recipe: bool,
    as_json: bool,
    quiet: bool,
    parent: int | None,
) -> None:
    """Train a model on DATA: the name of a known dataset (`allneg data list`), a path or a URL.

    The folder of the run holds the recipe, the weights, the metrics and the report. To train in
    several processes: `torchrun --nproc-per-node 4 -m allneg train …`.
    """
    from allneg.cli.reports import print_run, training_progress
    from allneg.graph import read_graph
    from allneg.runs import Run
    from allneg.training.start import start_recipe
    from allneg.training.train import planned, train

    flags = {"hardware.device": device, "training.seed": seed, "hardware.mesh": mesh}
    flags |= {"data.keep_relations": keep, "data.weight": weight}
    given = options.with_flags(settings, flags)
    if print_recipe:
        base: Recipe | str | None = recipe
        if start is not None and recipe is None:
            base = start_recipe(Run.open(start), model)
        plan = planned(data, model=model, recipe=base, settings=given)
        if base is None:
            graph = read_graph(data, plan.data)
            plan = planned(data, model=model, settings=given, graph=graph)
        if as_json:
            json_document({"recipe": plan.to_tables()})
        else:
            click.echo(_with_unset(plan), nl=False)
        return
    with training_progress(quiet, parent) as (callbacks, stopped_by):
        run = train(
            data, model=model, recipe=recipe, settings=given, start=start, out=out, track=track,
            callbacks=callbacks, stopped_by=stopped_by,
        )  # fmt: skip
    if not is_rank_zero():
        return
    print_run(run, as_json)


@click.command()
@options.run
@options.settings
@options.mesh
@options.track
@options.as_json
@options.quiet
@options.parent
def resume_command(
    run: Path,
    settings: tuple[str, ...],
    mesh: str | None,
    track: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    parent: int | None,
) -> None:
    """Continue RUN from its last checkpoint.

    The result is bit-identical to that of an uninterrupted run. --set changes how long to train
    (training.epochs, evaluation.patience) and the hardware; other settings cannot change. With
    --set, a finished run continues, and a line on stderr explains how it differs from a run that
    had these settings from the start.
    """
    from allneg.cli.reports import print_run, training_progress
    from allneg.runs import Run
    from allneg.training.train import resume

    opened = Run.open(run)
    if opened.finished and opened.with_settings(settings).recipe == opened.recipe:
        if is_rank_zero():
            note("the run is already finished")
    else:
        with training_progress(quiet, parent) as (callbacks, stopped_by):
            opened = resume(
                run, mesh=mesh, settings=settings, track=track, callbacks=callbacks,
                stopped_by=stopped_by,
            )  # fmt: skip
    if is_rank_zero():
        print_run(opened, as_json)


def _with_unset(recipe: Recipe) -> str:
    """The recipe as TOML, with a comment for every setting that has no value."""
    parts = []
    for text in recipe.to_toml().rstrip("\n").split("\n\n"):
        part = text[1 : text.index("]")]
        unset = [
            f"# {field} = …  unset: {meaning}"
            for (name, field), meaning in UNSET.items()
            if name == part and getattr(getattr(recipe, part), field) is None
        ]
        parts.append("\n".join([text, *unset]) + "\n")
    return "\n".join(parts)


@click.command()
@click.argument("recipe", type=options.PATH)
@options.settings
@options.device_setting
@options.mesh_option("Plan for several devices.")
@click.option("--on", "gpu", metavar="NAME", help="Plan for this GPU: h200 or a100.")
@click.option("--entities", type=_SIZE, help="With --relations and --triples: plan without data.")
@click.option("--relations", type=_SIZE, help="Number of relations.")
@click.option("--triples", type=_SIZE, help="Number of triples in train.")
@options.as_json
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
    """Print the memory that RECIPE needs on each device, without training."""
    from allneg.recipe import Recipe
    from allneg.recipes import find_recipe
    from allneg.training.plan import plan

    flags = {"hardware.device": device, "hardware.mesh": mesh}
    chosen = Recipe.read(find_recipe(recipe)).with_settings(options.with_flags(settings, flags))
    made = plan(chosen, gpu=gpu, entities=entities, relations=relations, triples=triples)
    if as_json:
        json_document(made.to_json())
        return
    rows = [
        (phase, what, f"{size / 2**20:,.1f}")
        for phase in ("host", "kept", "training", "ranking")
        for what, size in getattr(made, phase).items()
    ]
    rows.append(("peak", "", f"{made.peak / 2**20:,.1f}"))
    shared = f", each of {made.mesh}" if made.mesh.size > 1 else ""
    name = f"{entities:,} entities" if entities else Path(chosen.data.name).name
    title = f"{chosen.model.name} on {name}, {made.device}{shared}"
    table(title, ("when", "what", "MiB#"), rows)
    print(made.path)
    if made.available is not None:
        lower = made.too_large(made.available)
        verdict = f"does not fit; lower {lower}" if lower else "fits"
        print(f"{made.gpu or made.device} has {made.available / 2**20:,.1f} MiB: {verdict}")
