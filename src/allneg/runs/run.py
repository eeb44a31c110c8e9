"""A run: recipe, vocabulary, triples, checkpoints, metrics, report."""

import contextlib
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from allneg.errors import RecipeError, RunError
from allneg.evaluation.calibration import Calibration
from allneg.evaluation.report import Report, is_number
from allneg.graph.graph import Graph
from allneg.models import MODELS, Model
from allneg.models.counts import Counts
from allneg.models.ensemble import Ensemble
from allneg.recipe import MAY_CHANGE, Recipe
from allneg.runs import checkpoint, disk, files, plain
from allneg.runs.about import PACKAGED, About, Member, about_hash
from allneg.runs.folder import (
    claim,
    environment,
    is_free,
    read_graph,
    training_lock,
    write_graph,
)
from allneg.runs.parents import Parent
from allneg.runs.shards import StoredTensor, opened
from allneg.scoring import Shard, Tables
from allneg.scoring.distributed import SINGLE_PROCESS, World

_STATES = ("new", "running", "interrupted", "finished", "diverged", "failed")
_NO_WEIGHTS = {
    "finished": "its weights are missing; copy them from a backup, or train again",
    "diverged": "diverged before any weights were saved; train again with a lower learning_rate",
}
_NO_REPORT = {
    "finished": "it has neither valid nor test, so there is no report",
    "diverged": "diverged, so there is no report; train again",
}
LOST = (
    "was stopped before its first checkpoint, so it cannot be continued; delete it and run "
    "`allneg extend` again"
)


