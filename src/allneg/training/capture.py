"""A training step recorded once as a CUDA graph and replayed: no gaps between GPU kernels."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.scoring.negatives import NegativeSample

_Inputs = TypeVar("_Inputs", Queries, NegativeSample)
_WARM_UP = 3  # ordinary steps before the capture, so that everything is compiled and allocated


class CapturedStep:
    """Steps on batches of one size; the value of a step is overwritten by the next."""

    def __init__(self) -> None:
        self._inputs: tuple[Queries, NegativeSample] | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._value = torch.empty(())
        self._done = 0

    def __call__(
        self,
        step: Callable[[Queries, NegativeSample], Tensor],
        queries: Queries,
        sample: NegativeSample,
    ) -> Tensor:
        self._done += 1
        if self._done <= _WARM_UP:
            return step(queries, sample)
        if self._inputs is None:
            self._inputs = _copied(queries), _copied(sample)
        torch._foreach_copy_(_tensors(*self._inputs), _tensors(queries, sample))
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # Recording computes nothing: the replay below is this step.
            with torch.cuda.graph(self._graph):
                self._value = step(*self._inputs)
        self._graph.replay()
        return self._value


def _tensors(queries: Queries, sample: NegativeSample) -> list[Tensor]:
    return [*_fields(queries).values(), *_fields(sample).values()]


def _copied(inputs: _Inputs) -> _Inputs:
    return replace(inputs, **{name: tensor.clone() for name, tensor in _fields(inputs).items()})


def _fields(inputs: Queries | NegativeSample) -> dict[str, Tensor]:
    """The tensors that a recipe uses."""
    return {name: tensor for name, tensor in vars(inputs).items() if tensor is not None}
