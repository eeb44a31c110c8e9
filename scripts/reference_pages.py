"""Write docs/commands.md from the help of the commands, and docs/settings.md from the recipe.

python scripts/reference_pages.py
"""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from api_page import fields_of

from allneg.cli import allneg as cli
from allneg.recipe.parts import PARTS, registered
from allneg.recipe.text import toml_value

DOCS = Path(__file__).parents[1] / "docs"
COMMANDS = """# Commands

`scripts/reference_pages.py` writes this page from the help of the commands, which
`allneg COMMAND --help` prints. Results are printed on stdout, progress and errors on stderr.
[Reliability](reliability.md#errors-and-exit-codes) lists the exit codes.

To complete commands and options with the Tab key, add the line of your shell to a file:

- bash: `eval "$(_ALLNEG_COMPLETE=bash_source allneg)"` in `~/.bashrc`
- zsh: `eval "$(_ALLNEG_COMPLETE=zsh_source allneg)"` in `~/.zshrc`
- fish: `_ALLNEG_COMPLETE=fish_source allneg | source` in `~/.config/fish/completions/allneg.fish`
"""
SETTINGS = """# Settings

This page lists all settings of a recipe. `scripts/reference_pages.py` writes it from the source.
To change a setting, write `--set model.dim=200` on the command line, or
`settings={"model.dim": 200}` in Python. In a TOML file, `model.dim` is the key `dim` of the table
`[model]`. A default of `None` means that the setting has no value.

Without a recipe, `allneg train` replaces some of these defaults by values that fit the model, the
graph and the device: see [defaults](models.md#defaults). `allneg train DATA --print-recipe` prints
all values.
"""


def commands_page() -> str:
    return COMMANDS + "".join(_command(path, command) for path, command in _walk("allneg", cli))


def _walk(path: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, with the words that call it."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from _walk(f"{path} {name}", command)
        elif command is not None:
            yield f"{path} {name}", command


def _command(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    help_text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    rows = [
        _row(found[0], found[1])
        for param in command.params
        if isinstance(param, click.Option) and (found := param.get_help_record(context))
    ]
    table = "\n| option | meaning |\n|---|---|\n" + "".join(rows) if rows else ""
    return f"\n## {path}\n```\n{usage}\n```\n\n{help_text}\n{table}"


def _row(option: str, meaning: str) -> str:
    return f"| `{_cell(option)}` | {_cell(meaning)} |\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def settings_page() -> str:
    return SETTINGS + "".join(map(_settings, PARTS))


def _settings(part: str) -> str:
    """The settings of a part of a recipe: name, type, default and effect."""
    hints = typing.get_type_hints(PARTS[part])
    rows = []
    for name, item, comment in fields_of(PARTS[part]):
        setting, default = f"{part}.{name}", getattr(PARTS[part], name)
        kind = _code(ast.unparse(item.annotation))
        if choices := registered(setting) or _choices(hints[name]):
            kind = "one of " + ", ".join(map(_code, choices))
            comment = comment.partition("; a key of")[0]
        shown = _code("None" if default is None else toml_value(default))
        rows.append(f"| `{setting}` | {_cell(kind)} | {_cell(shown)} | {_cell(comment)} |\n")
    header = "| setting | type | default | effect |\n|---|---|---|---|\n"
    return f"\n## {part}\n{inspect.getdoc(PARTS[part]) or ''}\n\n{header}" + "".join(rows)


def _choices(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()


def _code(text: object) -> str:
    return f"`{text}`"


def main() -> None:
    (DOCS / "commands.md").write_text(commands_page())
    (DOCS / "settings.md").write_text(settings_page())


if __name__ == "__main__":
    main()
