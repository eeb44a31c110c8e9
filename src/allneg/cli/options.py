"""Options that several commands share, by the names of their parameters."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from allneg.errors import printable

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path, readable=False)  # commands report what they cannot read

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
settings = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PART.FIELD=VALUE",
    help="Change a setting of the recipe, such as model.dim=200. May be repeated.",
)
model = click.option(
    "--model", metavar="NAME", help="Model, such as complex; a wrong name lists all."
)
recipe = click.option(
    "--recipe", metavar="FILE|NAME", help="A file, or a shipped recipe such as wn18rr/rotate."
)
seed = click.option("--seed", type=int, help="Seed of initial values, shuffling and sampling.")
keep = click.option(
    "--keep", metavar="RELATIONS", help="Read only these relations of DATA, such as P31,P279."
)
weight = click.option("--weight", metavar="COLUMN", help="Column with the weights of triples.")
_DEVICES = "auto, cpu, cuda, cuda:1 or mps."
device = click.option("--device", metavar="NAME", default="auto", help=_DEVICES)
# For commands that train: the default is the setting of the recipe.
device_setting = click.option("--device", metavar="NAME", help=_DEVICES)


def _check_mesh(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    from allneg.recipe import Mesh

    if text is not None:
        Mesh.read(text)
    return text


def mesh_option(about: str) -> Callable[[F], F]:
    form = "rows=N,batch=M"
    return click.option("--mesh", metavar=form, callback=_check_mesh, help=about)


mesh = mesh_option("How the processes of torchrun share the work.")
split = click.option(
    "--split",
    type=click.Choice(["train", "valid", "test"], case_sensitive=False),
    default="test",
    show_default=True,
    help="Split to rank.",
)
track = click.option(
    "--track",
    multiple=True,
    metavar="NAME",
    help="Also send metrics to tensorboard, wandb or mlflow. May be repeated.",
)


def _once(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | None:
    if len(given) > 1:
        found = " and ".join(map(printable, given))
        raise click.UsageError(f"give {option.opts[0]} once; found {found}")
    return given[0] if given else None


within = click.option(
    "--within",
    multiple=True,
    callback=_once,
    metavar="FILE|seen|type=R:O",
    help="Restrict the answers to the entities in a file, to those that train has on this side of "
    "the relation, or to those with relation R to entity O in train.",
)


def search(command: F) -> F:
    """How questions are answered."""
    norms, scores = click.Choice(["product", "minimum"]), click.Choice(["calibrated", "softmax"])
    command = click.option("--facts", is_flag=True, help="Treat known facts as certain.")(command)
    command = click.option(
        "--scores", type=scores, help="Default: calibrated if there is valid, else softmax."
    )(command)
    command = click.option(
        "--norm",
        type=norms,
        default="product",
        show_default=True,
        help="How to combine the probabilities of facts.",
    )(command)
    return click.option(
        "--beam",
        type=click.IntRange(1),
        default=64,
        show_default=True,
        help="Number of entities to follow per variable.",
    )(command)


def top(what: str, default: int) -> Callable[[F], F]:
    number = click.IntRange(1)
    about = f"Number of {what}."
    return click.option("--top", type=number, default=default, show_default=True, help=about)


quiet = click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
parent = click.option(
    "--worker-of", "parent", type=int, hidden=True, help="Stop when this process has ended."
)
run = click.argument("run", type=PATH)


def _local(ctx: click.Context, argument: click.Parameter, path: Path) -> Path:
    if not str(path).startswith("hf:"):
        return path
    from allneg.hub import local_folder

    return local_folder(path)


# For commands that only read: hf:user/name is a run on the Hugging Face Hub.
any_run = click.argument("run", type=PATH, callback=_local)


def with_flags(settings: tuple[str, ...], flags: Mapping[str, object]) -> list[str]:
    """The settings, overridden by the flags that were given: {"hardware.device": "cpu"}."""
    return [
        *settings,
        *(f"{name}={_toml(value)}" for name, value in flags.items() if value is not None),
    ]


def _toml(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else value
