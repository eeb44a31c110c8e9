"""`allneg train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import (
    device_option,
    json_option,
    mesh_option,
    parent_option,
    quiet_option,
    set_option,
    with_flags,
)

if TYPE_CHECKING:
    from allneg.recipe import Recipe

# What a setting without a value means.
UNSET = {
    ("loss", "n_negatives"): "no sample; every entity is a negative",
    ("training", "micro_batch"): "the whole batch at once",
    ("hardware", "threads"): "as many as PyTorch chooses",
    ("hardware", "mesh"): "as many shards of rows as there are processes",
}


@click.command()
@click.argument("data")
@click.option("--model", metavar="NAME", help="complex, distmult, simple, transe or rotate.")
@click.option(
    "--recipe",
    metavar="FILE|NAME",
    help="A TOML file, or a shipped recipe such as fb15k-237/complex-n3.",
)
@set_option
@click.option("--seed", type=int, help="Of first values, shuffling and sampling.")
@device_option
@mesh_option
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder, to be made.")
@click.option("--print-recipe", is_flag=True, help="Print the whole recipe and stop.")
@json_option
@quiet_option
@parent_option
def command(
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
    """Train a model on DATA: the name of a known set (`allneg data list`) or a path.

    The run's folder holds the recipe, the weights, the metrics and the report. Many processes
    train one run: `torchrun --nproc-per-node 4 -m allneg train …`.
    """
    from allneg.cli.progress import watched
    from allneg.cli.reports import print_report
    from allneg.cli.say import SCHEMA_VERSION, json_document, note, speaks
    from allneg.cli.workers import with_parent
    from allneg.training.train import planned, train

    chosen = with_flags(settings, device=device, seed=seed, mesh=mesh)
    plan = planned(data, model=model, recipe=recipe, settings=chosen)
    if print_recipe:
        if as_json:
            json_document({"schema_version": SCHEMA_VERSION, "recipe": plan.to_tables()})
        else:
            click.echo(_with_unset(plan), nl=False)
        return
    with watched(quiet) as (callbacks, stopped_by):
        run = train(
            data,
            recipe=plan,
            out=out,
            callbacks=callbacks,
            stopped_by=with_parent(stopped_by, parent),
        )
    if not speaks():
        return
    print_report(run, as_json)
    if (
        not quiet
        and run.has_report
        and run.report.protocol["split"] == "test"
        and len(run.graph.valid)
    ):
        note("valid's MRR is of other queries, filtered by train and valid alone: test's differs")


def _with_unset(recipe: Recipe) -> str:
    """The recipe as TOML, with a comment for every setting that is not set."""
    parts = []
    for part in recipe.to_toml().rstrip("\n").split("\n\n"):
        name = part[1 : part.index("]")]
        unset = [
            f"# {field} = …  unset: {meaning}"
            for (home, field), meaning in UNSET.items()
            if home == name and getattr(getattr(recipe, home), field) is None
        ]
        parts.append("\n".join([part, *unset]) + "\n")
    return "\n".join(parts)
