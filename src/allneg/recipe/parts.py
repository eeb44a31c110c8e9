"""The parts of a recipe: each setting, what it means and what it is when nothing is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Data:
    """Which triples, and how to read them."""

    name: str = "countries"  # a known set's name, or a path
    columns: str = "hrt"  # order of head, relation, tail in a line
    encoding: str = "utf-8"
    skip_bad_lines: int = 0  # at most so many are left out, with a count
    valid_share: float = 0.1  # of a single file, which is split by `split_seed`
    test_share: float = 0.1
    split_seed: int = 0
    drop_unseen: bool = False  # leave out valid and test triples with entities not in train
    keep_duplicates: bool = False
    store: Literal["auto", "memory", "disk"] = "auto"  # of ids; auto is disk for a large text


@dataclass(frozen=True)
class Model:
    """The formula and the size of its rows."""

    name: Literal["complex", "distmult", "simple", "transe", "rotate"] = "complex"
    dim: int = 100  # coordinates a row; complex ones for complex and rotate
    norm: Literal[1, 2] = 1  # of transe and rotate: 1 sums moduli, 2 is the euclidean distance
    squared: bool = False  # of norm 2: its root is not taken
    bias: bool = False  # of the squared norm: a learned number an entity is added to its scores
    reciprocal: bool = True  # a head query has a relation row of its own
    scale: float = 1e-3  # of the first values
    entity_dropout: float = 0.0  # of the known entity's row, in training
    relation_dropout: float = 0.0


@dataclass(frozen=True)
class Loss:
    """What is minimised, and against which entities."""

    name: Literal["softmax", "margin", "logistic", "self-adversarial"] = "softmax"
    negatives: Literal["all", "shared", "per_query"] = "all"
    n_negatives: int | None = None  # entities drawn per batch (shared) or per query (per_query)
    in_batch_negatives: bool = True  # shared: the batch's other answers are negatives too
    correction: bool = False  # of a shared sample's softmax, for how likely each was drawn
    label_smoothing: float = 0.0  # share of the label spread over all candidates (softmax)
    margin: float = 0.0  # added to every score but softmax's; the hinge's width in `margin`
    temperature: float = 1.0  # of self-adversarial weights
    mask_known: bool = False  # a question's other train answers are no negatives
    subsampling: bool = False  # weigh queries by 1/sqrt of how often their pairs occur
    class_weights: bool = False  # weigh queries by how often their answer occurs, as DURA does
    relation_weight: float = 0.0  # of a second softmax, which asks for the relation (h, ?, t)
    block: int = 1 << 28  # scores held at once; beyond, blocks of rows are compared in turn


@dataclass(frozen=True)
class Regularizer:
    """What is added for large rows: on the batch's own three factors, a mean over queries."""

    name: Literal["none", "l2", "n3", "dura", "dura-w"] = "n3"
    weight: float = 0.01


@dataclass(frozen=True)
class Optimizer:
    name: Literal["adagrad", "adam", "sgd"] = "adagrad"
    learning_rate: float = 0.1
    schedule: Literal["none", "step", "plateau"] = "none"
    decay: float = 0.1  # the rate is multiplied by this
    every: int = 50  # step: epochs; plateau: evaluations without gain


@dataclass(frozen=True)
class Training:
    epochs: int = 100  # at most
    batch_size: int = 500  # queries a step
    micro_batch: int | None = None  # queries held at once; None is the whole batch
    seed: int = 0
    save_seconds: float = 60.0  # least time between two checkpoints


@dataclass(frozen=True)
class Evaluation:
    every: int = 5  # epochs between rankings of valid
    patience: int = 5  # rankings without gain before stopping
    block: int = 1 << 26  # scores held at once while ranking


@dataclass(frozen=True)
class Hardware:
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    threads: int | None = None  # of a CPU; None leaves torch's choice
    precision: Literal["float32", "tf32", "bf16"] = "tf32"  # of matrix products, where it exists
    deterministic: bool = False
    engine: Literal["auto", "reference", "cpu", "compiled", "gpu"] = "auto"  # of the kernels
    mesh: str | None = None  # of processes: rows=4,batch=2; None is rows alone
    table: Literal["device", "host"] = "device"  # where entity rows lie in training


PARTS = {
    "data": Data,
    "model": Model,
    "loss": Loss,
    "regularizer": Regularizer,
    "optimizer": Optimizer,
    "training": Training,
    "evaluation": Evaluation,
    "hardware": Hardware,
}
