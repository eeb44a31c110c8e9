"""A run's folder: recipe, vocabulary, triples, checkpoints, metrics, report."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from allneg.errors import RecipeError, RunError
from allneg.evaluation.report import Report
from allneg.graph.graph import Graph
from allneg.models import MODELS, Model
from allneg.recipe import Recipe
from allneg.runs import checkpoint
from allneg.runs import disk as seam
from allneg.runs.environment import environment
from allneg.runs.epochs import read_epochs
from allneg.runs.files import (
    append_text,
    full_disk_named,
    read_json,
    read_table,
    sync,
    write_json,
    write_text,
)
from allneg.runs.folder import check_new, take
from allneg.runs.lock import held, is_free
from allneg.runs.shards import Part
from allneg.runs.stored import read_graph, write_graph
from allneg.scoring import Shard, Tables
from allneg.scoring.distributed import SINGLE_PROCESS, World

FORMAT_VERSION = 1
_STATES = ("new", "running", "interrupted", "finished", "diverged", "failed")
# Why there are no weights, and what to do.
_WITHOUT = {
    "finished": "its weights are gone; take them from a copy, or train anew",
    "diverged": "diverged before any weights were saved; train anew, with a lower learning_rate",
}

# Why there is no report.
_UNREPORTED = {
    "finished": "it has neither valid nor test, so there is no report",
    "diverged": "diverged, so there is no report; train anew",
}
_UNFINISHED = "not finished, so there is no report; `allneg resume` it"


@dataclass(frozen=True)
class Run:
    """One training, on disk.

    The folder stands alone: it holds the triples it was trained on, so that it can be
    evaluated and asked anywhere.
    """

    folder: Path
    recipe: Recipe
    writes: bool = True  # not in a process that leaves log and status to the first one

    @classmethod
    def create(cls, folder: Path, recipe: Recipe, graph: Graph) -> Run:
        """A new run in a folder that must not hold anything yet."""
        check_new(folder)
        take(folder)
        try:
            cls._write(folder, recipe, graph)
        except BaseException:
            with contextlib.suppress(OSError):
                seam.disk.remove(folder)  # a part of a run is of no use
            raise
        return cls(folder, recipe)

    @staticmethod
    def _write(folder: Path, recipe: Recipe, graph: Graph) -> None:
        proofs = write_graph(folder, graph)
        write_json(folder / "environment.json", environment(recipe.hardware))
        write_text(folder / "recipe.toml", recipe.to_toml())
        # Last: a folder without this file is not a run.
        about = {"format_version": FORMAT_VERSION, "data": graph.name, "files": proofs}
        write_json(folder / "run.json", about)
        with full_disk_named(folder):
            seam.disk.sync(folder.parent)

    @classmethod
    def open(cls, folder: Path | str, writes: bool = True) -> Run:
        """A run that exists; a `RunError` says what is missing or of another version."""
        folder = Path(folder)
        if not (folder / "run.json").is_file():
            raise RunError(
                f"{folder}: not a run (it has no run.json); `allneg train … --out` makes one"
            )
        said = read_json(folder / "run.json")
        version = said.get("format_version") if isinstance(said, dict) else None
        if type(version) is not int or not isinstance(said.get("data"), str):
            raise RunError(f"{folder / 'run.json'}: does not say what run this is; damaged")
        if not 1 <= version <= FORMAT_VERSION:
            raise RunError(
                f"{folder}: format version {version}, and this allneg reads up to {FORMAT_VERSION};"
                " install a newer allneg"
            )
        try:
            return cls(folder, Recipe.read(folder / "recipe.toml"), writes)
        except RecipeError as wrong:
            raise RunError(str(wrong)) from None

    @cached_property
    def graph(self) -> Graph:
        """The triples the run was trained on."""
        return read_graph(self.folder)

    @property
    def model(self) -> Model:
        return make_model(self.recipe)

    def tables(self) -> Tables:
        """The best weights so far, on the CPU, checked to fit the recipe and the vocabulary."""
        self.need_weights()
        found = checkpoint.load_best(self.folder / "checkpoints")
        self.check_shapes(found)
        shard = Shard.whole(self.graph.n_entities)
        rows = found["entities"], found["relations"]
        return Tables(*rows, shard, self.recipe.model.reciprocal, found.get("shared"))

    def need_weights(self) -> None:
        """Raise a `RunError` where a run that has come to its end has no weights."""
        state = self.status["state"]
        if state in _WITHOUT and not checkpoint.names(self.folder / "checkpoints"):
            raise RunError(f"{self.folder}: {_WITHOUT[state]}")

    def check_shapes(
        self, found: Mapping[str, torch.Tensor | Part], n_entities: int | None = None
    ) -> None:
        """Raise a `RunError` unless tables have the sizes of the recipe and the vocabulary.

        `n_entities` is that of a shard.
        """
        rows = self.graph.n_relations * (2 if self.recipe.model.reciprocal else 1)
        n = self.graph.n_entities if n_entities is None else n_entities
        wanted = {
            "entities": (n, self.model.entity_width),
            "relations": (rows, self.model.relation_width),
        }
        for name, shape in wanted.items():
            have = tuple(found[name].shape) if name in found else None
            if have != shape:
                raise RunError(f"{self.folder}: the weights' {name} are {have}, the recipe's {shape}")

    @property
    def report(self) -> Report:
        """The test report (valid's where there is no test), once training is done."""
        path = self.folder / "report.json"
        if not path.exists():
            raise RunError(f"{self.folder}: {_UNREPORTED.get(self.status['state'], _UNFINISHED)}")
        try:
            return Report.from_json(read_json(path))
        except TypeError:
            raise RunError(f"{path}: not a report; `allneg evaluate` ranks again") from None

    @property
    def has_report(self) -> bool:
        return (self.folder / "report.json").exists()

    @property
    def finished(self) -> bool:
        """Is nothing left to do, not even a report where there is something to rank?"""
        if self.status["state"] != "finished":
            return False
        return self.has_report or not (len(self.graph.valid) or len(self.graph.test))

    @property
    def status(self) -> dict[str, Any]:
        path = self.folder / "status.json"
        said = read_table(path) if path.exists() else {"state": "new"}
        if said.get("state") not in _STATES:
            raise RunError(f"{path}: says no state that a run has; the file is damaged")
        return said

    @property
    def standing(self) -> dict[str, Any]:
        """The status; a run that says it is running while nobody trains it was cut off."""
        said = self.status
        return {**said, "state": "cut off"} if said["state"] == "running" and self.free else said

    @property
    def free(self) -> bool:
        """Whether no process trains this run now."""
        return is_free(self.folder)

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, device and command of the training's start."""
        return read_table(self.folder / "environment.json")

    def metrics(self) -> list[dict[str, Any]]:
        """One entry an epoch: loss, learning rate, seconds and, where it was ranked, valid."""
        return read_epochs(self.folder / "metrics.jsonl")

    def note(self, entry: dict[str, Any]) -> None:
        """Append an entry to the metrics; `save` makes it last."""
        if self.writes:
            append_text(self.folder / "metrics.jsonl", json.dumps(entry) + "\n")

    def rewind(self, epoch: int) -> None:
        """Forget metrics of epochs after `epoch`, which are going to be trained again."""
        if not self.writes:
            return
        kept = [json.dumps(entry) + "\n" for entry in self.metrics() if entry["epoch"] <= epoch]
        write_text(self.folder / "metrics.jsonl", "".join(kept))

    def say(self, state: str, **more: Any) -> None:
        """Write how the run stands: running, interrupted, finished, diverged, failed."""
        if self.writes:
            write_json(self.folder / "status.json", {"state": state, **more})

    def finish(self, report: Report | None, **more: Any) -> None:
        """Write the report, where there is one, and that the run is finished."""
        if self.writes and report is not None:
            write_json(self.folder / "report.json", report.to_json())
        self.say("finished", **more)

    def save(self, saved: checkpoint.Checkpoint, world: World = SINGLE_PROCESS) -> None:
        """Write a checkpoint. The metrics of its epochs are on the disk before it is."""
        metrics = self.folder / "metrics.jsonl"
        world.on_rank_zero(lambda: sync(metrics) if metrics.exists() else None)
        name = f"epoch-{saved.state.epoch:06d}-step-{saved.state.step:08d}"
        checkpoint.save(self.folder / "checkpoints", name, saved, world)

    def last(
        self, say: Callable[[str], None] | None = None, shard: Shard | None = None
    ) -> checkpoint.Checkpoint | None:
        """The last checkpoint, checked as `tables` are, or None when there is none yet.

        With `say`, a damaged one is told of and the whole one before it is taken. With a shard,
        its rows of the entities are all that is read of them.
        """
        folder = self.folder / "checkpoints"
        if say is not None:
            saved = checkpoint.load_or_fall_back(folder, say, shard)
        else:
            saved = checkpoint.load(folder, shard)
        if saved is not None:
            self.check_shapes(saved.tables, None if shard is None else len(shard))
        return saved

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from training this run; sweep what a killed one left."""
        return held(self.folder)


def make_model(recipe: Recipe) -> Model:
    settings = recipe.model
    return MODELS[settings.name](
        settings.dim, settings.scale, settings.norm, settings.squared, settings.bias
    )
