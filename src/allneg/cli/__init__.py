"""The command line: one thin function per command, one file per family of commands.

Commands import what they need when they run, so that `--help` does not wait for torch.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import time
from typing import Any, TextIO

import click

from allneg import __version__
from allneg.errors import AllnegError, ResourceError, close_names, printable

_SECONDS_FOR_THE_FIRST = 5.0
# Each command and the module that holds it; the text is what `allneg --help` says of it.
_COMMANDS = {
    "train": "Train a model on a knowledge graph.",
    "resume": "Go on with a run that was interrupted.",
    "search": "Try the settings of a space, each once.",
    "reproduce": "Set our numbers beside the paper's.",
    "evaluate": "Rank a split and print the report.",
    "predict": "Answer queries by name.",
    "compare": "Say whether one run ranks better than another.",
    "info": "Say what a run is and how far it came.",
    "verify": "Check every file of a run.",
    "export": "Join the shards of a run into one file or run.",
    "plan": "Print the memory a recipe will take.",
    "explore": "Open the explorer page on runs.",
    "data": "List, get and check knowledge graphs.",
}


class _Commands(click.Group):
    """Loads a command's module when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"allneg.cli.{name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            close = close_names(args[0].lower(), _COMMANDS)
            raise click.UsageError(f"No such command {printable(args[0])}{close}.", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            result: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output has gone (`allneg … | head`): end quietly.
            _print_nowhere()
            ctx.exit(0)
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _print_nowhere() -> None:
    """What is still to be printed would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Told(io.FileIO):
    """Stderr, where people are told things: when nobody reads them, the work goes on."""

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return len(data)


def _stderr() -> TextIO:
    if sys.stderr is None:  # closed (`2>&-`)
        return open(os.devnull, "w")
    if not isinstance(sys.stderr, io.TextIOWrapper) or sys.stderr is not sys.__stderr__:
        return sys.stderr  # somebody else listens
    told = io.BufferedWriter(_Told(sys.stderr.fileno(), "w", closefd=False))
    return io.TextIOWrapper(told, sys.stderr.encoding, "backslashreplace", line_buffering=True)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def allneg() -> None:
    """Knowledge-base completion with every entity as a negative."""


def main() -> None:
    """Run a command; a `AllnegError` becomes its message on stderr and its exit code."""
    if sys.stdout is None:  # the shell closed it (`>&-`)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = _stderr()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names may have letters that a terminal of another encoding has not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: object = allneg(prog_name="allneg", standalone_mode=False)
        if isinstance(code, int):  # how click gives an `Exit` of a command back
            sys.exit(code)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except click.Abort:
        sys.exit(130)
    except OSError as error:
        if error.filename is None:
            _print_nowhere()
            sys.stderr.write(f"allneg: the output cannot be written ({error.strerror})\n")
        else:
            sys.stderr.write(f"allneg: {error.filename}: cannot be used ({error.strerror})\n")
        sys.exit(ResourceError.exit_code)
    except AllnegError as problem:
        from allneg.cli.say import note

        # Most problems are the same in every process of a machine; a full memory or disk is not.
        alike = not isinstance(problem, ResourceError) and os.environ.get("LOCAL_RANK", "0") != "0"
        if alike:
            # The first one says it, and torchrun ends the others; where it does not, we do.
            time.sleep(_SECONDS_FOR_THE_FIRST)
        for line in f"allneg: {problem}".splitlines():
            note(line)
        if "WORLD_SIZE" in os.environ:
            # Threads that talk to other processes may abort an interpreter that ends in order, and
            # torchrun would name that as the cause.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(problem.exit_code)
        sys.exit(problem.exit_code)
