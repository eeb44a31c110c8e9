"""Options that several commands share."""

import math
from collections.abc import Mapping
from pathlib import Path

import click

PATH = click.Path(path_type=Path)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PART.FIELD=VALUE",
    help="Change a setting of the recipe, such as model.dim=200. May be repeated.",
)
device_option = click.option(
    "--device", metavar="NAME", help="Device: auto, cpu, cuda, cuda:1 or mps."
)
mesh_option = click.option(
    "--mesh", metavar="rows=N,batch=M", help="Grid of the processes that torchrun starts."
)
split_option = click.option(
    "--split",
    type=click.Choice(["train", "valid", "test"], case_sensitive=False),
    default="test",
    show_default=True,
    help="The split to rank.",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
parent_option = click.option(
    "--worker-of", "parent", type=int, hidden=True, help="Stop when this process has ended."
)
run_argument = click.argument("run", type=PATH)


def a_number(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """Refuse nan, which a `FloatRange` accepts."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number; write one, such as 1500")
    return value


def with_flags(settings: tuple[str, ...], flags: Mapping[str, object]) -> list[str]:
    """The settings, overridden by the flags that were given: {"hardware.device": "cpu"}."""
    return [*settings, *(f"{name}={value}" for name, value in flags.items() if value is not None)]
