"""From gradients to new rows: AdaGrad, Adam, SGD, and their learning rate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from allneg.errors import BadRun
from allneg.recipe import Optimizer as Settings
from allneg.run.checkpoint import State
from allneg.scoring import Tables


def make_optimizer(settings: Settings, tables: Tables) -> torch.optim.Optimizer:
    """An optimiser over both tables, in one pass over each where torch has one."""
    parameters = list(tables.parameters())
    rate = settings.learning_rate
    on_cpu = tables.device.type == "cpu"
    if settings.name == "adagrad":
        # Accumulator 0 and eps 1e-10: the first step moves every number by the rate, whatever
        # its gradient. Published recipes count on it.
        return torch.optim.Adagrad(parameters, lr=rate, eps=1e-10, fused=on_cpu or None)
    if settings.name == "adam":
        return torch.optim.Adam(parameters, lr=rate, fused=tables.device.type in ("cpu", "cuda"))
    return torch.optim.SGD(parameters, lr=rate, fused=tables.device.type in ("cpu", "cuda"))


def rate_at(settings: Settings, state: State) -> float:
    """The learning rate of the epoch after `state`."""
    drops = {"none": 0, "step": state.epoch // settings.every, "plateau": state.drops}
    return settings.learning_rate * settings.decay ** drops[settings.schedule]


def optimizer_tensors(optimizer: torch.optim.Optimizer, tables: Tables) -> dict[str, Tensor]:
    """The optimiser's memory, flat: `entities.sum`, `relations.step`, …"""
    tensors = {}
    for name, parameter in tables.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"{name}.{key}"] = torch.as_tensor(value)
    return tensors


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tables: Tables, tensors: dict[str, Tensor]
) -> None:
    """Put back what `optimizer_tensors` gave."""
    for name, parameter in tables.named_parameters():
        mine: dict[str, Any] = dict(optimizer.state.get(parameter, {}))
        for key, value in tensors.items():
            table, _, part = key.rpartition(".")
            if table != name:
                continue
            if value.dim() and value.shape != parameter.shape:
                raise BadRun(
                    f"the optimiser's {key} is {tuple(value.shape)}, not its table's shape"
                )
            device = parameter.device if part != "step" else _step_device(mine, parameter)
            mine[part] = value.to(device)
        if mine:
            optimizer.state[parameter] = mine


def _step_device(state: dict[str, Any], parameter: Tensor) -> torch.device:
    """Where the step counter lives: a fused optimiser keeps it beside the parameter."""
    step = state.get("step")
    return step.device if isinstance(step, Tensor) else parameter.device
