"""The optimizers AdaGrad, Adam and SGD, and their learning rate."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.errors import RunError
from allneg.kernels.fused import adagrad
from allneg.recipe import Optimizer as Settings
from allneg.runs.checkpoint import State
from allneg.scoring import Tables


@dataclass(frozen=True)
class OptimizerKind:
    """How to create an optimizer, and what a plan needs to know about it."""

    make: Callable[[Tables, float | Tensor], torch.optim.Optimizer]  # of the tables and a rate
    state_tables: int  # tensors of state per table, each as large as the table
    capturable: bool = False  # takes its rate as a tensor, so that a CUDA graph can replay steps
    updates_bf16_copy: bool = False  # on a GPU, its step also writes the bfloat16 copy


class FusedAdagrad(torch.optim.Adagrad):
    """PyTorch's AdaGrad with a step that reads and writes each number once."""

    def __init__(self, tables: Tables, rate: float | Tensor) -> None:
        super().__init__(tables.parameters(), lr=rate, eps=1e-10)
        self._tables = tables

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for table in group["params"]:
                squares = self.state[table]["sum"]
                copy = self._tables.bf16_copy if table is self._tables.entities else None
                adagrad(table, table.grad, squares, group["lr"], group["eps"], copy)


def _adagrad(tables: Tables, rate: float | Tensor) -> torch.optim.Optimizer:
    # Initial state 0 and eps 1e-10: the first step changes every number by the learning rate,
    # independent of its gradient. Published recipes rely on this.
    device = tables.entities.device.type
    if device == "cuda":
        return FusedAdagrad(tables, rate)
    fused = device == "cpu" or None
    return torch.optim.Adagrad(tables.parameters(), lr=rate, eps=1e-10, fused=fused)


def _adam(tables: Tables, rate: float | Tensor) -> torch.optim.Optimizer:
    device = tables.entities.device.type
    fused, capturable = device in ("cpu", "cuda"), device == "cuda"
    return torch.optim.Adam(tables.parameters(), lr=rate, fused=fused, capturable=capturable)


def _sgd(tables: Tables, rate: float | Tensor) -> torch.optim.Optimizer:
    fused = tables.entities.device.type in ("cpu", "cuda")
    return torch.optim.SGD(tables.parameters(), lr=rate, fused=fused)


OPTIMIZERS: dict[str, OptimizerKind] = {
    "adagrad": OptimizerKind(_adagrad, state_tables=1, capturable=True, updates_bf16_copy=True),
    "adam": OptimizerKind(_adam, state_tables=2, capturable=True),
    "sgd": OptimizerKind(_sgd, state_tables=0),
}


def make_optimizer(settings: Settings, tables: Tables) -> torch.optim.Optimizer:
    """The optimizer of a recipe, over all tables."""
    kind, device = OPTIMIZERS[settings.name], tables.entities.device
    rate: float | Tensor = settings.learning_rate
    if kind.capturable and device.type == "cuda":
        rate = torch.tensor(rate, device=device)
    return kind.make(tables, rate)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def rate_at(settings: Settings, state: State, epochs: int) -> float:
    """The learning rate of the epoch after `state`, in a training of at most `epochs`."""
    if state.epoch < settings.warmup:
        return settings.learning_rate * (state.epoch + 1) / (settings.warmup + 1)
    done = state.epoch - settings.warmup
    if settings.schedule == "cosine":
        share = (1 + math.cos(math.pi * done / (epochs - settings.warmup))) / 2
        return settings.learning_rate * (settings.decay + (1 - settings.decay) * share)
    drops = {
        "none": 0,
        "step": done // settings.every,
        "exponential": done / settings.every,
        "plateau": state.drops,
    }
    return settings.learning_rate * float(settings.decay ** drops[settings.schedule])


def optimizer_tensors(optimizer: torch.optim.Optimizer, tables: Tables) -> dict[str, Tensor]:
    """The optimizer's state, flat and without padding: `entities.sum`, `relations.step`, …"""
    tensors = {}
    for name, parameter in tables.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"{name}.{key}"] = torch.as_tensor(value)
    return tables.unpadded(tensors)


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tables: Tables, tensors: Mapping[str, Tensor]
) -> None:
    """Restore what `optimizer_tensors` gave."""
    for name, parameter in tables.named_parameters():
        state = dict(optimizer.state.get(parameter, {}))
        for key, value in tensors.items():
            table, _, part = key.rpartition(".")
            if table != name:
                continue
            if value.dim() and len(value) == len(tables.shard):  # one entry or row per entity
                padding = (0, 0) * (value.dim() - 1) + (0, len(parameter) - len(value))
                value = F.pad(value, padding) if name == "entities" else value
            # Fused steps read as many numbers as the table has; other optimizers may keep fewer.
            old = state.get(part)
            is_strict = isinstance(old, Tensor) or optimizer.defaults.get("fused")
            fits = value.shape == (old.shape if isinstance(old, Tensor) else parameter.shape)
            may_be_smaller = not is_strict and value.dim() and len(value) in (1, len(parameter))
            if value.dim() and not (fits or may_be_smaller):
                raise RunError(
                    f"the optimizer's {key} is {tuple(value.shape)}, unlike its table "
                    f"{tuple(parameter.shape)}"
                )
            # Counters stay on the device where a new optimizer has them; other state is on the
            # device of the table.
            state[part] = value.to(old.device if isinstance(old, Tensor) else parameter.device)
        if state:
            optimizer.state[parameter] = state
