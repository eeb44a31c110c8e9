"""The parts of a recipe: every setting, its meaning and its default."""

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from allneg.errors import RecipeError

_ROWS, _BATCH = (rf"{name}=[1-9]\d{{0,5}}" for name in ("rows", "batch"))
MESH_FORM = re.compile(f"{_ROWS}(,{_BATCH})?|{_BATCH}(,{_ROWS})?")


@dataclass(frozen=True)
class Data:
    """Which triples, and how to read them."""

    name: str = "countries"  # the name of a known dataset, or a path
    columns: str = "hrt"  # order of head, relation, tail in a line
    encoding: str = "utf-8"
    skip_bad_lines: int = 0  # how many bad lines to skip at most; they are counted
    valid_share: float = 0.1  # of a single file, which is split by `split_seed`
    test_share: float = 0.1
    split_seed: int = 0
    drop_unseen: bool = False  # drop valid and test triples with entities that are not in train
    keep_duplicates: bool = False
    store: Literal["auto", "memory", "disk"] = "auto"  # of ids; auto is disk for large files


@dataclass(frozen=True)
class Model:
    """The formula and the size of its rows."""

    name: str = "complex"  # a key of MODELS
    dim: int = 100  # coordinates per row; complex ones for complex and rotate
    norm: Literal[1, 2] = 1  # of distances: 1 sums moduli, 2 is the Euclidean distance
    squared: bool = False  # norm 2 without its root
    bias: bool = False  # squared norm: a learned number per entity is added to its scores
    reciprocal: bool = True  # head queries have relation rows of their own
    scale: float = 1e-3  # standard deviation of the initial values
    entity_dropout: float = 0.0  # of the known entity's row, in training
    relation_dropout: float = 0.0


@dataclass(frozen=True)
class Loss:
    """What is minimised, and against which negatives."""

    name: str = "softmax"  # a key of LOSSES
    negatives: Literal["all", "shared", "per_query"] = "all"
    n_negatives: int | None = None  # entities drawn per batch (shared) or per query (per_query)
    in_batch_negatives: bool = True  # shared: the batch's other answers are negatives too
    correction: bool = False  # shared softmax: correct for how likely each negative was drawn
    label_smoothing: float = 0.0  # softmax: share of the label spread over all candidates
    margin: float = 0.0  # added to every score, except in the softmax
    temperature: float = 1.0  # of self-adversarial weights
    mask_known: bool = False  # a query's other answers in train are no negatives
    subsampling: bool = False  # weigh queries by 1/sqrt of how often their pairs occur
    class_weights: bool = False  # weigh queries by how often their answer occurs, as in DURA
    relation_weight: float = 0.0  # of a second softmax, which predicts the relation (h, ?, t)
    block: int = 1 << 28  # scores held at once; beyond that, blocks of rows are streamed


@dataclass(frozen=True)
class Regularizer:
    """A penalty on the rows of a batch, averaged over its queries."""

    name: str = "n3"  # a key of REGULARIZERS
    weight: float = 0.01


@dataclass(frozen=True)
class Optimizer:
    name: str = "adagrad"  # a key of OPTIMIZERS
    learning_rate: float = 0.1
    schedule: Literal["none", "step", "plateau"] = "none"
    decay: float = 0.1  # the factor of the rate
    every: int = 50  # step: epochs; plateau: evaluations without improvement


@dataclass(frozen=True)
class Training:
    epochs: int = 100  # at most
    batch_size: int = 500  # queries per step
    micro_batch: int | None = None  # queries held at once; None is the whole batch
    seed: int = 0
    save_seconds: float = 60.0  # least time between two checkpoints


@dataclass(frozen=True)
class Evaluation:
    every: int = 5  # epochs between rankings of valid
    patience: int = 5  # rankings without improvement before training stops
    block: int = 1 << 26  # scores held at once while ranking


@dataclass(frozen=True)
class Hardware:
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    threads: int | None = None  # on a CPU; None leaves PyTorch's choice
    precision: Literal["float32", "tf32", "bf16"] = "tf32"  # of matrix products, where supported
    deterministic: bool = False
    engine: Literal["auto", "reference", "cpu", "compiled", "gpu"] = "auto"  # of the kernels
    mesh: str | None = None  # of processes: rows=4,batch=2; None is rows alone
    table: Literal["device", "host"] = "device"  # where entity rows are kept in training


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
