from __future__ import annotations

import contextlib
import platform
from pathlib import Path

import pytest
import torch

from allneg.errors import RecipeError
from allneg.hardware import find_device, onednn_is_faster, peak_bytes, prepare, torch_settings
from allneg.recipe import Hardware
from processes import start


def test_auto_is_the_first_cuda_device_or_the_cpu() -> None:
    wanted = "cuda" if torch.cuda.is_available() else "cpu"
    assert find_device("auto").type == wanted
    assert find_device("cpu") == torch.device("cpu")


@pytest.mark.battery(32)
@pytest.mark.parametrize("name", ["cuda:99", "meta", "cpu:3"])
def test_a_missing_device_is_refused_with_a_list_of_devices(name: str) -> None:
    with pytest.raises(
        RecipeError, match=rf"{name} is not available on this machine; use one of: auto, cpu"
    ) as caught:
        find_device(name)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "cpu\x1b"])
def test_an_unknown_device_is_refused_with_a_list_of_devices(name: str) -> None:
    with pytest.raises(RecipeError, match="is not a device; use one of: auto, cpu"):
        find_device(name)


def test_settings_of_torch_follow_the_recipe() -> None:
    prepare(Hardware(device="cpu", threads=2, precision="float32", deterministic=True))
    assert torch.get_num_threads() == 2
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cuda.matmul.allow_tf32
    prepare(Hardware(device="cpu"))
    assert torch.get_num_threads() == 2  # None leaves it alone
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cuda.matmul.allow_tf32


PEAKS = """
import torch
from allneg.hardware import peak_bytes
for n in (1, 1 << 26):
    torch.ones(n)
    print(peak_bytes(torch.device("cpu")))
"""


def test_the_peak_of_a_cpu_is_that_of_the_process(tmp_path: Path) -> None:
    out = tmp_path / "out"
    start(exec, PEAKS, {}, out=out).join(60)
    few, many = map(int, out.read_text().split())
    assert many - few == pytest.approx(4 << 26, rel=0.1)  # float32


def test_the_peak_of_some_devices_is_unknown() -> None:
    assert peak_bytes(torch.device("mps")) is None


@pytest.mark.skipif(not onednn_is_faster(), reason="products of this CPU are not by oneDNN")
def test_products_by_onednn_are_as_exact_as_those_of_pytorch() -> None:
    a, b = torch.randn(300, 200), torch.randn(200, 1000)
    exact, allowed = a.double() @ b.double(), (a.abs() @ b.abs()) * 1e-6
    with torch_settings(Hardware(device="cpu")):
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # type: ignore[attr-defined]
        assert ((a @ b - exact).abs() <= allowed).all()


def test_onednn_is_not_chosen_where_it_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"cpu_name": "AMD of tomorrow", "avx512_bw": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)

    def rounded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.bfloat16().float().mm(b.bfloat16().float())

    monkeypatch.setattr(torch.Tensor, "__matmul__", rounded)
    onednn_is_faster.cache_clear()
    try:
        assert not onednn_is_faster()
    finally:
        onednn_is_faster.cache_clear()


def test_overlapping_runs_restore_the_settings_before_the_first() -> None:
    before = torch.backends.cuda.matmul.allow_tf32, torch.get_num_threads()
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(torch_settings(Hardware(device="cpu", threads=1, deterministic=True)))
        second.enter_context(torch_settings(Hardware(device="cpu", threads=2)))
        first.close()
        assert torch.get_num_threads() == 2
    assert (torch.backends.cuda.matmul.allow_tf32, torch.get_num_threads()) == before
    assert not torch.are_deterministic_algorithms_enabled()


FAULTS = """
import resource
import torch
from allneg.hardware import torch_settings
from allneg.recipe import Hardware

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.empty(1 << 24).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with torch_settings(Hardware(device="cpu")):
    faults()
    print(faults())
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_training_on_a_cpu_keeps_the_memory_of_a_step_for_the_next(tmp_path: Path) -> None:
    out = tmp_path / "out"
    start(exec, FAULTS, {}, out=out).join(60)
    inside, outside = map(int, out.read_text().split())
    assert 100 * inside < outside
