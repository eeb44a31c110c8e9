"""A training step recorded once as a CUDA graph and replayed: no gaps between GPU kernels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.scoring.negatives import NegativeSample

_Inputs = TypeVar("_Inputs", Queries, NegativeSample)
_WARM_UP = 3  # ordinary steps before the first capture


class CapturedStep:
    """Steps on batches of a few sizes; the value of a step is overwritten by the next."""

    def __init__(self) -> None:
        self._done: dict[int, int] = {}  # steps by number of answers
        self._graphs: dict[int, _Graph] = {}

    def __call__(
        self,
        step: Callable[[Queries, NegativeSample], Tensor],
        queries: Queries,
        sample: NegativeSample,
    ) -> Tensor:
        size = len(queries.answer)
        done = self._done[size] = self._done.get(size, 0) + 1
        # Everything is compiled and allocated before; other sizes need little more.
        if sum(self._done.values()) <= _WARM_UP or done == 1:
            return step(queries, sample)
        if size not in self._graphs:
            memory = next((graph.memory for graph in self._graphs.values()), None)
            self._graphs[size] = _Graph(step, queries, sample, memory)
        return self._graphs[size](queries, sample)


class _Graph:
    """Recording computes nothing. Graphs share memory, as each is done before the next begins."""

    def __init__(
        self,
        step: Callable[[Queries, NegativeSample], Tensor],
        queries: Queries,
        sample: NegativeSample,
        memory: Any,
    ) -> None:
        self._inputs = _copied(queries), _copied(sample)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=memory):
            self._value = step(*self._inputs)
        self.memory = self._graph.pool()

    def __call__(self, queries: Queries, sample: NegativeSample) -> Tensor:
        torch._foreach_copy_(_tensors(*self._inputs), _tensors(queries, sample))
        self._graph.replay()
        return self._value


def _tensors(queries: Queries, sample: NegativeSample) -> list[Tensor]:
    return [*_fields(queries).values(), *_fields(sample).values()]


def _copied(inputs: _Inputs) -> _Inputs:
    return replace(inputs, **{name: tensor.clone() for name, tensor in _fields(inputs).items()})


def _fields(inputs: Queries | NegativeSample) -> dict[str, Tensor]:
    """The tensors that a recipe uses."""
    return {name: tensor for name, tensor in vars(inputs).items() if tensor is not None}
