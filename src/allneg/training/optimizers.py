"""The optimizers AdaGrad, Adam and SGD, and their learning rate."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.errors import RunError, printable
from allneg.kernels.fused import adagrad
from allneg.recipe import Optimizer as Settings
from allneg.runs.checkpoint import State
from allneg.scoring import Shard, Tables


@dataclass(frozen=True)
class OptimizerKind:
    """How to create an optimizer, and what an `ExecutionPlan` uses."""

    make: Callable[[Tables, float | Tensor], torch.optim.Optimizer]  # of the tables and a rate
    state_tables: int  # tensors of state per table, each as large as the table
    capturable: bool = False  # takes its rate as a tensor, so that a CUDA graph can replay steps
    updates_bf16_copy: bool = False  # on a GPU, its step also writes the bfloat16 copy


class Adagrad(torch.optim.Optimizer):
    """AdaGrad with a step that reads and writes each number once.

    State 0 and eps 1e-10 make the first step change every number by the learning rate; published
    recipes rely on this. PyTorch's class would import its compiler, which takes seconds.
    """

    def __init__(self, tables: Tables, rate: float | Tensor) -> None:
        self._tables = tables
        self.defaults = {"lr": rate, "eps": 1e-10}
        self.param_groups = [{"params": list(tables.parameters()), **self.defaults}]
        self.state = defaultdict(dict)
        for table in tables.parameters():
            # `step` is not used, but PyTorch's class and earlier checkpoints have it.
            sums = torch.zeros_like(table.detach())
            self.state[table] = {"step": torch.tensor(0.0), "sum": sums}

    def zero_grad(self, set_to_none: bool = True) -> None:
        for table in self._tables.parameters():
            table.grad = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        for table in group["params"]:
            copy = self._tables.bf16_copy if table is self._tables.entities else None
            adagrad(table, table.grad, self.state[table]["sum"], group["lr"], group["eps"], copy)


def _adam(tables: Tables, rate: float | Tensor) -> torch.optim.Optimizer:
    device = tables.entities.device.type
    fused, capturable = device in ("cpu", "cuda"), device == "cuda"
    return torch.optim.Adam(tables.parameters(), lr=rate, fused=fused, capturable=capturable)


def _sgd(tables: Tables, rate: float | Tensor) -> torch.optim.Optimizer:
    fused = tables.entities.device.type in ("cpu", "cuda")
    return torch.optim.SGD(tables.parameters(), lr=rate, fused=fused)


OPTIMIZERS: dict[str, OptimizerKind] = {
    "adagrad": OptimizerKind(Adagrad, state_tables=1, capturable=True, updates_bf16_copy=True),
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
    settings: Settings,
    optimizer: torch.optim.Optimizer,
    tables: Tables,
    tensors: Mapping[str, Tensor],
    averaged: bool = False,
) -> None:
    """Restore what `optimizer_tensors` gave; a `RunError` if another optimizer gave it.

    With `averaged`, the state also has an average of each table.
    """
    expected = _expected_state(settings, tables)
    if averaged:
        for name, weight in tables.weights().items():
            expected[f"{name}.average"] = weight.dtype, tuple(weight.shape)
    if wrong := sorted(expected.keys() ^ tensors.keys()):
        what = "has no" if wrong[0] in expected else "has an unknown"
        raise RunError(
            f"the checkpoint {what} {printable(wrong[0])} of the optimizer; another optimizer than "
            f"{settings.name} wrote it, or it is damaged"
        )
    for name, parameter in tables.named_parameters():
        state = dict(optimizer.state.get(parameter, {}))
        for key in (key for key in expected if key.rpartition(".")[0] == name):
            value, (dtype, shape) = tensors[key], expected[key]
            if value.dtype != dtype or value.shape != shape:
                raise RunError(
                    f"the optimizer's {key} is {value.dtype} {tuple(value.shape)}, not {dtype} "
                    f"{tuple(shape)}; the checkpoint is damaged"
                )
            if name == "entities" and value.dim() and len(value) == len(tables.shard):
                value = F.pad(value, (0, 0) * (value.dim() - 1) + (0, len(parameter) - len(value)))
            # Counters stay on the device where a new optimizer has them; other state is on the
            # device of the table.
            part = key.rpartition(".")[2]
            old = state.get(part)
            state[part] = value.to(old.device if isinstance(old, Tensor) else parameter.device)
        if state:
            optimizer.state[parameter] = state


def zero_state(settings: Settings, tables: Tables) -> dict[str, Tensor]:
    """What `optimizer_tensors` would give before the first step."""
    expected = _expected_state(settings, tables)
    return {name: torch.zeros(shape, dtype=dtype) for name, (dtype, shape) in expected.items()}


def _expected_state(
    settings: Settings, tables: Tables
) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """The types and shapes of what `optimizer_tensors` gives after a step.

    Found by a step on at most two rows per table. Fused steps do not check shapes themselves.
    """
    weights = tables.weights()
    rows = {name: len(weight) for name, weight in weights.items()}
    few = {name: torch.zeros_like(weight[:2], device="cpu") for name, weight in weights.items()}
    shard = Shard.whole(len(few["entities"]))
    small = Tables(few["entities"], few["relations"], shard, False, few.get("shared"))
    optimizer = make_optimizer(settings, small)
    for parameter in small.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    expected = {}
    for key, value in optimizer_tensors(optimizer, small).items():
        table, shape = key.rpartition(".")[0], tuple(value.shape)
        has_rows = shape[:1] == (len(few[table]),)
        expected[key] = value.dtype, (rows[table], *shape[1:]) if has_rows else shape
    return expected
