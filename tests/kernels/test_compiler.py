"""The library is built once per machine, in a folder that only its user can write."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest
from distance_checks import needs_compiler

from allneg.kernels import compiler
from allneg.kernels.compiler import CompileError, built, find_compiler, load
from processes import start


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(compiler, "_FLAGS", ("-O0", "-fPIC", "-shared"))  # builds in less time
    return tmp_path / "home"


def _fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A compiler that runs `script`, and is the only one."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    path = tmp_path / "bin" / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")


@needs_compiler
def test_it_is_built_once_and_found_the_second_time(monkeypatch, home):
    first = built("pairs")
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    assert built("pairs") == first
    assert list((home / "compiled").iterdir()) == [first]
    assert ctypes.CDLL(str(first)).l1_scores


@needs_compiler
@pytest.mark.parametrize("content", [b"", b"not a library", None])
def test_a_broken_library_is_built_again(home, content):
    path = built("pairs")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    again = built("pairs")
    assert ctypes.CDLL(str(again)).l1_scores
    assert list((home / "compiled").iterdir()) == [again]


@needs_compiler
def test_only_its_user_may_read_or_write_it(home):
    path = built("pairs")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@needs_compiler
def test_another_cpu_or_another_flag_is_another_library(monkeypatch, home):
    built("pairs")
    monkeypatch.setattr(compiler, "_cpu", lambda: b"another")
    built("pairs")
    monkeypatch.setattr(compiler, "_FLAGS", (*compiler._FLAGS, "-O1"))
    built("pairs")
    assert len(list((home / "compiled").iterdir())) == 3


@needs_compiler
def test_processes_that_build_at_once_all_get_an_intact_library(home):
    processes = [start(load, "pairs") for _ in range(2)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert load("pairs").l1_scores


@needs_compiler
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_may_write_is_refused(home, mode):
    built("pairs")
    (home / "compiled").chmod(mode)
    with pytest.raises(CompileError, match="other users may write there"):
        built("pairs")


@needs_compiler
@pytest.mark.battery(78)
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
def test_a_folder_under_one_that_others_may_rename_in_is_refused(home, mode):
    home.mkdir()
    home.chmod(mode)
    with pytest.raises(CompileError, match=f"{home}: other users may write there"):
        built("pairs")
    home.chmod(0o1777)  # there, users may rename only what is theirs
    built("pairs")


@pytest.mark.battery(78)
def test_a_folder_under_one_of_another_user_is_refused(monkeypatch, home):
    home.mkdir(mode=0o1755)
    if os.getuid() == 0:
        os.chown(home, 4321, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 4321)
    with pytest.raises(CompileError, match=f"{home}: belongs to another user"):
        compiler._check_closed(home, own=False)


@needs_compiler
@pytest.mark.battery(78)
def test_a_new_folder_is_closed_whatever_the_umask(home):
    before = os.umask(0)
    try:
        built("pairs")
    finally:
        os.umask(before)
    assert home.stat().st_mode & 0o777 == 0o755


@needs_compiler
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_is_named(home):
    home.mkdir(mode=0o500)
    with pytest.raises(CompileError, match=r"Permission denied.*set ALLNEG_HOME"):
        built("pairs")


@needs_compiler
def test_a_home_that_is_a_file_is_named(home):
    home.write_text("")
    with pytest.raises(CompileError, match="set ALLNEG_HOME to a folder that you own"):
        built("pairs")


def test_a_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler() is None
    with pytest.raises(CompileError, match=r"no C compiler \(cc, gcc, clang\)"):
        built("pairs")


def test_a_failing_compiler_is_quoted(monkeypatch, tmp_path, home):
    message = "echo 'In file included:' >&2; echo 'a.c:3: error: no math.h' >&2; exit 1"
    _fake(tmp_path, monkeypatch, message)
    with pytest.raises(CompileError, match=r"failed: 'a.c:3: error: no math.h'"):
        built("pairs")
    assert list((home / "compiled").iterdir()) == []


def test_a_compiler_that_cannot_run_is_named(monkeypatch, tmp_path):
    _fake(tmp_path, monkeypatch, "")
    (tmp_path / "bin" / "cc").write_text("neither a script nor a program")
    with pytest.raises(CompileError, match=r"the C compiler did not run: .*bin/cc"):
        built("pairs")


@needs_compiler
def test_a_compiler_that_does_not_know_this_cpu_builds_for_any(monkeypatch, tmp_path):
    real = find_compiler()
    refuse = f'case "$*" in *native*) echo "error: unknown" >&2; exit 1;; esac; exec {real} "$@"'
    path = os.environ["PATH"]
    _fake(tmp_path, monkeypatch, refuse)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{path}")
    assert ctypes.CDLL(str(built("pairs"))).l1_scores


@needs_compiler
@pytest.mark.battery(80)
def test_a_library_that_does_not_load_is_a_problem(monkeypatch):
    """For example in a cache on a disk from which nothing may be executed."""

    def refuse(path):
        raise OSError("failed to map segment from shared object")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert "does not load (failed to map segment" in (compiler.problem() or "")


@needs_compiler
def test_a_machine_without_a_cache_folder_is_a_problem(monkeypatch):
    monkeypatch.delenv("ALLNEG_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    compiler._problem.cache_clear()
    try:
        assert "set ALLNEG_HOME" in (compiler.problem() or "")
    finally:
        compiler._problem.cache_clear()
