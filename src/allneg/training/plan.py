"""What a recipe will take, computed before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from allneg.errors import OutOfMemoryError
from allneg.graph.graph import Graph
from allneg.hardware import memory
from allneg.kernels.choose import why
from allneg.mesh import Mesh
from allneg.models import Model
from allneg.recipe import Recipe
from allneg.runs import make_model
from allneg.scoring.streamed import block_rows
from allneg.scoring.tables import MULTIPLE
from allneg.training.captured import is_captured
from allneg.training.counts import Counts
from allneg.training.trainer import keeps_rounded, needs_known

_FLOAT = 4
_ID = 8
_NARROW = 2
_MEMORIES = {"adagrad": 1, "adam": 2, "sgd": 0}  # tables an optimiser keeps beside each table
# Copies of a block of scores that a loss makes beside it, at its peak.
_COPIES = {"softmax": 0.0, "margin": 1.0, "logistic": 2.0, "self-adversarial": 3.0}
_SMOOTHED = 3.0
_LONE = Mesh()
_SORTED = 2  # of known answers: they are sorted into others
_ROW_COPIES = 14  # of a batch's rows: looked up, query, penalty, and the gradients of each


@dataclass(frozen=True)
class Plan:
    """Bytes by purpose. What is kept stays all the time; the two phases take turns."""

    device: str
    path: str  # how the loss holds its scores, and which engine compares
    kept: Mapping[str, int]
    training: Mapping[str, int]
    ranking: Mapping[str, int]

    captured: bool = False  # a captured step holds its memory while valid is ranked, too
    host: Mapping[str, int] = field(default_factory=dict)  # of the host, where tables lie there

    @property
    def peak(self) -> int:
        phases = (sum(self.training.values()), sum(self.ranking.values()))
        return sum(self.kept.values()) + (sum(phases) if self.captured else max(phases))

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "peak": self.peak}


def plan(recipe: Recipe, graph: Graph | Counts, device: torch.device, mesh: Mesh = _LONE) -> Plan:
    """The bytes a training on `device` takes there; of a mesh, on each device."""
    model = make_model(recipe)
    counts = graph if isinstance(graph, Counts) else Counts.of(graph)
    n = -(-counts.entities // mesh.rows)  # a float would round a large number
    relations = counts.relations * (2 if recipe.model.reciprocal else 1)
    padded = n if device.type == "cpu" else -(-n // MULTIPLE) * MULTIPLE
    table = _FLOAT * (padded * model.entity_width + relations * model.relation_width)
    size = -(-recipe.training.batch_size // mesh.batch)
    queries = min(size, recipe.training.micro_batch or size)
    part = replace(recipe, training=replace(recipe.training, micro_batch=queries))
    n_questions = 2 * counts.train
    known = n_questions * 3 * _ID
    rows = _ROW_COPIES * queries * model.entity_width * _FLOAT
    away = recipe.hardware.table == "host" and device.type != "cpu"
    rounded = keeps_rounded(recipe, device)
    learnt = {
        "tables": _pinned(table) if away else table,
        "gradients": _pinned(table) if away else table,
        "optimizer": _MEMORIES[recipe.optimizer.name] * table,
        "best tables": table if counts.valid else 0,
    }
    return Plan(
        device=str(device),
        path=how(part, n, device),
        kept={
            **({} if away else learnt),
            "triples and their order": counts.train * 3 * _ID + n_questions * _ID,
            "known answers": known if needs_known(recipe) else 0,
            "bfloat16 entities": _NARROW * padded * model.entity_width if rounded else 0,
        },
        training={
            "scores": _scores(part, model, padded),
            "rows of a batch": rows,
            "bfloat16 copies": _narrow(part, model, padded, rounded),
            "rows on their way": _on_their_way(recipe, model, padded) if away else 0,
        },
        ranking={
            "scores": _ranked(recipe, counts, n) * _FLOAT,
            "known answers": _SORTED * known if counts.valid or counts.test else 0,
        },
        captured=is_captured(recipe, device) and mesh.size == 1,
        host=learnt if away else {},
    )


def refuse_if_too_large(recipe: Recipe, graph: Graph, device: torch.device, parts: int) -> None:
    """Say of tables that do not fit, even in so many parts, what would, before all is begun."""
    model, holder = make_model(recipe), device
    if recipe.hardware.table == "host":
        holder = torch.device("cpu")
    size = _FLOAT * graph.n_entities * model.entity_width // parts
    there_is = memory(holder)
    if there_is is not None and size > there_is:
        raise OutOfMemoryError(
            f"the entities' rows alone take {size / 2**30:,.1f} GiB, and {holder} has "
            f"{there_is / 2**30:,.1f}; lower model.dim (`allneg plan` counts all of it)"
        )


def how(recipe: Recipe, n_entities: int, device: torch.device) -> str:
    """One line: how the loss holds its scores, and which engine compares."""
    model, loss = make_model(recipe), recipe.loss
    columns = (
        n_entities
        if loss.negatives == "all"
        else recipe.training.batch_size + (loss.n_negatives or 0)
    )
    queries = recipe.training.micro_batch or recipe.training.batch_size
    size = block_rows(queries, columns, loss.block)
    held = f"{queries:,} queries × {columns:,} candidates"
    if loss.negatives == "per_query":
        held = (
            f"{queries:,} queries × {1 + (loss.n_negatives or 0):,} rows of their own, kept whole"
        )
    elif size >= columns:
        held += " kept whole"
    else:
        held += f" streamed, {size:,} at a time"
    if recipe.hardware.table == "host":
        held += ", rows from the host's memory"
    if model.kernel in ("l1", "modulus"):
        return f"{held}; {why(model.kernel, device)}"
    return f"{held}; {model.kernel} on {device}: matrix products"


def _pinned(size: int) -> int:
    """Bytes that torch takes for so many in pinned memory: a power of two."""
    return 1 << (size - 1).bit_length()


def _on_their_way(recipe: Recipe, model: Model, n: int) -> int:
    """Bytes of blocks of rows on a device: two that come, and three of gradients that leave."""
    queries = recipe.training.micro_batch or recipe.training.batch_size
    return 5 * block_rows(queries, n, recipe.loss.block) * model.entity_width * _FLOAT


def _scores(recipe: Recipe, model: Model, n: int) -> int:
    """Bytes of a block of scores and its copies, and of candidates' own rows."""
    loss, queries = recipe.loss, recipe.training.micro_batch or recipe.training.batch_size
    copies = 1 + _COPIES[loss.name] + (_SMOOTHED if loss.label_smoothing else 0)
    count = loss.n_negatives or 0
    if loss.negatives == "per_query":
        # Each question's rows, their differences or products, and the gradients of both.
        return int(4 * queries * (1 + count) * model.entity_width * _FLOAT)
    columns, gathered = n, 0
    if loss.negatives == "shared":
        columns = recipe.training.batch_size + min(n, count)
        gathered = 2 * columns * model.entity_width * _FLOAT
    block = block_rows(queries, columns, loss.block)
    return int(copies * queries * block * _FLOAT) + gathered


def _narrow(recipe: Recipe, model: Model, n: int, rounded: bool) -> int:
    """Bytes of the rows, unless they are kept rounded, and slopes rounded for narrow products."""
    if recipe.hardware.precision != "bf16" or model.kernel != "dot":
        return 0
    queries = recipe.training.micro_batch or recipe.training.batch_size
    block = block_rows(queries, n, recipe.loss.block)
    rows = queries if rounded else queries + block
    return _NARROW * (rows * model.entity_width + queries * block)


def _ranked(recipe: Recipe, counts: Counts, n: int) -> int:
    """Scores held at once while valid or test is ranked."""
    block = max(1, recipe.evaluation.block // n)
    return min(block, max(counts.valid, counts.test)) * n