@dataclass(frozen=True)
class Run:
    """A training run on disk. The folder holds the triples, so it can be used on any machine."""

    folder: Path
    recipe: Recipe  # of an ensemble: that of its first member
    writes: bool = True  # False in processes that leave metrics and status to rank zero
    id: str | None = None  # SHA-256 of run.json, which every checkpoint names; None in format 1
    members: tuple[Member, ...] = ()  # of an ensemble
    is_trainable: bool = True
    parents: tuple[Parent, ...] = ()  # the runs it was made from, the oldest first

    def __repr__(self) -> str:
        model, data = self.recipe.model, self.recipe.data.name
        return f"<Run {self.folder}: {model.name} with dim {model.dim} on {data}>"

    @classmethod
    def create(
        cls,
        folder: Path,
        recipe: Recipe,
        graph: Graph,
        parents: tuple[Parent, ...] = (),
        start: checkpoint.Checkpoint | None = None,
    ) -> Self:
        """A new run, in a folder that must be empty or missing; `start` is where it begins."""
        return cls(folder, recipe, parents=parents).write(graph, start)

    def write(
        self, graph: Graph, start: checkpoint.Checkpoint | None, report: Report | None = None
    ) -> Self:
        """Write the folder of a new run, which must be empty or missing; the run with its id.

        A run that cannot be trained is finished; it may have a report.
        """
        claim(self.folder)
        with files.removed_on_error(self.folder):
            about = About(self.recipe, None, self.members, self.is_trainable, self.parents)
            content = about.to_json(graph, write_graph(self.folder, graph))
            files.write_json(self.folder / "environment.json", environment(self.recipe.hardware))
            files.write_text(self.folder / "recipe.toml", self.recipe.to_toml())
            run = replace(self, id=about_hash(content))
            if start is not None:
                run.save(start)
            if not run.is_trainable:
                run.finish(report)
            # Last: a folder without this file is not a run.
            files.write_json(self.folder / "run.json", content)
            files.sync(self.folder.parent)
        return run

    @classmethod
    def open(cls, folder: Path | str, writes: bool = True) -> Self:
        """An existing run. Raises a `RunError` if it is incomplete or of a newer version.

        `countries-demo` is part of the package, unless there is a folder of that name.
        """
        folder = Path(folder)
        if not folder.exists():
            folder = PACKAGED.get(str(folder), folder)
        about = About.read(folder)
        return cls(
            folder, about.recipe, writes, about.id, about.members, about.is_trainable, about.parents
        )

    def with_settings(self, settings: Iterable[str] | Mapping[str, object]) -> Self:
        """This run with other settings, of those that may change; nothing is written yet."""
        recipe = self.recipe.with_settings(settings)
        if changes := recipe.fixed_changes(self.recipe):
            raise RecipeError(f"--set {changes[0]}; only {MAY_CHANGE} may change")
        return replace(self, recipe=recipe)

    def write_recipe(self) -> None:
        """Write the recipe of `with_settings`; a finished run becomes an unfinished one."""
        if self.finished:
            self.set_status("interrupted")
        with files.write_errors(self.folder):
            disk.remove(self.folder / "report.json")  # of the old recipe
        files.write_text(self.folder / "recipe.toml", self.recipe.to_toml())

    @cached_property
    def graph(self) -> Graph:
        """The triples that the run is trained on."""
        return read_graph(self.folder)

    @property
    def model(self) -> Model:
        if not self.members:
            return make_model(self.recipe)
        reciprocal = [member.recipe.model.reciprocal for member in self.members]
        spreads = [member.spread for member in self.members]
        models = [
            Counts(member.recipe.model.dim, 0.0) if member.is_counted else make_model(member.recipe)
            for member in self.members
        ]
        return Ensemble.of(models, reciprocal, spreads)

    @property
    def model_name(self) -> str:
        """complex, for example, or ensemble: complex, rotate."""
        names = ", ".join(member.model_name for member in self.members)
        return f"ensemble: {names}" if names else self.recipe.model.name

    @property
    def reciprocal(self) -> bool:
        """Whether head queries have relation rows of their own."""
        return bool(self.members) or self.recipe.model.reciprocal

    @property
    def first_new_entity(self) -> int:
        """The id of the first entity that the last `extend` added; else their number."""
        is_extended = self.parents and self.parents[-1].touch != "start"
        return self.parents[-1].entities if is_extended else self.graph.n_entities

    def tables(self) -> Tables:
        """The best weights so far, on the CPU, after checking that they fit recipe and graph."""
        self.need_weights()
        found = checkpoint.load_best(self.folder / "checkpoints", self.id)
        self.check_shapes(found)
        found = {
            name: tensor.float() if tensor.dtype is torch.bfloat16 else tensor
            for name, tensor in found.items()
        }
        shard = Shard.whole(self.graph.n_entities)
        rows = found["entities"], found["relations"]
        return Tables(*rows, shard, self.reciprocal, found.get("shared"))

    @contextlib.contextmanager
    def stored_tables(self) -> Iterator[dict[str, StoredTensor]]:
        """The best weights so far, after the same checks, to be read in blocks."""
        self.need_weights()
        kinds = checkpoint.verify(checkpoint.last_folder(self.folder / "checkpoints"), self.id)
        with opened(kinds.get("best", kinds["tables"])) as tensors:
            self.check_shapes(tensors)
            yield tensors

    def need_weights(self) -> None:
        """Raise a `RunError` if a run has ended without weights."""
        state = self.live_status["state"]
        if state in _NO_WEIGHTS and not checkpoint.names(self.folder / "checkpoints"):
            raise RunError(f"{self.folder}: {_NO_WEIGHTS[state]}")
        if state in ("cut off", "failed", "interrupted") and self.is_lost:
            raise RunError(f"{self.folder}: {LOST}")

    def need_trainable(self, instead: str) -> None:
        """Raise a `RecipeError`, which says what to do instead, if the run is not trained."""
        if not self.is_trainable:
            what = "an ensemble" if self.members else "a converted run or a bfloat16 copy"
            raise RecipeError(f"{self.folder}: {what} is not trained; {instead}")

    @property
    def is_lost(self) -> bool:
        """Whether the run begins with rows of another run that were not saved before it stopped."""
        return bool(self.parents) and not checkpoint.names(self.folder / "checkpoints")

    def check_shapes(
        self, found: Mapping[str, Tensor | StoredTensor], n_entities: int | None = None
    ) -> None:
        """Raise a `RunError` unless tables have their shapes; `n_entities` is that of a shard."""
        n_relations = self.graph.n_relations * (2 if self.reciprocal else 1)
        rows = self.graph.n_entities if n_entities is None else n_entities
        expected: dict[str, tuple[int, ...]] = {
            "entities": (rows, self.model.entity_width),
            "relations": (n_relations, self.model.relation_width),
        }
        if self.model.shared_shape is not None:
            expected["shared"] = self.model.shared_shape
        for name, shape in expected.items():
            have = tuple(found[name].shape) if name in found else None
            if have != shape:
                raise RunError(f"{self.folder}: {name} in the weights are {have}, not {shape}")
        dtypes = {tensor.dtype for tensor in found.values()}
        small = [] if self.is_trainable else [torch.bfloat16]
        allowed = [torch.float32, torch.float64, *small]
        if dtypes not in [{dtype} for dtype in allowed]:
            kinds = ", ".join(sorted(map(str, dtypes)))
            raise RunError(f"{self.folder}: the weights are {kinds}, not torch.float32")

    @property
    def report(self) -> Report:
        """The report on test, or on valid if there is no test. Training must be finished."""
        path = self.folder / "report.json"
        if not plain.exists(path):
            unfinished = "not finished, so there is no report; run `allneg resume`"
            raise RunError(f"{self.folder}: {_NO_REPORT.get(self.status['state'], unfinished)}")
        try:
            return Report.from_json(files.read_json(path, files.LARGE))
        except TypeError:
            raise RunError(f"{path}: not a report; `allneg evaluate` ranks again") from None

    @property
    def calibration(self) -> Calibration | None:
        """The calibration in the report; None if there is none, as in runs of earlier versions."""
        found = self.report.calibration if self.has_report else {}
        return Calibration.from_json(found) if found else None

    @property
    def has_report(self) -> bool:
        return plain.exists(self.folder / "report.json")

    @property
    def finished(self) -> bool:
        """Whether training is done and the report, if there are triples to rank, is written."""
        if self.status["state"] != "finished":
            return False
        return self.has_report or not (len(self.graph.valid) or len(self.graph.test))

    @property
    def status(self) -> dict[str, Any]:
        path = self.folder / "status.json"
        content = files.read_json(path) if plain.exists(path) else {"state": "new"}
        if content.get("state") not in _STATES or not isinstance(content.get("reason", ""), str):
            raise RunError(f"{path}: has an unknown state; the file is damaged")
        return content

    @property
    def live_status(self) -> dict[str, Any]:
        """The status; "cut off" if it is running but no process trains it."""
        status = self.status
        cut_off = status["state"] == "running" and is_free(self.folder)
        return {**status, "state": "cut off"} if cut_off else status

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, device and command at the start of training."""
        return files.read_json(self.folder / "environment.json")

    def metrics(self) -> list[dict[str, Any]]:
        """One entry per epoch: loss, learning rate, seconds and, if it was evaluated, valid."""
        path = self.folder / "metrics.jsonl"
        try:
            data = files.read_bytes(path, files.LARGE) if plain.exists(path) else b""
            # A line without its end was cut by a full disk or a kill; that epoch is trained again.
            entries = [files.parse_json(line) for line in data.split(b"\n")[:-1]]
        except ValueError as error:
            raise RunError(f"{path}: not JSON lines ({error}); the file is damaged") from None
        if not all(map(_is_epoch, entries)):
            raise RunError(f"{path}: a line is not an epoch's entry; the file is damaged")
        return entries

    def note(self, entry: dict[str, Any]) -> None:
        """Append an entry to the metrics; `save` makes it durable."""
        if self.writes:
            files.append_text(self.folder / "metrics.jsonl", json.dumps(entry) + "\n")

    def rewind(self, epoch: int) -> None:
        """Drop the metrics of epochs after `epoch`, which will be trained again."""
        if self.writes:
            kept = [json.dumps(entry) + "\n" for entry in self.metrics() if entry["epoch"] <= epoch]
            files.write_text(self.folder / "metrics.jsonl", "".join(kept))

    def set_status(self, state: str, **more: Any) -> None:
        """Write status.json: running, interrupted, finished, diverged or failed."""
        if self.writes:
            files.write_json(self.folder / "status.json", {"state": state, **more})

    def finish(self, report: Report | None, **more: Any) -> None:
        """Write the report, if there is one, and the status "finished"."""
        if self.writes and report is not None:
            files.write_json(self.folder / "report.json", report.to_json())
        self.set_status("finished", **more)

    def save(self, saved: checkpoint.Checkpoint, world: World = SINGLE_PROCESS) -> None:
        """Write a checkpoint, after syncing the metrics of its epochs."""
        metrics = self.folder / "metrics.jsonl"
        world.on_rank_zero(lambda: files.sync(metrics) if plain.exists(metrics) else None)
        name = f"epoch-{saved.state.epoch:06d}-step-{saved.state.step:08d}"
        checkpoint.save(self.folder / "checkpoints", name, saved, world, self.id)

    def last(
        self, warn: Callable[[str], None] | None = None, shard: Shard | None = None
    ) -> checkpoint.Checkpoint | None:
        """The last checkpoint, checked; see `checkpoint.load` for `warn` and `shard`."""
        saved = checkpoint.load(self.folder / "checkpoints", shard, warn, self.id)
        if saved is not None:
            for tables in (saved.tables, saved.best or saved.tables):
                self.check_shapes(tables, None if shard is None else len(shard))
        return saved

    def extend(self, facts: Any = None, **options: Any) -> Self:
        """A new run with more facts; see `allneg.extend` for the options."""
        made: Self = importlib.import_module("allneg.training.extend").extend(
            self, facts, **options
        )
        return made

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Lock the run for training, and delete what a killed process left behind."""
        return training_lock(self.folder)


def make_model(recipe: Recipe) -> Model:
    settings = recipe.model
    return MODELS[settings.name](
        settings.dim, settings.scale, settings.norm, settings.squared, settings.bias
    )


def _is_epoch(entry: Any) -> bool:
    """Does an entry of the metrics have the fields that are read?"""
    try:
        numbers = (entry["epoch"], entry["seconds"], entry.get("valid", {"mrr": 0})["mrr"])
    except (TypeError, KeyError, AttributeError):
        return False
    return type(entry["epoch"]) is int and all(map(is_number, numbers))


def best_of(entries: Iterable[Mapping[str, Any]]) -> tuple[float | None, int | None]:
    """The best validation MRR and its epoch; among equals the first, whose weights were kept."""
    ranked = [(entry["valid"]["mrr"], entry["epoch"]) for entry in entries if "valid" in entry]
    return max(ranked, key=lambda pair: pair[0], default=(None, None))
