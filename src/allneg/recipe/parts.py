"""The parts of a recipe: every setting, its meaning and its default."""

import csv
import functools
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from allneg.errors import RecipeError

_ROWS, _BATCH = (rf"{name}=[1-9]\d{{0,5}}" for name in ("rows", "batch"))
Schedule = Literal["none", "step", "exponential", "cosine", "plateau"]
MESH_FORM = re.compile(f"{_ROWS}(,{_BATCH})?|{_BATCH}(,{_ROWS})?")


@dataclass(frozen=True)
class Data:
    """The triples, and how to read them."""

    name: str = "countries"  # name of a known dataset, a path, or a URL
    columns: str = "hrt"  # order of head, relation, tail (and weight, w), or names: a,b,c
    weight: str | None = None  # name of the column with the weights of triples in the loss
    header: bool | None = None  # whether text begins with column names; None: detected
    encoding: str = "utf-8"  # encoding of text files: UTF-8 or another superset of ASCII
    skip_bad_lines: int = 0  # maximum number of bad lines to skip per file
    valid_share: float = 0.1  # share of a single file that becomes valid
    test_share: float = 0.1  # share of a single file that becomes test
    split_seed: int = 0  # seed for the split of a single file
    drop_unseen: bool = False  # drop valid and test triples with entities that are not in train
    keep_duplicates: bool = False  # keep triples that occur twice in a split
    keep_relations: str | None = None  # relations to read, separated by commas as in CSV; None: all
    keep_literals: bool = False  # RDF: keep texts and numbers as entities
    keep_blank_nodes: bool = False  # RDF: keep nodes without a name
    keep_types: bool = False  # RDF: keep rdf:type
    language: str = "en"  # preferred language of labels
    store: Literal["auto", "memory", "disk"] = "auto"  # where ids are stored; auto: disk if large


@functools.cache
def listed_names(text: str) -> tuple[str, ...]:
    """Names that are separated by commas; one that has a comma is quoted, as in a CSV file."""
    try:
        return tuple(next(csv.reader([text]), ()))
    except csv.Error:  # a line end outside of quotes
        return ()


def columns_mistake(columns: str) -> str | None:
    """What data.columns must be, if it is something else."""
    names = listed_names(columns)
    is_order = sorted(columns) in (sorted("hrt"), sorted("hrtw"))
    if is_order or (len(names) == len(set(names)) == 3 and all(names)):
        return None
    return (
        "data.columns must be the letters h, r, t in some order, such as hrt, with w for weights, "
        "or three names, such as subject,predicate,object; a name with a comma needs quotes"
    )


@dataclass(frozen=True)
class Model:
    """The formula and the size of its rows."""

    name: str = "complex"  # the formula of the score; a key of MODELS
    dim: int = 100  # coordinates per row; complex numbers in complex, rotate and rote
    norm: Literal[1, 2] = 1  # norm of distances: 1 is the sum of moduli, 2 is Euclidean
    squared: bool = False  # norm 2 without the square root
    bias: bool = False  # with squared: a learned number per entity, added to its scores
    reciprocal: bool = True  # separate relation rows for head queries
    scale: float = 1e-3  # standard deviation of the initial values
    entity_dropout: float = 0.0  # dropout rate of the query's entity row in training
    relation_dropout: float = 0.0  # dropout rate of the query's relation row in training
    start: str | None = None  # a file of initial entity vectors, mapped to the width of rows
    features: str | None = None  # a file of entity vectors; a learned map of them is added to rows


@dataclass(frozen=True)
class Loss:
    """The loss and its negatives."""

    name: str = "softmax"  # the loss of a query; a key of LOSSES
    negatives: Literal["all", "shared", "per_query"] = "all"  # which entities are negatives
    n_negatives: int | None = None  # entities drawn per batch (shared) or per query (per_query)
    in_batch_negatives: bool = True  # shared: the other answers of the batch are also negatives
    correction: bool = False  # shared softmax: correct for the probability of each negative
    label_smoothing: float = 0.0  # softmax: share of the label that is spread over all candidates
    margin: float = 0.0  # added to every score; not used by the softmax
    temperature: float = 1.0  # self-adversarial: factor of the scores in the weights of negatives
    grouped: bool = False  # each distinct query once, with all of its answers
    max_answers: int = 128  # grouped: a query with more answers is asked several times
    mask_known: bool = False  # do not use a query's other answers in train as negatives
    subsampling: bool = False  # weight queries by 1/sqrt(frequency of their pairs)
    class_weights: bool = False  # weight queries by the frequency of their answer, as in DURA
    relation_weight: float = 0.0  # weight of a second softmax that predicts (h, ?, t)
    distillation: float = 0.0  # softmax: weight of self-distillation with pruned tables
    distillation_start: int = 0  # number of epochs before self-distillation begins
    block: int = 1 << 28  # maximum number of scores in memory; larger batches run in blocks


