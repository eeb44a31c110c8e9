"""The engine is chosen by the device, can be asked for, and says why."""

from __future__ import annotations

import pytest
import torch

from allneg.errors import RecipeError
from allneg.kernels import choose
from allneg.kernels.choose import engine, using, why

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")


@pytest.fixture(autouse=True)
def _no_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def _without_triton(monkeypatch):
    monkeypatch.setattr(choose.importlib.util, "find_spec", lambda name: None)


def _compiler(monkeypatch, path):
    monkeypatch.setattr(choose, "find_compiler", lambda: path)


def test_rows_on_a_cpu_take_the_cpu_engine(monkeypatch):
    _compiler(monkeypatch, None)
    assert engine("l1", CPU).__name__ == "allneg.kernels.l1.cpu"
    assert why("l1", CPU) == "l1 on cpu: engine cpu (the rows are on a CPU)"


def test_rows_on_a_gpu_take_triton_when_it_is_there(monkeypatch):
    monkeypatch.setattr(choose.importlib.util, "find_spec", lambda name: object())
    assert why("modulus", CUDA) == "modulus on cuda: engine gpu (Triton)"


def test_rows_on_a_gpu_without_triton_take_the_reference_and_say_what_to_install(monkeypatch):
    _without_triton(monkeypatch)
    assert engine("l1", CUDA).__name__ == "allneg.kernels.l1.reference"
    assert "pip install 'allneg[gpu]'" in why("l1", CUDA)


def test_another_device_takes_the_reference():
    assert engine("modulus", MPS).__name__ == "allneg.kernels.modulus.reference"


def test_being_deterministic_is_said(monkeypatch):
    monkeypatch.setattr(choose.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert "without atomic adds" in why("l1", CUDA)


def test_an_engine_asked_for_is_taken_and_then_forgotten():
    with using("reference"):
        assert engine("l1", CPU).__name__ == "allneg.kernels.l1.reference"
        assert "asked for" in why("l1", CPU)
    assert engine("l1", CPU).__name__ == "allneg.kernels.l1.cpu"


def test_asking_for_triton_without_it_says_what_to_install(monkeypatch):
    _without_triton(monkeypatch)
    with using("gpu"), pytest.raises(RecipeError, match=r"pip install 'allneg\[gpu\]'"):
        engine("l1", CUDA)


@pytest.mark.parametrize("name, device", [("gpu", CPU), ("cpu", CUDA), ("compiled", CUDA)])
def test_asking_for_an_engine_of_another_device_is_refused(monkeypatch, name, device):
    monkeypatch.setattr(choose.importlib.util, "find_spec", lambda name: object())
    with using(name), pytest.raises(RecipeError, match=f"hardware.engine is '{name}'"):
        engine("l1", device)


def test_an_unknown_engine_is_refused_with_the_known_ones():
    with pytest.raises(RecipeError, match="close names: 'gpu'"), using("gpus"):
        pass


def test_compiled_is_taken_when_asked_for_where_there_is_such_an_engine(monkeypatch):
    _compiler(monkeypatch, "cc")
    with using("compiled"):
        assert engine("l1", CPU).__name__ == "allneg.kernels.l1.compiled"
        assert engine("modulus", CPU).__name__ == "allneg.kernels.modulus.compiled"
        assert engine("softmax", CPU).__name__ == "allneg.kernels.softmax.cpu"
        assert engine("adagrad", CPU).__name__ == "allneg.kernels.adagrad.reference"
        assert why("l1", CPU) == "l1 on cpu: engine compiled (asked for)"


def test_where_a_compiler_is_a_run_says_that_it_can_be_used(monkeypatch):
    _compiler(monkeypatch, "cc")
    assert why("l1", CPU) == (
        "l1 on cpu: engine cpu (the rows are on a CPU; "
        "hardware.engine = 'compiled' is faster: a C compiler is here)"
    )
    with using("cpu"):
        assert why("l1", CPU) == "l1 on cpu: engine cpu (asked for)"


def test_asking_for_compiled_without_a_compiler_says_what_to_install(monkeypatch):
    _compiler(monkeypatch, None)
    with using("compiled"), pytest.raises(RecipeError, match=r"no C compiler.*\ninstall one"):
        engine("l1", CPU)
