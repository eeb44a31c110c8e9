"""The command line: one thin function per command, one file per family of commands.

Commands import what they need when they run, so `--help` does not wait for torch.
"""

import atexit
import contextlib
import gc
import importlib
import io
import os
import sys
import threading
import time
from typing import Any, NoReturn, TextIO

import click

from allneg import __version__
from allneg.errors import AllnegError, ResourceError, close_names, printable

_SECONDS_FOR_RANK_ZERO = 5.0
# New objects between two searches for cycles; imports of PyTorch create more than 100,000.
COLLECT_EVERY = 50000
# The module of each command, and its line in `allneg --help`.
_COMMANDS = {
    "train": ("train", "Train a model on a knowledge graph."),
    "resume": ("train", "Continue an interrupted run."),
    "extend": ("extend", "Add new entities and facts to a run without training it again."),
    "tune": ("tune", "Find model and recipe for a graph within a time budget."),
    "search": ("search", "Search hyperparameters."),
    "reproduce": ("reproduce", "Compare our numbers with those of the paper."),
    "evaluate": ("evaluate", "Rank a split and print the report."),
    "predict": ("predict", "Answer queries by name."),
    "neighbours": ("predict", "Print the entities with the most similar vectors."),
    "ensemble": ("ensemble", "Combine runs into one with better answers."),
    "ask": ("ask", "Answer multi-hop questions, with reasons."),
    "complete": ("complete", "Write the most probable new facts of the whole graph."),
    "score": ("complete", "Score given facts and decide which are true."),
    "audit": ("audit", "Write the facts of a graph that look wrong, and why."),
    "compare": ("evaluate", "Test whether one run ranks better than another."),
    "info": ("runs", "Print the data, recipe and progress of a run."),
    "verify": ("runs", "Check every file of a run."),
    "export": ("runs", "Write vectors for other programs, or join the shards of a run."),
    "convert": ("convert", "Make a run from vectors that another program has trained."),
    "push": ("runs", "Upload a run to the Hugging Face Hub."),
    "plan": ("train", "Print the memory that a recipe needs."),
    "explore": ("explore", "Open a web page that explores runs."),
    "data": ("data", "List, download and check knowledge graphs."),
}


class _Commands(click.Group):
    """Imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        if name not in _COMMANDS:
            close = close_names(name.lower(), _COMMANDS)
            raise click.UsageError(f"No such command {printable(name)}{close}.", ctx)
        module = importlib.import_module(f"allneg.cli.{_COMMANDS[name][0]}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            result: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of the output has ended (`allneg … | head`), which is not an error.
            _discard_stdout()
            ctx.exit(0)
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _discard_stdout() -> None:
    """Redirect stdout, as writing its buffer at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _SafeStderr(io.FileIO):
    """A stderr that ignores write errors: work continues when nobody reads the notes."""

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return len(data)


def _stderr() -> TextIO:
    if sys.stderr is None:  # closed by the shell (`2>&-`)
        return open(os.devnull, "w")
    is_plain = isinstance(sys.stderr, io.TextIOWrapper) and sys.stderr is sys.__stderr__
    if not is_plain or os.name == "nt":  # replaced, for example by a test; or a console of Windows
        return sys.stderr
    safe = io.BufferedWriter(_SafeStderr(sys.stderr.fileno(), "w", closefd=False))
    return io.TextIOWrapper(safe, sys.stderr.encoding, "backslashreplace", line_buffering=True)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def allneg() -> None:
    """Knowledge-base completion with every entity as a negative."""


def run() -> NoReturn:
    """The program `allneg`: `main` in a process of its own, which it ends."""
    gc.set_threshold(COLLECT_EVERY)
    code: object = None
    try:
        main()
    except SystemExit as end:
        code = end.code
    # Python would take all objects of PyTorch apart, which takes up to a second.
    if threading.active_count() == 1 and isinstance(code, int | None):
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code or 0)
    sys.exit(code)  # type: ignore[arg-type]


def main() -> None:
    """Run a command. An `AllnegError` becomes its message on stderr and its exit code."""
    if sys.stdout is None:  # closed by the shell (`>&-`)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = _stderr()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names may have characters that the encoding of the terminal lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: object = allneg(prog_name="allneg", standalone_mode=False)
        if isinstance(code, int):  # how click returns an `Exit` of a command
            sys.exit(code)
    except click.ClickException as error:
        _with_setting(error).show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except OSError as error:
        what = f"{error.filename}: cannot be used"
        if error.filename is None:
            _discard_stdout()
            what = "the output cannot be written"
        sys.stderr.write(f"allneg: {what} ({error.strerror})\n")
        sys.exit(ResourceError.exit_code)
    except MemoryError:
        _report(ResourceError("out of memory; free some, or use a smaller graph or model"))
    except AllnegError as error:
        _report(error)


def _with_setting(error: click.ClickException) -> click.ClickException:
    """An error that says how to write a setting that was given as an option: `--epochs 3`."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    from allneg.recipe.parts import PARTS

    field = error.option_name.lstrip("-").replace("-", "_")
    parts = [part for part, kind in PARTS.items() if field in kind.__dataclass_fields__]
    if not parts or not any("--set" in param.opts for param in error.ctx.command.params):
        return error
    settings = " or ".join(f"--set {part}.{field}=…" for part in parts)
    return click.UsageError(f"{error.format_message()} It is a setting: {settings}", error.ctx)


def _report(error: AllnegError) -> None:
    """Print an error and exit; of the processes of torchrun, only the first one prints it."""
    from allneg.terminal import note

    # Most errors are the same in every process; a full memory or disk is not.
    if not isinstance(error, ResourceError) and os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(_SECONDS_FOR_RANK_ZERO)  # meanwhile torchrun should end this process
    note(f"allneg: {error}")
    if "WORLD_SIZE" in os.environ:
        # A normal exit may abort in the threads that talk to other processes, and torchrun would
        # report that as the cause.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.exit_code)
    sys.exit(error.exit_code)
