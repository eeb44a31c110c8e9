"""The time of a training step, estimated from its products, memory traffic and messages.

Everything is counted for one device of the mesh. Each of `rows` devices compares b = B / batch
queries with n = N / rows entity rows; W is the width of a row, R the number of relation rows.

    products      6 b n W      scores, and gradients of queries and rows; 8 if the scores are
                               streamed, because they are computed twice
    memory        24 b n       every score is written and read a few times; 80 if streamed
                  24 n W       table gradient and AdaGrad: 6 numbers of 4 bytes (Adam 8, SGD 4)
    rows' wire    12 b W       sum of two rows and the query gradient, per query
                  8 b          what the loss keeps of the negatives, and the answer's score
    batch's wire  4 n W        sum of the gradient of every row, while blocks are compared
                  8 b W batch  gather of the gradients of the batch's rows
                  4 R W        sum of the gradients of relations

A sum over p devices sends and receives 2 (p-1)/p times its bytes; a gather (p-1)/p of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from allneg.recipe import Mesh, Recipe
from allneg.runs import make_model
from allneg.training.execution import block_rows
from allneg.training.memory import Counts

_FLOAT = 4
_ID = 8
_SCORES, _STREAMED = 24, 80  # bytes of memory traffic per score: whole, or in blocks
_OPTIMIZERS = {"adagrad": 6, "adam": 8, "sgd": 4}  # numbers read and written per number of a table
# Instructions per pair of coordinates, for scores and both gradients: docs/kernels.md.
_DISTANCES = {"l1": 6, "modulus": 16}
_MEMORIES = {"softmax": 1, "margin": 1, "logistic": 1, "self-adversarial": 2}


@dataclass(frozen=True)
class Rates:
    """What a device does in a second."""

    products: Mapping[str, float]  # floating-point operations of matrix products, by precision
    distances: float  # instructions of the l1 and modulus kernels
    memory: float  # bytes read and written
    near: float  # bytes sent to devices of the same machine, and as many received
    far: float  # the same to other machines
    pause: float  # seconds before a sum starts
    rest: float  # seconds of the small operations of a captured step, independent of its size
    rest_many: float  # the same in a mesh, where steps are not captured
    bytes: int  # of memory
    machine: int = 8  # devices in one


# Products, distances and `rest` of an H200 were measured (benchmarks/results/h200-*.json); of an
# A100 they are 70 % of the data sheet. For both, 80 % of the data sheet's memory rate, 70 % of its
# links, one 400 or 200 Gbit/s port per device between machines, and a guess at `rest_many`.
RATES = {
    "h200": Rates(
        products={"float32": 47e12, "tf32": 366e12, "bf16": 777e12},
        distances=14e12, memory=3.84e12, near=315e9, far=35e9, pause=30e-6,
        rest=160e-6, rest_many=1e-3, bytes=141 * 10**9,
    ),
    "a100": Rates(
        products={"float32": 13.6e12, "tf32": 109e12, "bf16": 218e12},
        distances=4.4e12, memory=1.63e12, near=210e9, far=17.5e9, pause=30e-6,
        rest=160e-6, rest_many=1e-3, bytes=80 * 10**9,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """The work of one device of the mesh in a step, and its time."""

    mesh: Mesh
    steps: int  # per epoch
    operations: float  # of products, or instructions of distances
    traffic: float  # bytes of memory
    rows_wire: float  # bytes sent between devices with different rows
    batch_wire: float  # bytes sent between devices with different queries
    seconds: Mapping[str, float]  # of a step: products, memory, rows' wire, batch's wire, rest

    @property
    def step_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def epoch_seconds(self) -> float:
        return self.steps * self.step_seconds


def cost(recipe: Recipe, counts: Counts, mesh: Mesh, rates: Rates) -> Cost:
    """The cost of a step, by the formulas at the top of this file."""
    size = _Sizes.of(recipe, counts, mesh)
    wires = {
        "rows": _summed(mesh.rows, size.rows) + _gathered(mesh.rows, size.loss_terms),
        "batch": _summed(mesh.batch, size.dense + size.relations)
        + _gathered(mesh.batch, size.row_gradients),
    }
    kernel = make_model(recipe).kernel.name
    rate = rates.distances if kernel in _DISTANCES else rates.products[recipe.hardware.precision]
    work = size.operations / rate
    # Neighbouring devices hold the same rows; devices with other rows may be on other machines.
    links = {
        "rows": rates.near if mesh.size <= rates.machine else rates.far,
        "batch": rates.near if mesh.batch <= rates.machine else rates.far,
    }
    took = {name: wires[name] / links[name] for name in wires}
    # The sum of every block but the last overlaps with the next block; at least half of the
    # products belong to the backward pass.
    hidden = min(took["batch"], work / 2) * (1 - 1 / size.blocks)
    sums = {"rows": 3 if mesh.rows > 1 else 0, "batch": 2 + size.blocks if mesh.batch > 1 else 0}
    return Cost(
        mesh=mesh,
        steps=math.ceil(2 * counts.train / recipe.training.batch_size),
        operations=size.operations,
        traffic=size.traffic,
        rows_wire=wires["rows"],
        batch_wire=wires["batch"],
        seconds={
            "products": work,
            "memory": size.traffic / rates.memory,
            "rows' wire": took["rows"] + sums["rows"] * rates.pause,
            "batch's wire": took["batch"] - hidden + sums["batch"] * rates.pause,
            "rest": rates.rest if mesh.size == 1 else rates.rest_many,
        },
    )


def sampled(recipe: Recipe, count: int) -> Recipe:
    """The same recipe with `count` shared negatives."""
    return replace(recipe, loss=replace(recipe.loss, negatives="shared", n_negatives=count))


@dataclass(frozen=True)
class _Sizes:
    """The part of one device in a step, in bytes unless noted otherwise."""

    operations: float  # a number
    blocks: int  # of scores; a number
    traffic: float  # of memory
    rows: float  # rows fetched, and the gradients of queries
    loss_terms: float  # of the losses of all processes
    dense: float  # gradient of every local row
    row_gradients: float  # of the batch's rows, all processes
    relations: float  # gradient of every relation row, and the loss

    @classmethod
    def of(cls, recipe: Recipe, counts: Counts, mesh: Mesh) -> _Sizes:
        model, loss, batch_size = make_model(recipe), recipe.loss, recipe.training.batch_size
        width = model.entity_width
        b, n = math.ceil(batch_size / mesh.batch), math.ceil(counts.entities / mesh.rows)
        held = min(b, recipe.training.micro_batch or b)
        columns = n
        if loss.negatives == "shared":
            sampled_rows = batch_size + (loss.n_negatives or 0)
            columns = math.ceil(min(counts.entities, sampled_rows) / mesh.rows)
        elif loss.negatives == "per_query":
            columns = 1 + (loss.n_negatives or 0)
        blocks = 1
        if loss.negatives != "per_query":
            blocks = math.ceil(columns / (block_rows(held, columns, loss.block) or columns))
        pairs = float(b) * columns
        per_pair = (6 if blocks == 1 else 8) * width
        if model.kernel.name in _DISTANCES:
            coordinates = width if model.kernel.name == "l1" else model.dim
            repeated = 1 if blocks == 1 else 4 / 3
            per_pair = int(_DISTANCES[model.kernel.name] * coordinates * repeated)
        relations = counts.relations * (2 if recipe.model.reciprocal else 1) * model.relation_width
        numbers = n * width + relations
        overlaps = loss.negatives == "all" and held == b
        terms = _MEMORIES[loss.name] + (2 if loss.label_smoothing else 0) + 1
        n_rows = 2 if recipe.regularizer.name != "none" or loss.relation_weight else 1
        return cls(
            operations=pairs * per_pair,
            blocks=blocks if overlaps else 1,
            traffic=(_SCORES if blocks == 1 else _STREAMED) * pairs
            + _FLOAT * _OPTIMIZERS[recipe.optimizer.name] * numbers,
            rows=3.0 * b * width * _FLOAT,
            loss_terms=float(terms * b * _FLOAT * mesh.rows),
            dense=float(n * width * _FLOAT),
            row_gradients=n_rows * b * mesh.batch * (width * _FLOAT + _ID) if overlaps else 0.0,
            relations=float((relations + 1) * _FLOAT),
        )


def _summed(devices: int, size: float) -> float:
    return 2 * (devices - 1) / devices * size


def _gathered(devices: int, size: float) -> float:
    return (devices - 1) / devices * size
