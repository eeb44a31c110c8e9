"""Puts metrics and checkpoints on the disk while training goes on."""

from __future__ import annotations

import time
from typing import Any

from allneg.errors import ResourceError
from allneg.runs import Run
from allneg.runs.checkpoint import Checkpoint
from allneg.scoring.distributed import SINGLE_PROCESS, World
from allneg.training.callbacks import Callbacks


class Checkpointer:
    """Writes to a run; a disk that is full at one save may have room again at the next."""

    def __init__(self, run: Run, callbacks: Callbacks, world: World = SINGLE_PROCESS) -> None:
        self._run, self._watch, self._world = run, callbacks, world
        self._entries: list[dict[str, Any]] = []  # not yet written
        self._failed = False  # the last save
        self._saved = time.perf_counter()

    def due(self) -> bool:
        """Has the recipe's time between two saves passed?"""
        return time.perf_counter() - self._saved >= self._run.recipe.training.save_seconds

    def note(self, entry: dict[str, Any]) -> None:
        """Add an entry to the metrics, now or, where that fails, with the next save."""
        self._entries.append(entry)
        try:
            self._write_entries()
        except ResourceError:
            return  # the save that tries again is the one to complain

    def save(self, checkpoint: Checkpoint, must: bool = False) -> None:
        """Write a checkpoint; one failure is told of and outlived, unless this one must be."""
        self._saved = time.perf_counter()
        try:
            self._world.on_rank_zero(self._write_entries)
            self._run.save(checkpoint, self._world)
        except ResourceError as problem:
            if must or self._failed:
                raise
            self._failed = True
            seconds = self._run.recipe.training.save_seconds
            self._watch.said(f"not saved: {problem}")
            self._watch.said(f"training goes on, and tries to save again in {seconds:g} seconds")
        else:
            self._failed = False

    def _write_entries(self) -> None:
        while self._entries:
            self._run.note(self._entries[0])
            del self._entries[0]
