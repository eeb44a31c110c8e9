"""The engine depends on the device or on a request, and a run prints the reason."""

from __future__ import annotations

import threading

import pytest
import torch
from distance_checks import needs_compiler

from allneg.errors import RecipeError
from allneg.kernels import compiler, engines
from allneg.kernels.engines import describe_engine, distance_engine, triton_engine, using

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")


@pytest.fixture(autouse=True)
def _no_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def _name(module):
    return module.__name__.removeprefix("allneg.kernels.")


def _triton(monkeypatch, installed):
    found = object() if installed else None
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda name: found)


def _compiler_problem(monkeypatch, problem):
    monkeypatch.setattr(compiler, "problem", lambda: problem)


def test_a_cpu_with_a_compiler_takes_the_compiled_engine(monkeypatch):
    _compiler_problem(monkeypatch, None)
    assert _name(distance_engine(CPU)) == "distances.compiled"
    assert _name(triton_engine("fused", CPU)) == "fused.reference"
    assert describe_engine(CPU) == "engine compiled (with the C compiler of this machine)"


@needs_compiler
def test_the_compiler_of_this_machine_works():
    assert compiler.problem() is None
    assert _name(distance_engine(CPU)) == "distances.compiled"


def test_a_cpu_without_a_compiler_takes_the_cpu_engine_and_gives_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _name(distance_engine(CPU)) == "distances.cpu"
    assert describe_engine(CPU) == (
        "engine cpu (there is no C compiler (cc, gcc, clang); "
        "with a C compiler, distances are 3 to 5 times faster)"
    )


def test_a_broken_compiler_leaves_the_cpu_engine_with_its_message(monkeypatch, tmp_path):
    cc = tmp_path / "cc"
    cc.write_text("#!/bin/sh\necho 'a.c:3: error: no math.h' >&2\nexit 1\n")
    cc.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _name(distance_engine(CPU)) == "distances.cpu"
    assert f"engine cpu ({cc} failed: 'a.c:3: error: no math.h'" in describe_engine(CPU)
    scores = distance_engine(CPU).scores(torch.zeros(1, 2), torch.ones(1, 2), 1)
    assert scores.item() == pytest.approx(-2)


def test_a_gpu_takes_triton_where_it_is_installed(monkeypatch):
    _triton(monkeypatch, True)
    assert describe_engine(CUDA) == "engine gpu (Triton)"
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert "without atomic adds" in describe_engine(CUDA)


def test_a_gpu_without_triton_takes_the_reference_and_names_the_package(monkeypatch):
    _triton(monkeypatch, False)
    assert _name(distance_engine(CUDA)) == "distances.reference"
    assert _name(triton_engine("fused", CUDA)) == "fused.reference"
    assert "pip install 'allneg[gpu]'" in describe_engine(CUDA)


def test_another_device_takes_the_reference():
    assert _name(distance_engine(MPS)) == "distances.reference"


def test_a_requested_engine_is_used_inside_the_with_alone(monkeypatch):
    _compiler_problem(monkeypatch, "none")
    with using("reference"):
        assert _name(distance_engine(CPU)) == "distances.reference"
        assert describe_engine(CPU) == "engine reference (as requested)"
        with using("auto"):
            assert _name(distance_engine(CPU)) == "distances.cpu"
        assert _name(distance_engine(CPU)) == "distances.reference"
    assert _name(distance_engine(CPU)) == "distances.cpu"


def test_requests_of_threads_that_overlap_end_on_the_outer_engine():
    """One thread's request ends while another's, made later, is still in force."""
    entered, leave = threading.Event(), threading.Event()

    def inner():
        with using("reference"):
            entered.set()
            leave.wait(10)

    with using("cpu"):
        first = using("reference")
        first.__enter__()
        thread = threading.Thread(target=inner)
        thread.start()
        assert entered.wait(10)
        first.__exit__(None, None, None)
        assert describe_engine(CPU) == "engine reference (as requested)"
        leave.set()
        thread.join()
        assert describe_engine(CPU) == "engine cpu (as requested)"
    assert "as requested" not in describe_engine(CPU)


def test_a_request_for_triton_without_it_names_the_package(monkeypatch):
    _triton(monkeypatch, False)
    with using("gpu"), pytest.raises(RecipeError, match=r"pip install 'allneg\[gpu\]'"):
        distance_engine(CUDA)


@pytest.mark.parametrize("name, device", [("gpu", CPU), ("cpu", CUDA), ("compiled", CUDA)])
def test_a_request_for_an_engine_of_another_device_is_refused(monkeypatch, name, device):
    _triton(monkeypatch, True)
    with using(name), pytest.raises(RecipeError, match=f"hardware.engine is '{name}', but the row"):
        distance_engine(device)


def test_an_unknown_engine_is_refused_with_the_known_ones():
    with pytest.raises(RecipeError, match="close names: 'gpu'"), using("gpus"):
        pass


def test_a_request_for_compiled_without_a_compiler_tells_how_to_get_one(monkeypatch):
    _compiler_problem(monkeypatch, "there is no C compiler")
    with using("compiled"), pytest.raises(RecipeError, match=r"no C compiler\ninstall or repair"):
        distance_engine(CPU)
