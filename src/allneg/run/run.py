"""A run's folder: recipe, vocabulary, triples, checkpoints, metrics, report."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from filelock import FileLock, Timeout

from allneg.errors import BadRecipe, BadRun, printable
from allneg.evaluation.report import Report
from allneg.graph.graph import SPLITS, Graph, Triples
from allneg.graph.vocabulary import Vocabulary
from allneg.models import MODELS, Model
from allneg.recipe import Recipe
from allneg.run import checkpoint
from allneg.run.files import (
    TEMPORARY,
    full_disk_named,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
    write_text,
)
from allneg.scoring import Shard, Tables

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Run:
    """One training, on disk.

    The folder stands alone: it holds the triples it was trained on, so that it can be
    evaluated and asked anywhere.
    """

    folder: Path
    recipe: Recipe

    @classmethod
    def create(cls, folder: Path, recipe: Recipe, graph: Graph) -> Run:
        """A new run in a folder that must not hold anything yet."""
        with full_disk_named(folder):
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise BadRecipe(
                    f"{folder}: exists already; `allneg resume` it, or choose another --out"
                )
            folder.mkdir(parents=True, exist_ok=True)
        try:
            cls._write(folder, recipe, graph)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # a part of a run is of no use
            raise
        return cls(folder, recipe)

    @staticmethod
    def _write(folder: Path, recipe: Recipe, graph: Graph) -> None:
        with full_disk_named(folder):
            (folder / "checkpoints").mkdir()
        write_text(folder / "entities.txt", _lines(graph.vocabulary.entities))
        write_text(folder / "relations.txt", _lines(graph.vocabulary.relations))
        splits = {name: _narrow(graph.split(name)) for name in SPLITS}
        write_tensors(folder / "triples.safetensors", splits)
        write_json(folder / "environment.json", _environment())
        write_text(folder / "recipe.toml", recipe.to_toml())
        # Last: a folder without this file is not a run.
        write_json(folder / "run.json", {"format_version": FORMAT_VERSION, "data": graph.name})

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """A run that exists; a `BadRun` says what is missing or of another version."""
        folder = Path(folder)
        if not (folder / "run.json").is_file():
            raise BadRun(
                f"{folder}: not a run (it has no run.json); `allneg train … --out` makes one"
            )
        said = read_json(folder / "run.json")
        version = said.get("format_version") if isinstance(said, dict) else None
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise BadRun(
                f"{folder}: format version {version}, and this allneg reads up to {FORMAT_VERSION};"
                " install a newer allneg"
            )
        try:
            return cls(folder, Recipe.read(folder / "recipe.toml"))
        except BadRecipe as wrong:
            raise BadRun(str(wrong)) from None

    @cached_property
    def graph(self) -> Graph:
        """The triples the run was trained on."""
        names = [_names(self.folder / f"{kind}.txt") for kind in ("entities", "relations")]
        splits = read_tensors(self.folder / "triples.safetensors")
        missing = [name for name in SPLITS if name not in splits]
        if missing:
            raise BadRun(f"{self.folder / 'triples.safetensors'}: no {missing[0]} in it")
        train, valid, test = (splits[name].numpy().astype(np.int64) for name in SPLITS)
        name = read_json(self.folder / "run.json")["data"]
        graph = Graph(name, Vocabulary(*names), train, valid, test)
        if not all(_in_vocabulary(graph.split(each), graph) for each in SPLITS):
            where = self.folder / "triples.safetensors"
            raise BadRun(f"{where}: its ids are not those of the vocabulary; a file is damaged")
        return graph

    @property
    def model(self) -> Model:
        return make_model(self.recipe)

    def tables(self) -> Tables:
        """The best weights so far, on the CPU, checked to fit the recipe and the vocabulary."""
        found = checkpoint.load_best(self.folder / "checkpoints")
        self._check_shapes(found)
        shard = Shard.whole(self.graph.n_entities)
        return Tables(found["entities"], found["relations"], shard, self.recipe.model.reciprocal)

    def _check_shapes(self, found: Mapping[str, torch.Tensor]) -> None:
        rows = self.graph.n_relations * (2 if self.recipe.model.reciprocal else 1)
        wanted = {
            "entities": (self.graph.n_entities, self.model.entity_width),
            "relations": (rows, self.model.relation_width),
        }
        for name, shape in wanted.items():
            have = tuple(found[name].shape) if name in found else None
            if have != shape:
                raise BadRun(f"{self.folder}: the weights' {name} are {have}, the recipe's {shape}")

    @property
    def report(self) -> Report:
        """The test report (valid's where there is no test), once training is done."""
        path = self.folder / "report.json"
        if not path.exists():
            raise BadRun(f"{self.folder}: not finished, so there is no report; `allneg resume` it")
        try:
            return Report.from_json(read_json(path))
        except TypeError as error:
            raise BadRun(f"{path}: not a report ({error}); `allneg evaluate` ranks again") from None

    @property
    def finished(self) -> bool:
        return (self.folder / "report.json").exists()

    @property
    def status(self) -> dict[str, Any]:
        path = self.folder / "status.json"
        return dict(read_json(path)) if path.exists() else {"state": "new"}

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, device and command of the training's start."""
        return dict(read_json(self.folder / "environment.json"))

    def metrics(self) -> list[dict[str, Any]]:
        """One entry an epoch: loss, learning rate, seconds and, where it was ranked, valid."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        # A line without its end was cut by a full disk or a kill; its epoch is trained again.
        try:
            return [json.loads(line) for line in lines if line.endswith("\n")]
        except ValueError as error:
            raise BadRun(f"{path}: not JSON lines ({error}); the file is damaged") from None

    def note(self, entry: dict[str, Any]) -> None:
        """Append an entry to the metrics."""
        with (
            full_disk_named(self.folder / "metrics.jsonl"),
            (self.folder / "metrics.jsonl").open("a") as file,
        ):
            file.write(json.dumps(entry) + "\n")

    def rewind(self, epoch: int) -> None:
        """Forget metrics of epochs after `epoch`, which are going to be trained again."""
        kept = [json.dumps(entry) + "\n" for entry in self.metrics() if entry["epoch"] <= epoch]
        write_text(self.folder / "metrics.jsonl", "".join(kept))

    def say(self, state: str, **more: Any) -> None:
        """Write how the run stands: running, interrupted, finished, diverged."""
        write_json(self.folder / "status.json", {"state": state, **more})

    def save(self, saved: checkpoint.Checkpoint) -> None:
        name = f"epoch-{saved.state.epoch:06d}-step-{saved.state.step:08d}"
        checkpoint.save(self.folder / "checkpoints", name, saved)

    def last(self) -> checkpoint.Checkpoint | None:
        """The last checkpoint, checked as `tables` are, or None when there is none yet."""
        saved = checkpoint.load(self.folder / "checkpoints")
        if saved is not None:
            self._check_shapes(saved.tables)
        return saved

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from training this run; sweep what a killed one left."""
        lock, holder = FileLock(self.folder / ".lock"), self.folder / ".holder"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            who = holder.read_text().strip() if holder.exists() else "another process"
            raise BadRecipe(f"{self.folder}: is being trained by {who}; wait for it") from None
        except OSError as error:
            raise BadRecipe(f"{self.folder}: cannot be written ({error.strerror})") from None
        try:
            with full_disk_named(holder):
                holder.write_text(f"process {os.getpid()} on {socket.gethostname()}")
                self._sweep()
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    def _sweep(self) -> None:
        """Remove what a killed process was in the middle of writing."""
        for left in list(self.folder.rglob(TEMPORARY + "*")):
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)


