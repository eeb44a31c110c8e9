"""Training, ranking and answers on a fake of Apple's GPU, which refuses what the real one refuses.

A tensor of the fake is a CPU tensor that reports the device `mps`. It cannot have 64-bit floats and
cannot meet a tensor of the CPU that is not a single number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from allneg import Run, evaluate, load, train
from allneg.graph import Graph
from allneg.training import loop

MPS = torch.device("mps")
MOVES = (Tensor.to, Tensor.copy_, Tensor.cpu)


class FakeMps(TorchFunctionMode):
    """Sees every operation. A tensor of the fake has the attribute `on_mps`."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        if func in (torch.device, torch._C._nn._parse_to):
            return func(*args, **(kwargs or {}))
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return MPS if _is_here(args[0]) else func(*args)
        given = tree_flatten((args, kwargs or {}))[0]
        devices = [torch.device(x) for x in given if _is_device(x)]
        tensors = [x for x in given if isinstance(x, Tensor)]
        n_here = sum(map(_is_here, tensors))
        is_data = func == Tensor.data.__set__  # type: ignore[attr-defined]
        if n_here and func not in MOVES and not is_data:
            wrong = [x for x in tensors if not _is_here(x) and x.dim()]
            if wrong:
                raise RuntimeError(f"{func.__name__}: expected all tensors to be on mps")
        args, kwargs = tree_map(
            lambda x: torch.device("cpu") if _is_device(x) else x, (args, kwargs or {})
        )
        result = func(*args, **kwargs)
        if func is Tensor.cpu or (devices and devices[-1].type == "cpu"):
            return tree_map(_on_cpu, result)
        if is_data:  # how a module moves its parameters
            args[0].on_mps = _is_here(args[1])
        elif devices or n_here:
            for x in tree_flatten(result)[0]:
                if isinstance(x, Tensor):
                    if x.dtype is torch.float64:
                        raise TypeError(f"{func.__name__}: MPS has no float64")
                    x.on_mps = True  # type: ignore[attr-defined]
        return result


def _is_here(value: Tensor) -> bool:
    return getattr(value, "on_mps", False)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value in ("cpu", "mps"))


def _on_cpu(value: Any) -> Any:
    """A new object for the same numbers, without the attribute."""
    return value.view_as(value) if isinstance(value, Tensor) else value


@pytest.fixture
def fake_mps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(loop, "Generator", lambda device: Generator())
    with FakeMps():
        yield


@pytest.mark.usefixtures("fake_mps")
def test_the_fake_refuses_what_mps_refuses() -> None:
    x = torch.ones(2, device="mps")
    assert (x + 1).device == MPS
    assert x.cpu().device.type == x.to("cpu").device.type == "cpu"
    with pytest.raises(TypeError, match="no float64"):
        x.double()
    with pytest.raises(RuntimeError, match="on mps"):
        x + torch.ones(2)


@pytest.mark.usefixtures("fake_mps")
@pytest.mark.parametrize("model", ["complex", "transe", "rotate"])
def test_a_run_is_trained_ranked_and_asked_on_mps(
    tiny_graph: Graph, tmp_path: Path, model: str
) -> None:
    settings = {"model.dim": 4, "training.epochs": 2, "hardware.device": "mps"}
    run = train(tiny_graph, model=model, settings=settings, out=tmp_path / "run")
    assert Run.open(run.folder).environment["device"] == "mps"
    assert evaluate(run, device="mps").mrr == pytest.approx(run.report.mrr)
    on_cpu = load(run.folder, "cpu").tails("France", "borders", k=3)
    on_mps = load(run.folder, "mps").tails("France", "borders", k=3)
    assert [answer.entity for answer in on_mps] == [answer.entity for answer in on_cpu]
