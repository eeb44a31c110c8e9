"""A step recorded once as a CUDA graph and played again: no gaps between its launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.recipe import Recipe
from allneg.scoring.candidates import Drawn

_Part = TypeVar("_Part", Queries, Drawn)
_WARM_UP = 3  # steps done plainly first, so that everything is compiled and allocated


def is_captured(recipe: Recipe, device: torch.device) -> bool:
    """Are the steps of a recipe always of the same shapes, with no waiting?"""
    model, loss = recipe.model, recipe.loss
    return (
        device.type == "cuda"
        and recipe.training.micro_batch is None
        and recipe.optimizer.name != "sgd"
        and (model.norm == 1 or model.squared)  # l2 looks for close pairs, and so waits
        and (loss.negatives == "per_query" or not loss.mask_known)  # else as many as are known
        and not recipe.hardware.deterministic
        and recipe.hardware.table == "device"
    )


class Captured:
    """Steps on as many queries each time, for which chance has drawn before."""

    def __init__(self, queries: Queries, drawn: Drawn) -> None:
        self._questions, self._drawn = _copied(queries), _copied(drawn)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._value = torch.empty(())
        self._done = 0

    def step(
        self, step: Callable[[Queries, Drawn], Tensor], queries: Queries, drawn: Drawn
    ) -> Tensor:
        """The step's number, which the next step overwrites."""
        self._done += 1
        if self._done <= _WARM_UP:
            return step(queries, drawn)
        places = _tensors(self._questions, self._drawn)
        torch._foreach_copy_(places, _tensors(queries, drawn))
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # Recording runs nothing: the replay below is this step.
            with torch.cuda.graph(self._graph):
                self._value = step(self._questions, self._drawn)
        self._graph.replay()
        return self._value


def _tensors(*asked_and_drawn: Queries | Drawn) -> list[Tensor]:
    return [each for part in asked_and_drawn for each in _fields(part).values()]


def _copied(part: _Part) -> _Part:
    return replace(part, **{name: each.clone() for name, each in _fields(part).items()})


def _fields(part: Queries | Drawn) -> dict[str, Tensor]:
    """What there is of it: a recipe draws only what it needs."""
    return {name: each for name, each in vars(part).items() if each is not None}
