"""`allneg train` and `allneg resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import (
    PATH,
    device_option,
    json_option,
    mesh_option,
    parent_option,
    quiet_option,
    run_argument,
    set_option,
    with_flags,
)
from allneg.cli.output import is_rank_zero, json_document, note

if TYPE_CHECKING:
    from allneg.recipe import Recipe

# What it means that a setting has no value.
UNSET = {
    ("loss", "n_negatives"): "no sample; every entity is a negative",
    ("training", "micro_batch"): "the whole batch at once",
    ("hardware", "threads"): "as many as PyTorch chooses",
    ("hardware", "mesh"): "as many shards of rows as there are processes",
}


@click.command()
@click.argument("data")
@click.option("--model", metavar="NAME", help="Such as complex; a wrong name lists all models.")
@click.option(
    "--recipe", metavar="FILE|NAME", help="A file, or a shipped recipe such as wn18rr/rotate."
)
@set_option
@click.option("--seed", type=int, help="Seed of initial values, shuffling and sampling.")
@device_option
@mesh_option
@click.option("--out", type=PATH, help="The folder of the run; it must not exist.")
@click.option("--print-recipe", is_flag=True, help="Print the whole recipe and exit.")
@json_option
@quiet_option
@parent_option
def train_command(
    data: str,
    model: str | None,
    recipe: str | None,
    settings: tuple[str, ...],
    seed: int | None,
    device: str | None,
    mesh: str | None,
    out: Path | None,
    print_recipe: bool,
    as_json: bool,
    quiet: bool,
    parent: int | None,
) -> None:
    """Train a model on DATA: the name of a known graph (`allneg data list`) or a path.

    The folder of the run holds the recipe, the weights, the metrics and the report. To train in
    several processes: `torchrun --nproc-per-node 4 -m allneg train …`.
    """
    from allneg.cli.progress import training_progress
    from allneg.cli.reports import print_run
    from allneg.training.train import planned, train

    flags = {"hardware.device": device, "training.seed": seed, "hardware.mesh": mesh}
    plan = planned(data, model=model, recipe=recipe, settings=with_flags(settings, flags))
    if print_recipe:
        if as_json:
            json_document({"recipe": plan.to_tables()})
        else:
            click.echo(_with_unset(plan), nl=False)
        return
    with training_progress(quiet, parent) as (callbacks, stopped_by):
        run = train(data, recipe=plan, out=out, callbacks=callbacks, stopped_by=stopped_by)
    if not is_rank_zero():
        return
    print_run(run, as_json)
    is_test = run.has_report and run.report.protocol["split"] == "test"
    if is_test and len(run.graph.valid) and not quiet:
        note(
            "valid and test MRR differ: they rank other queries, and the ranks of valid are "
            "filtered by train and valid alone"
        )


@click.command()
@run_argument
@mesh_option
@json_option
@quiet_option
@parent_option
def resume_command(
    run: Path, mesh: str | None, as_json: bool, quiet: bool, parent: int | None
) -> None:
    """Continue RUN from its last checkpoint.

    The result is bit-identical to that of an uninterrupted run.
    """
    from allneg.cli.progress import training_progress
    from allneg.cli.reports import print_run
    from allneg.runs import Run
    from allneg.training.train import resume

    opened = Run.open(run)
    if not opened.finished:
        with training_progress(quiet, parent) as (callbacks, stopped_by):
            resume(run, mesh=mesh, callbacks=callbacks, stopped_by=stopped_by)
    elif is_rank_zero():
        note("the run is finished already")
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
