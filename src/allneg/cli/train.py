"""`allneg train`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import (
    device_option,
    json_option,
    mesh_option,
    quiet_option,
    set_option,
    with_flags,
)


@click.command()
@click.argument("data")
@click.option("--model", metavar="NAME", help="complex, distmult, simple, transe or rotate.")
@click.option("--recipe", type=click.Path(path_type=Path), help="A TOML file of settings.")
@set_option
@click.option("--seed", type=int, help="Of first values, shuffling and sampling.")
@device_option
@mesh_option
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder, to be made.")
@click.option("--print-recipe", is_flag=True, help="Print the whole recipe and stop.")
@json_option
@quiet_option
def command(
    data: str,
    model: str | None,
    recipe: Path | None,
    settings: tuple[str, ...],
    seed: int | None,
    device: str | None,
    mesh: str | None,
    out: Path | None,
    print_recipe: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train a model on DATA: the name of a known set (`allneg data list`) or a path.

    The run's folder holds the recipe, the weights, the metrics and the report. Many processes
    train one run: `torchrun --nproc-per-node 4 -m allneg train …`.
    """
    from allneg.cli.progress import watched
    from allneg.cli.reports import print_report
    from allneg.cli.say import SCHEMA_VERSION, json_document, speaks
    from allneg.training.train import planned, train

    chosen = with_flags(settings, device=device, seed=seed, mesh=mesh)
    plan = planned(data, model=model, recipe=recipe, settings=chosen)
    if print_recipe:
        if as_json:
            json_document({"schema_version": SCHEMA_VERSION, "recipe": plan.to_tables()})
        else:
            click.echo(plan.to_toml(), nl=False)
        return
    with watched(quiet) as (watch, stopped_by):
        run = train(data, recipe=plan, out=out, watch=watch, stopped_by=stopped_by)
    if speaks():
        print_report(run, as_json)
