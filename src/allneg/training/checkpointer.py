"""Writes metrics and checkpoints while training continues."""

import time
from contextlib import suppress
from typing import Any

from allneg.errors import ResourceError
from allneg.runs import Run
from allneg.runs.checkpoint import Checkpoint
from allneg.runs.run import LOST
from allneg.scoring.distributed import SINGLE_PROCESS, World
from allneg.training.callbacks import Callbacks


class Checkpointer:
    """Writes to a run. If one save fails because the disk is full, training continues."""

    def __init__(
        self, run: Run, callbacks: Callbacks, again: str, world: World = SINGLE_PROCESS
    ) -> None:
        """`again` continues the run, in words."""
        self._run, self._callbacks, self._again, self._world = run, callbacks, again, world
        self._entries: list[dict[str, Any]] = []  # not written yet
        self._failed = False  # the last save
        self._saved = time.perf_counter()

    def is_due(self) -> bool:
        """Whether `training.save_seconds` have passed since the last save."""
        return time.perf_counter() - self._saved >= self._run.recipe.training.save_seconds

    def add_metrics(self, entry: dict[str, Any]) -> None:
        """Add an entry to the metrics: now or, if that fails, with the next save."""
        self._entries.append(entry)
        with suppress(ResourceError):  # the next save tries again, and reports the error
            self._write_entries()

    def save(self, checkpoint: Checkpoint, required: bool = False) -> None:
        """Write a checkpoint. One failure is reported and tolerated, unless it is required."""
        self._saved = time.perf_counter()
        try:
            self._world.on_rank_zero(self._write_entries)
            self._run.save(checkpoint, self._world)
        except ResourceError as error:
            if required or self._failed:
                remedy = f"Then {self._again} continues the run."
                if self._run.is_lost:
                    remedy = f"{self._run.folder}: {LOST}"
                raise ResourceError(f"{error}\n{remedy}") from None
            self._failed = True
            seconds = self._run.recipe.training.save_seconds
            self._callbacks.on_message(f"not saved: {error}")
            self._callbacks.on_message(f"training continues; next try in {seconds:g} seconds")
        else:
            self._failed = False
            self._callbacks.on_save(checkpoint.state)

    def _write_entries(self) -> None:
        while self._entries:
            self._run.note(self._entries[0])
            del self._entries[0]
