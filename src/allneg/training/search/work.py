"""What one process does for a search; any number of them do it together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from allneg.errors import DataError, Interrupted, RecipeError, RunError
from allneg.graph import read_graph
from allneg.graph.graph import Graph
from allneg.hardware import find_device
from allneg.mesh import Mesh
from allneg.runs.files import full_disk_named
from allneg.training.search.rungs import alive, rungs
from allneg.training.search.space import Space, Trial
from allneg.training.search.standing import write_results
from allneg.training.search.trial import Place, attempt, data_hash, other_data

SECONDS_A_LOOK = 0.5  # at what other processes have done, when they do all that is left


def search(
    space: Space,
    out: Path,
    *,
    halving: bool = False,
    stopped_by: Callable[[], int] = lambda: 0,
) -> None:
    """Try what is not yet tried, and return when every trial has ended, here or elsewhere.

    Call it in as many processes as you like, on any machine that sees `out`: a trial is one
    process's at a time, and what a killed process leaves is taken up from its checkpoint.
    """
    early = rungs(space) if halving else []
    if halving and not early:
        raise RecipeError(
            f"{space.name}: --halving compares where valid is ranked, and that is at the end alone;"
            " lower evaluation.every"
        )
    work = Work(space, out, halving, checked(space, out), stopped_by)
    for epochs in early:
        work.on(alive(space, out), epochs)
    work.on(alive(space, out) if halving else space.trials)
    write_results(space, out, halving)


def checked(space: Space, out: Path) -> Graph:
    """The graph, once data, devices and folder are found to be what a search needs."""
    recipe = space.recipe
    for device in {trial.recipe.hardware.device for trial in space.trials}:
        find_device(device)
    for mesh in {trial.recipe.hardware.mesh for trial in space.trials}:
        Mesh.of(mesh, 1)  # a trial is one process's
    graph = read_graph(recipe.data.name, recipe.data)
    if not len(graph.valid):
        raise DataError(f"{graph.name}: valid has no triples, and a search selects by its MRR")
    with full_disk_named(out):
        for folder in (out / "trials", out / "locks"):
            folder.mkdir(parents=True, exist_ok=True)
    here = data_hash(graph)
    for trial in space.trials:
        place = Place(out, trial)
        result = place.result()
        if result is not None and result.data != here:
            raise RunError(other_data(place.folder, result.data, here))
    return graph


@dataclass(frozen=True)
class Work:
    """A search as one process sees it."""

    space: Space
    out: Path
    halving: bool
    graph: Graph
    stopped_by: Callable[[], int]

    def on(self, trials: Sequence[Trial], epochs: int | None = None) -> None:
        """Return when these trials have ended, or have been trained for so many epochs."""
        left = list(trials)
        while left:
            left = [trial for trial in left if not self.done(trial, epochs)]
            if left:
                self.heed()
                time.sleep(SECONDS_A_LOOK)

    def done(self, trial: Trial, epochs: int | None = None) -> bool:
        """Has a trial ended, perhaps just now, by this process? False where another has it."""
        place = Place(self.out, trial)
        if place.result(epochs) is not None:
            return True
        self.heed()
        try:
            had = attempt(place, self.graph, self.stopped_by, epochs)
        except Interrupted:
            self.heed()
            raise
        if had:
            write_results(self.space, self.out, self.halving)
        return had

    def heed(self) -> None:
        """End where a signal came in; a trial that was at work has been saved."""
        if number := self.stopped_by():
            raise Interrupted("stopped and saved; the same command goes on", number)
