"""How much memory a recipe needs, computed before training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import torch

from allneg.errors import OutOfMemoryError
from allneg.graph.graph import Graph
from allneg.hardware import memory
from allneg.kernels.attention import PARTIAL_ROWS
from allneg.models import Model
from allneg.recipe import Mesh, Recipe
from allneg.runs import make_model
from allneg.scoring.losses import loss_class
from allneg.scoring.regularizers import REGULARIZERS, PowerSum
from allneg.scoring.tables import ROWS_PER_SEED, padding_multiple
from allneg.training.execution import ExecutionPlan
from allneg.training.optimizers import OPTIMIZERS

_FLOAT = 4
_ID = 8
_BF16 = 2
_SINGLE = Mesh()
_TOLERANCE = 1.15  # a plan is within 15 % of the measured peak
_SORTED = 2  # known answers are sorted into a second copy
_ROW_COPIES = 14  # of a batch's rows: gathered, query, penalty, and the gradients of each
_ANSWER_COPIES = 2  # of them those of answers: gathered, and their gradient
_ATTENTION_COPIES = 4  # of grouped answers: their queries and rows, and the gradients of both
_REPEATED_COPIES = 8  # of a query's rows for each of its answers, with some penalties
_ANSWERS = 4.0  # of a distinct query, where their number is not known


@dataclass(frozen=True)
class Counts:
    """How many entities, relations, triples and distinct queries a graph has."""

    entities: int
    relations: int
    train: int  # triples
    valid: int = 0
    test: int = 0
    queries: int | None = None  # distinct ones of train, counted only for grouped queries

    @classmethod
    def of(cls, graph: Graph, recipe: Recipe) -> Counts:
        sizes = (len(graph.train), len(graph.valid), len(graph.test))
        queries = graph.n_distinct_queries if recipe.loss.grouped else None
        return cls(graph.n_entities, graph.n_relations, *sizes, queries)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose. `kept` is always allocated; training and ranking alternate."""

    device: str
    path: str  # how a step runs
    kept: Mapping[str, int]
    training: Mapping[str, int]
    ranking: Mapping[str, int]
    saved: int  # by a process, in each checkpoint

    captured: bool = False  # a captured step also keeps its memory during rankings
    host: Mapping[str, int] = field(default_factory=dict)  # of the host, where tables are there
    mesh: Mesh = _SINGLE
    gpu: str | None = None  # its name, if the plan is for one that need not be here
    available: int | None = None  # bytes of the device

    @property
    def peak(self) -> int:
        phases = (sum(self.training.values()), sum(self.ranking.values()))
        return sum(self.kept.values()) + (sum(phases) if self.captured else max(phases))

    def too_large(self, available: int) -> str | None:
        """What to lower so that the plan fits in `available` bytes; None if it fits."""
        if self.peak <= available:
            return None
        if sum(self.kept.values()) > available:
            return "model.dim"
        phases = {"training": "training.micro_batch or loss.block", "ranking": "evaluation.block"}
        return phases[max(phases, key=lambda phase: sum(getattr(self, phase).values()))]

    @property
    def fits(self) -> bool | None:
        """Whether the device has enough memory; None if that is unknown."""
        return None if self.available is None else self.peak <= self.available

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "mesh": str(self.mesh), "peak": self.peak, "fits": self.fits}