def make_model(recipe: Recipe) -> Model:
    settings = recipe.model
    return MODELS[settings.name](settings.dim, settings.scale, settings.norm)


def new_folder(recipe: Recipe) -> Path:
    """A name for a run that was given none: runs/DATE_DATA_MODEL, with a number if taken."""
    data = Path(recipe.data.name).name.split(".")[0] or "data"
    base = Path("runs") / f"{time.strftime('%Y-%m-%d')}_{data}_{recipe.model.name}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}_{number}"), number + 1
    return folder


def _lines(names: tuple[str, ...]) -> str:
    return "".join(name + "\n" for name in names)


def _names(path: Path) -> tuple[str, ...]:
    # Only a line feed ends a name: other characters that split lines may be part of one.
    try:
        names = path.read_bytes().decode().split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise BadRun(f"{path}: cannot be read ({error})") from None
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRun(f"{path}: {printable(twice)} stands there twice; the file is damaged")
    return tuple(names)


def _in_vocabulary(triples: Triples, graph: Graph) -> bool:
    if triples.ndim != 2 or triples.shape[1] != 3:
        return False
    sizes = (graph.n_entities, graph.n_relations, graph.n_entities)
    return bool(((triples >= 0) & (triples < sizes)).all())


def _narrow(triples: Any) -> torch.Tensor:
    return torch.from_numpy(triples).to(torch.int32)


def _environment() -> dict[str, Any]:
    return {
        "command": shlex.join(sys.argv),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
