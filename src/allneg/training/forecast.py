"""How long a training takes, measured on its first steps."""

import time

import torch

from allneg.errors import counted
from allneg.graph.graph import Graph
from allneg.graph.queries import Queries
from allneg.recipe import Recipe
from allneg.scoring.scores import scores
from allneg.training.trainer import Trainer

_WARM_UP = 5  # steps that also compile, allocate and capture
_MEASURED = 30  # steps
_SECONDS = 1.0  # slow steps are measured for about this long
_RANKED = 64  # queries that are compared with all entities, to measure a ranking
_FILTER = 1.5  # a ranking also filters and counts


class Forecast:
    """Tells how long the epochs that are left take. Call it after every step of an epoch."""

    def __init__(self, trainer: Trainer, graph: Graph, recipe: Recipe) -> None:
        self._trainer, self._graph, self._recipe = trainer, graph, recipe
        self._steps, self._start, self.is_done = 0, 0.0, trainer.world.size > 1

    def __call__(self, queries: Queries, n_steps: int, epochs_left: int) -> str | None:
        """The message, once; None before and after."""
        self._steps += 1
        if self._steps == _WARM_UP:
            self._start = self._now()
        steps = self._steps - _WARM_UP
        is_slow = self._on_cpu and time.perf_counter() - self._start > _SECONDS
        if steps < 1 or (steps < _MEASURED and not is_slow):
            return None
        self.is_done = True
        epoch = (self._now() - self._start) / steps * n_steps
        return (
            f"about {duration(epoch)} per epoch; at most "
            f"{duration(epochs_left * epoch + self._rankings(queries, epochs_left))} "
            f"for the {counted(epochs_left, 'epoch')} left"
        )

    def _rankings(self, queries: Queries, epochs_left: int) -> float:
        """The seconds of all rankings of valid, and that of test."""
        trainer, sample = self._trainer, queries[:_RANKED]
        for _ in range(2):  # the first one allocates
            began = self._now()
            scores(trainer.model, trainer.tables, sample)
            per_query = (self._now() - began) / len(sample)
        n_valid = -(-epochs_left // self._recipe.evaluation.every)
        ranked = n_valid * len(self._graph.valid) + len(self._graph.test)
        return 2 * ranked * per_query * _FILTER

    @property
    def _on_cpu(self) -> bool:
        return self._trainer.tables.device.type == "cpu"

    def _now(self) -> float:
        if self._trainer.tables.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def duration(seconds: float) -> str:
    """Seconds as people write them: 0.05 s, 12 s, 14 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
