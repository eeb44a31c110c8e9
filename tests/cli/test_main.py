"""`allneg` as the shell starts it: help, pipes and closed streams."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import allneg as package
from allneg.cli import main
from allneg.runs import Run
from processes import start

Command = Callable[..., Any]  # runs `allneg` with these arguments

HELP = """
import io, sys
from contextlib import redirect_stdout
from allneg.cli import allneg, main
names = allneg.list_commands(None)
for words in (["--help"], ["-h"], ["--version"], *([name, "--help"] for name in names)):
    sys.argv = ["allneg", *words]
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            main()
    except SystemExit as error:
        assert error.code == 0, words
    assert out.getvalue(), words
    heavy = {"torch", "numpy", "safetensors"} & sys.modules.keys()
    assert not heavy, f"{words} imported {heavy}"
print("ok")
"""
WITHOUT_READER = """
import os, sys
from allneg.cli import main
reader, writer = os.pipe()
os.close(reader)
os.dup2(writer, 2)
sys.argv = words
main()
"""


WITHOUT_STDERR = """
import os, sys
from allneg.cli import main
os.close(2)
sys.stderr = sys.__stderr__ = None  # as Python does when it starts without
sys.argv = words
main()
"""


TRAINING = """
import sys
from allneg.cli import main
sys.argv = words
main()
print("sympy" in sys.modules)
"""
AT_THE_END = """
import atexit, sys, threading, time
from allneg.cli import run
def write_later():
    time.sleep(0.2)
    print("thread")
atexit.register(print, "handler")
if thread:
    threading.Thread(target=write_later).start()
sys.argv = words
run()
print("not reached")
"""


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("word, code", [("--version", 0), ("--unknown", 2)])
def test_the_program_ends_with_its_code_after_threads_and_exit_handlers(
    thread: bool, word: str, code: int
) -> None:
    given = f"thread, words = {thread}, {['allneg', word]}\n"
    command = [sys.executable, "-c", given + AT_THE_END]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = [*[f"allneg {package.__version__}"] * (code == 0), *["thread"] * thread, "handler"]
    assert (done.returncode, done.stdout.splitlines()) == (code, expected)
    assert ("Traceback" in done.stderr, "--unknown" in done.stderr) == (False, code == 2)


def test_help_does_not_wait_for_torch() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_training_does_not_import_sympy(tmp_path: Path) -> None:
    """PyTorch imports it, in half a second, when a backward pass begins with a given gradient."""
    settings = ["training.epochs=1", "model.dim=4", "hardware.threads=1", "hardware.device=cpu"]
    settings += ["loss.relation_weight=1"]  # a second backward pass
    words = ["allneg", "train", "countries", "--quiet", "--out", str(tmp_path / "run")]
    words += [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-c", f"words = {words}{TRAINING}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["False"]), done.stderr


def test_help_names_every_command(allneg: Command) -> None:
    done = allneg("--help")
    assert done.code == 0
    for name in ("train", "resume", "evaluate", "predict", "info", "data"):
        assert f"  {name} " in done.out


def test_the_version_is_that_of_the_package(allneg: Command) -> None:
    assert allneg("--version").out == f"allneg {package.__version__}\n"


def test_every_public_name_exists() -> None:
    earlier = {"Problem": "AllnegError"}
    for name in package.__all__:
        assert getattr(package, name).__name__ == earlier.get(name, name)
    assert not hasattr(package, "nothing")


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run `allneg` in a shell; the word allneg starts this Python."""
    command = command.replace("allneg ", f"{sys.executable} -m allneg ", 1)
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", ["list", "get countries"])
def test_a_closed_pipe_ends_quietly(words: str) -> None:
    """The reader has ended before the first byte, as with `allneg … | head -0`."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "allneg", "data", *words.split()]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_characters_that_the_terminal_lacks_are_escaped(
    more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdout = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stdout, "latin-1"))
    monkeypatch.setattr(
        sys,
        "argv",
        ["allneg", "train", "Łódź", "--print-recipe", "--recipe", "wn18rr/rotate", *more],
    )
    main()
    if more:
        assert json.loads(stdout.getvalue())["recipe"]["data"]["name"] == "Łódź"
    else:
        assert 'name = "\\u0141ód\\u017a"'.encode("latin-1") in stdout.getvalue()


needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@needs_dev_full
@pytest.mark.parametrize("words", ["--help", "data list", "data list --json"])
def test_output_that_cannot_be_written_exits_with_6(words: str) -> None:
    done = _shell(f"allneg {words} > /dev/full")
    message = "allneg: the output cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr) == (6, message)


def test_a_closed_stdout_is_not_an_error() -> None:
    done = _shell("allneg data list >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_training_continues_when_the_reader_of_its_stderr_has_ended(
    tiny_folder: Path, tmp_path: Path
) -> None:
    small = "--set model.dim=4 --set training.epochs=2 --set evaluation.every=1"
    words = f"allneg train {tiny_folder} {small} --out {tmp_path / 'run'}".split()
    process = start(exec, WITHOUT_READER, {"words": words}, out=Path(os.devnull))
    process.join()
    assert process.exitcode == 0
    assert Run.open(tmp_path / "run").status["state"] == "finished"


@pytest.mark.battery(76)
def test_memory_that_runs_out_anywhere_exits_with_6(
    allneg: Command, toy_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> Run:
        raise MemoryError

    monkeypatch.setattr(Run, "open", full)
    done = allneg("info", toy_run.folder)
    assert (done.code, done.err.count("\n")) == (6, 1)
    assert "out of memory" in done.err


@needs_dev_full
def test_an_error_that_cannot_be_printed_has_its_exit_code() -> None:
    assert _shell("allneg data get nothing 2> /dev/full").returncode == 3


def test_a_closed_stderr_does_not_spoil_the_json(toy_copy: Run, tmp_path: Path) -> None:
    (toy_copy.folder / "status.json").write_text('{"state": "interrupted"}')
    (toy_copy.folder / "report.json").unlink()
    words = f"allneg evaluate {toy_copy.folder} --device cpu --json".split()
    process = start(exec, WITHOUT_STDERR, {"words": words}, out=tmp_path / "out")
    process.join()
    assert process.exitcode == 0
    assert json.loads((tmp_path / "out").read_text())["schema_version"] == 1
