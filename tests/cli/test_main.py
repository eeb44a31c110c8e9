"""`allneg` as the shell starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import allneg as package
from allneg.runs import Run

Command = Callable[..., Any]  # arguments of `allneg` to how it ended

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
    except SystemExit as leave:
        assert leave.code == 0, words
    assert out.getvalue(), words
    heavy = {"torch", "numpy", "safetensors"} & sys.modules.keys()
    assert not heavy, f"{words} imported {heavy}"
print("fine")
"""


def test_help_does_not_wait_for_torch() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_help_names_every_command(allneg: Command) -> None:
    done = allneg("--help")
    assert done.code == 0
    for name in ("train", "resume", "evaluate", "predict", "info", "data"):
        assert f"  {name} " in done.out


def test_the_version_is_the_packages(allneg: Command) -> None:
    assert allneg("--version").out == f"allneg {package.__version__}\n"


def test_every_public_name_is_there() -> None:
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    assert not hasattr(package, "nothing")


@pytest.mark.parametrize("arguments", [["evaluate", "RUN"], ["data", "get", "countries"]])
def test_a_closed_pipe_ends_quietly(toy_run: Run, arguments: list[str]) -> None:
    """The reader is gone before the first byte, as with `allneg … | head -0`."""
    arguments = [word.replace("RUN", str(toy_run.folder)) for word in arguments]
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "allneg", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_terminal_without_our_letters_gets_them_escaped(more: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "allneg", "train", "Łódź", "--print-recipe", *more]
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.returncode == 0, done.stderr
    if more:
        assert json.loads(done.stdout)["recipe"]["data"]["name"] == "Łódź"
    else:
        assert 'name = "\\u0141ód\\u017a"'.encode("latin-1") in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", ["--help", "data list", "train countries --print-recipe --json"])
def test_output_that_cannot_be_written_is_a_problem(words: str) -> None:
    command = f"{sys.executable} -m allneg {words} > /dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    said = "allneg: the output cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr) == (6, said)


def test_output_that_is_closed_is_not_missed() -> None:
    command = f"{sys.executable} -m allneg data list >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


SMALL = "--set model.dim=4 --set training.epochs=2 --set evaluation.every=1"


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full", "2>&1 >/dev/null | true"])
def test_a_training_that_nobody_listens_to_goes_on(
    how: str, tiny_folder: Path, tmp_path: Path
) -> None:
    if how == "2>/dev/full" and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    run = f"{sys.executable} -m allneg train {tiny_folder} {SMALL} --out {tmp_path / 'run'}"
    # The pipe's reader is gone before anything is said.
    command = f"(sleep 1; {run}; echo $? > {tmp_path / 'code'}) {how}"
    subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert (tmp_path / "code").read_text() == "0\n"
    assert Run.open(tmp_path / "run").status["state"] == "finished"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_problem_that_nobody_hears_has_its_exit_code(tmp_path: Path) -> None:
    command = f"{sys.executable} -m allneg evaluate {tmp_path} 2> /dev/full"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 4


def test_json_is_json_where_notes_have_no_place(toy_copy: Run) -> None:
    (toy_copy.folder / "status.json").write_text('{"state": "interrupted"}')
    (toy_copy.folder / "report.json").unlink()
    command = f"{sys.executable} -m allneg evaluate {toy_copy.folder} --device cpu --json 2>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["schema_version"] == 1
