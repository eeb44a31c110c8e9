"""From gradients to new rows: AdaGrad, Adam, SGD, and their learning rate."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.errors import RunError
from allneg.kernels.adagrad import adagrad
from allneg.recipe import Optimizer as Settings
from allneg.runs.checkpoint import State
from allneg.scoring import Tables


def make_optimizer(settings: Settings, tables: Tables) -> torch.optim.Optimizer:
    """An optimiser over both tables, in one pass over each where torch has one."""
    parameters = list(tables.parameters())
    rate: float | Tensor = settings.learning_rate
    device = tables.entities.device.type
    if device == "cuda" and settings.name != "sgd":
        # A number on the device: a captured step reads it anew each time.
        rate = torch.tensor(rate, device=tables.entities.device)
    # AdaGrad's accumulator 0 and eps 1e-10: the first step moves every number by the rate,
    # whatever its gradient. Published recipes count on it.
    if settings.name == "adagrad" and device == "cuda":
        return OnePassAdagrad(tables, rate)
    if settings.name == "adagrad":
        return torch.optim.Adagrad(parameters, lr=rate, eps=1e-10, fused=device == "cpu" or None)
    if settings.name == "adam":
        capturable, fused = device == "cuda", device in ("cpu", "cuda")
        return torch.optim.Adam(parameters, lr=rate, fused=fused, capturable=capturable)
    return torch.optim.SGD(parameters, lr=rate, fused=device in ("cpu", "cuda"))


class OnePassAdagrad(torch.optim.Adagrad):
    """Torch's AdaGrad, with a step that reads and writes each number once.

    It keeps the entities' rounded copy, where there is one, as they are.
    """

    def __init__(self, tables: Tables, rate: float | Tensor) -> None:
        super().__init__(tables.parameters(), lr=rate, eps=1e-10)
        self._tables = tables

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for table in group["params"]:
                memory = self.state[table]["sum"]
                rounded = self._tables.rounded if table is self._tables.entities else None
                adagrad(table, table.grad, memory, group["lr"], group["eps"], rounded)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def rate_at(settings: Settings, state: State) -> float:
    """The learning rate of the epoch after `state`."""
    drops = {"none": 0, "step": state.epoch // settings.every, "plateau": state.drops}
    return settings.learning_rate * settings.decay ** drops[settings.schedule]


def optimizer_tensors(optimizer: torch.optim.Optimizer, tables: Tables) -> dict[str, Tensor]:
    """The optimiser's memory, flat and without padding: `entities.sum`, `relations.step`, …"""
    tensors = {}
    for name, parameter in tables.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"{name}.{key}"] = torch.as_tensor(value)
    return tables.unpadded(tensors)


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tables: Tables, tensors: Mapping[str, Tensor]
) -> None:
    """Put back what `optimizer_tensors` gave."""
    for name, parameter in tables.named_parameters():
        mine = dict(optimizer.state.get(parameter, {}))
        for key, value in tensors.items():
            table, _, part = key.rpartition(".")
            if table != name:
                continue
            if value.dim():
                value = F.pad(value, (0, 0, 0, len(parameter) - len(value)))
            if value.dim() and value.shape != parameter.shape:
                raise RunError(f"the optimiser's {key} is {tuple(value.shape)}, not as its table")
            # A new optimiser's counters say where it keeps them; the rest lies with the table.
            old = mine.get(part)
            mine[part] = value.to(old.device if isinstance(old, Tensor) else parameter.device)
        if mine:
            optimizer.state[parameter] = mine