def plan(
    recipe: Recipe, graph: Graph | Counts, device: torch.device, mesh: Mesh = _SINGLE
) -> MemoryPlan:
    """The bytes a training takes on `device`; with a mesh, on each device."""
    model = make_model(recipe)
    counts = graph if isinstance(graph, Counts) else Counts.of(graph, recipe)
    n = -(-counts.entities // mesh.rows)  # a float would round a large number
    padded = n + -n % padding_multiple(n, device)
    execution = ExecutionPlan.decide(recipe, model, padded, device, mesh)
    table = _FLOAT * (padded * model.entity_width + _other_parameters(recipe, model, counts))
    on_host = execution.host_table and device.type != "cpu"
    learnt = {
        "tables": _pinned(table) if on_host else table,
        "gradients": _pinned(table) if on_host else table,
        "optimizer": OPTIMIZERS[recipe.optimizer.name].state_tables * table,
        "best tables": table if counts.valid else 0,
        "averaged tables": table if recipe.training.average else 0,
    }
    known, row = 2 * counts.train * 3 * _ID, model.entity_width * _FLOAT
    copy = _BF16 * padded * model.entity_width if execution.keeps_bf16_copy else 0
    return MemoryPlan(
        device=str(device),
        path=str(execution),
        mesh=mesh,
        kept={
            **({} if on_host else learnt),
            "triples and their order": counts.train * 5 * _ID,
            "known answers": known if execution.needs_known else 0,
            "bfloat16 entities": copy,
        },
        training={
            "scores": _scores(recipe, model, execution),
            "rows of a batch": _rows(recipe, model, execution, counts),
            "repeated rows": _repeated(recipe, model, execution, counts),
            "pruned tables": 3 * table if recipe.loss.distillation else 0,  # and their gradients
            "bfloat16 copies": _bf16_copies(model, execution),
            # Two blocks of rows come to the device, and three of gradients leave it.
            "streamed rows": 5 * (execution.block or padded) * row if on_host else 0,
        },
        ranking={
            "scores": _ranked(recipe, counts, n) * _FLOAT,
            "known answers": _SORTED * known if counts.valid or counts.test else 0,
        },
        saved=table * (1 + OPTIMIZERS[recipe.optimizer.name].state_tables + bool(counts.valid)),
        captured=execution.is_captured,
        host=learnt if on_host else {},
    )


def check_memory(
    recipe: Recipe, graph: Graph, device: torch.device, mesh: Mesh, others: int = 0
) -> MemoryPlan:
    """The plan of a training; an `OutOfMemoryError` if it cannot fit in memory.

    `others` are the bytes of an extension's other facts.
    """
    # No batch is larger than an epoch.
    batch = min(recipe.training.batch_size, 2 * len(graph.train))
    recipe = replace(recipe, training=replace(recipe.training, batch_size=batch))
    # A ranking that runs out of memory continues with smaller blocks.
    made = plan(recipe, graph, device, mesh)
    made = replace(made, training={**made.training, "other facts": others}, ranking={})
    available = memory(device)
    if available is not None and (lower := made.too_large(int(available * _TOLERANCE))):
        _refuse(made.peak, device, available, lower)
    host, available = torch.device("cpu"), memory(torch.device("cpu"))
    model = make_model(recipe)
    initial = _FLOAT * ROWS_PER_SEED * max(model.entity_width, model.relation_width)
    size = initial + sum((made.kept if device == host else made.host).values())
    if available is not None and size > available:
        _refuse(size, host, available, "model.dim")
    return made


def _refuse(size: int, device: torch.device, available: int, lower: str) -> NoReturn:
    raise OutOfMemoryError(
        f"training needs {size / 2**30:,.1f} GiB, but {device} has {available / 2**30:,.1f}; "
        f"lower {lower} (`allneg plan` prints the whole plan)"
    )


def _other_parameters(recipe: Recipe, model: Model, counts: Counts) -> int:
    """Numbers in the relation table and the model's shared tensor."""
    relations = counts.relations * (2 if recipe.model.reciprocal else 1)
    shape = model.shared_shape
    shared = torch.Size(shape).numel() if shape is not None else 0
    return relations * model.relation_width + shared


def _pinned(size: int) -> int:
    """Bytes that PyTorch takes in pinned memory: a power of two."""
    return 1 << (size - 1).bit_length()


def _rows(recipe: Recipe, model: Model, execution: ExecutionPlan, counts: Counts) -> int:
    """Bytes of a batch's rows with all copies and gradients, and of combined relations."""
    of_answers = _ANSWER_COPIES + _ATTENTION_COPIES * execution.by_attention
    copies = _ROW_COPIES + of_answers * _more_answers(recipe, counts)
    width = max(model.entity_width, model.relation_width)
    combined = 0
    if model.shared_shape is not None:  # a relation combined with the shared tensor may be wider
        combined = 4 * execution.queries * model.entity_width**2 * _FLOAT
    return int(copies * execution.queries * width * _FLOAT) + combined


def _repeated(recipe: Recipe, model: Model, execution: ExecutionPlan, counts: Counts) -> int:
    """Bytes of rows that a penalty repeats for each answer, after the scores are freed."""
    penalty = REGULARIZERS[recipe.regularizer.name]
    if penalty is None or issubclass(penalty, PowerSum):
        return 0
    rows = execution.queries * _more_answers(recipe, counts)
    width = max(model.entity_width, model.relation_width)
    scores = _scores(recipe, model, execution)
    return max(0, int(_REPEATED_COPIES * rows * width * _FLOAT) - scores)


def _more_answers(recipe: Recipe, counts: Counts) -> float:
    """How many answers a grouped query has after its first one, on average."""
    if not recipe.loss.grouped:
        return 0.0
    return (2 * counts.train / counts.queries if counts.queries else _ANSWERS) - 1


def _scores(recipe: Recipe, model: Model, execution: ExecutionPlan) -> int:
    """Bytes of a block of scores with its copies, and of gathered candidates' rows."""
    row = model.entity_width * _FLOAT
    if execution.negatives == "per_query":
        # Each query's rows, their differences or products, and the gradients of both.
        return 4 * execution.queries * execution.columns * row
    distilled = 6 if recipe.loss.distillation else 0
    copies = 1 + distilled + loss_class(recipe.loss).score_copies + model.kernel.keeps_scores
    gathered = 2 * execution.columns * row if execution.negatives == "shared" else 0
    if execution.by_attention:  # a bit for each score, and partial means of rows
        bits = execution.queries * execution.columns // 8 if recipe.loss.mask_known else 0
        return bits + gathered + PARTIAL_ROWS * row
    block = execution.block or execution.columns
    return int(copies * execution.queries * block * _FLOAT) + gathered


def _bf16_copies(model: Model, execution: ExecutionPlan) -> int:
    """Bytes of queries, rows and score gradients rounded for products."""
    if not execution.bf16:
        return 0
    block = execution.block or execution.columns
    rows = execution.queries + (0 if execution.keeps_bf16_copy else block)
    scores = 0 if execution.by_attention else execution.queries * block
    return _BF16 * (rows * model.entity_width + scores)


def _ranked(recipe: Recipe, counts: Counts, n: int) -> int:
    """Scores held at once while valid or test is ranked."""
    block = max(1, recipe.evaluation.block // n)
    return min(block, max(counts.valid, counts.test)) * n