@dataclass(frozen=True)
class Regularizer:
    """A penalty on the rows of a batch, averaged over its queries."""

    name: str = "n3"  # the penalty; a key of REGULARIZERS
    weight: float = 0.01  # factor of the penalty
    exponent: float = 3.0  # ivr: exponent of the norms, at least 2
    product_weight: float = 1.0  # ivr: factor of the products of rows


@dataclass(frozen=True)
class Optimizer:
    """The update rule and the learning rate."""

    name: str = "adagrad"  # the update rule; a key of OPTIMIZERS
    learning_rate: float = 0.1  # initial learning rate, after the warm-up
    schedule: Schedule = "none"  # how the learning rate falls during training
    decay: float = 0.1  # the schedule multiplies the learning rate by this
    every: int = 50  # interval in epochs; plateau: evaluations without improvement
    warmup: int = 0  # epochs in which the learning rate rises


@dataclass(frozen=True)
class Training:
    """The length of training, its batches and its checkpoints."""

    epochs: int = 100  # maximum number of epochs
    batch_size: int = 500  # queries per step
    micro_batch: int | None = None  # queries in memory at once; None: the whole batch
    average: float = 0.0  # 1: also try mean weights of all epochs; <1: of the last 1/(1-average)
    seed: int = 0  # seed of initial values, shuffling and sampling
    save_seconds: float = 60.0  # minimum time between two checkpoints


@dataclass(frozen=True)
class Evaluation:
    """How valid is ranked during training."""

    every: int = 5  # epochs between evaluations on valid
    patience: int = 5  # evaluations without improvement before training stops
    filter: Literal["all", "seen"] = "all"  # filter valid by all splits; seen: by train and valid
    block: int = 1 << 26  # maximum number of scores in memory during evaluation


@dataclass(frozen=True)
class Hardware:
    """The device, and how the computation runs on it."""

    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    threads: int | None = None  # CPU threads; None: PyTorch's default
    precision: Literal["float32", "tf32", "bf16"] = "tf32"  # of matrix products, if supported
    deterministic: bool = False  # the same bits on every run, also on a GPU; slower
    engine: Literal["auto", "reference", "cpu", "compiled", "gpu"] = "auto"  # kernel implementation
    mesh: str | None = None  # grid of processes, such as rows=4,batch=2; None: rows only
    table: Literal["device", "host"] = "device"  # where tables are stored during training


@dataclass(frozen=True)
class Mesh:
    """How processes share a training: a grid of rows × batch.

    `rows` processes hold different entity rows and get the same queries; `batch` such groups
    hold the same rows and get different queries.
    """

    rows: int = 1
    batch: int = 1

    @classmethod
    def read(cls, text: str) -> Self:
        """The mesh of a text such as rows=4,batch=2; a missing part is 1."""
        if not MESH_FORM.fullmatch(text):
            raise RecipeError(f"--mesh {text!r} is not a mesh; write rows=4,batch=2")
        pairs = (part.split("=") for part in text.split(","))
        return cls(**{name: int(number) for name, number in pairs})

    @classmethod
    def of(cls, text: str | None, size: int) -> Self:
        """The mesh of `size` processes that a recipe sets; None means rows only."""
        if text is None:
            return cls(rows=size)
        mesh = cls.read(text)
        if mesh.size != size:
            raise RecipeError(
                f"hardware.mesh {mesh} needs {mesh.size} processes, but {size} started; start "
                f"them with `torchrun --nproc-per-node {mesh.size} -m allneg …`, or change --mesh"
            )
        return mesh

    @property
    def size(self) -> int:
        return self.rows * self.batch

    def __str__(self) -> str:
        return f"rows={self.rows},batch={self.batch}"


_KINDS = (Data, Model, Loss, Regularizer, Optimizer, Training, Evaluation, Hardware)
PARTS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in _KINDS}

# Settings whose values are the keys of a dict. The dicts belong to packages that build on recipes,
# so they are looked up by name, when a recipe is read.
_DICTS = {
    "model.name": ("allneg.models", "MODELS"),
    "loss.name": ("allneg.scoring.losses", "LOSSES"),
    "regularizer.name": ("allneg.scoring.regularizers", "REGULARIZERS"),
    "optimizer.name": ("allneg.training.optimizers", "OPTIMIZERS"),
}


def registered(setting: str) -> Mapping[str, Any]:
    """The dict whose keys a setting such as `model.name` may have; empty for other settings."""
    if setting not in _DICTS:
        return {}
    module, name = _DICTS[setting]
    found: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return found
