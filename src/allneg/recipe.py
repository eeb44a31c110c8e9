"""A recipe: everything that decides a run. Strict to read, complete when written.

A recipe is a TOML file with one table a part; `training.batch_size` is the field `batch_size`
of the part `training`. Reading collects every mistake before it complains.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from allneg.errors import BadRecipe
from allneg.mesh import is_mesh

# A recipe is a page. The time to read a key of many dots grows with its square: 16 KiB of them
# take a second or two.
_LARGEST_FILE = 1 << 14


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


@dataclass(frozen=True)
class Model:
    """The formula and the size of its rows."""

    name: Literal["complex", "distmult", "simple", "transe", "rotate"] = "complex"
    dim: int = 100  # coordinates a row; complex ones for complex and rotate
    norm: Literal[1, 2] = 1  # of transe and rotate: 1 sums moduli, 2 is the euclidean distance
    reciprocal: bool = True  # a head question has a relation row of its own
    scale: float = 1e-3  # of the first values
    entity_dropout: float = 0.0  # of the known entity's row, in training
    relation_dropout: float = 0.0


@dataclass(frozen=True)
class Loss:
    """What is minimised, and against which entities."""

    name: Literal["softmax", "margin", "logistic", "self-adversarial"] = "softmax"
    negatives: Literal["all", "shared", "own"] = "all"
    count: int | None = None  # entities drawn: a batch (shared) or a question (own)
    correction: bool = False  # of a shared sample's softmax, for how likely each was drawn
    smoothing: float = 0.0  # share of the label spread over all candidates (softmax)
    margin: float = 0.0  # added to every score but softmax's; the hinge's width in `margin`
    temperature: float = 1.0  # of self-adversarial weights
    mask_known: bool = False  # a question's other train answers are no negatives
    subsampling: bool = False  # weigh questions by 1/sqrt of how often their pairs occur
    relation_weight: float = 0.0  # of a second softmax, which asks for the relation (h, ?, t)
    block: int = 1 << 28  # scores held at once; beyond, blocks of rows are compared in turn


@dataclass(frozen=True)
class Penalty:
    """What is added for large rows: on the batch's own three factors, a mean over questions."""

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
    batch_size: int = 500  # questions a step
    micro_batch: int | None = None  # questions held at once; None is the whole batch
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
    engine: Literal["auto", "reference", "cpu", "gpu"] = "auto"  # of the kernels
    mesh: str | None = None  # of processes: rows=4,batch=2; None is rows alone


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run; see the parts."""

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    loss: Loss = field(default_factory=Loss)
    penalty: Penalty = field(default_factory=Penalty)
    optimizer: Optimizer = field(default_factory=Optimizer)
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)
    hardware: Hardware = field(default_factory=Hardware)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], where: str = "recipe") -> Recipe:
        """A recipe from nested tables, checked; every mistake is named in one `BadRecipe`."""
        mistakes: list[str] = []
        parts = {part.name: _part_type(part.name) for part in dataclasses.fields(cls)}
        made: dict[str, Any] = {}
        for name, table in tables.items():
            if name not in parts:
                mistakes.append(f"{name} is not a part{_meant(name, parts)}")
            elif not isinstance(table, Mapping):
                mistakes.append(f"{name} is a table of settings, not {_shown(table)}")
            else:
                values = _read_part(name, parts[name], table, mistakes)
                made[name] = parts[name](**values)
        recipe = cls(**made)
        mistakes += _clashes(recipe)
        if mistakes:
            raise BadRecipe("\n".join(f"{where}: {mistake}" for mistake in mistakes))
        return recipe

    @classmethod
    def read(cls, path: Path | str) -> Recipe:
        """A recipe from a TOML file."""
        return cls.from_tables(load_tables(path), Path(path).name)

    def with_settings(self, settings: Iterable[str]) -> Recipe:
        """This recipe with `part.field=value` texts on top."""
        return Recipe.from_tables(merged(self.to_tables(), parse_settings(settings)), "--set")

    def to_tables(self) -> dict[str, dict[str, Any]]:
        """Nested tables of every field; a None is left out, as TOML has none."""
        return {
            name: {key: value for key, value in table.items() if value is not None}
            for name, table in dataclasses.asdict(self).items()
        }

    def to_toml(self) -> str:
        lines = []
        for name, table in self.to_tables().items():
            lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items()), ""]
        return "\n".join(lines)


def parse_settings(settings: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Nested tables from texts such as `training.epochs=10`; the value is TOML, or a bare word."""
    tables: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        part, dot, name = key.strip().partition(".")
        if not equals or not dot or not name:
            raise BadRecipe(f"--set {setting}: write part.field=value, such as training.epochs=10")
        tables.setdefault(part, {})[name] = _value(text.strip())
    return tables


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a bare word: complex, cuda:1, a path
    except (RecursionError, ValueError):  # ValueError: a number of thousands of digits
        raise BadRecipe(f"--set: {_shown(text)} is no value for a setting") from None


def load_tables(path: Path | str) -> dict[str, Any]:
    """The nested tables of a TOML file, not yet checked."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise BadRecipe(f"{path.name}: larger than {_LARGEST_FILE:,} bytes; not a recipe")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise BadRecipe(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise BadRecipe(f"{path.name}: not TOML: {error}") from None
    except RecursionError:
        raise BadRecipe(f"{path.name}: nested too deeply; a recipe has two levels") from None


def merged(base: Mapping[str, Any], top: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Nested tables `base`, with those of `top` over them."""
    both = dict(base)
    for part, table in top.items():
        under = both.get(part, {})
        both[part] = {**(under if isinstance(under, Mapping) else {}), **table}
    return both


@lru_cache
def _part_type(name: str) -> Any:
    return typing.get_type_hints(Recipe)[name]


@lru_cache
def _all_settings() -> tuple[str, ...]:
    parts = {part.name: _part_type(part.name) for part in dataclasses.fields(Recipe)}
    return tuple(f"{name}.{each}" for name in parts for each in typing.get_type_hints(parts[name]))


def _read_part(
    part: str, kind: Any, table: Mapping[str, Any], mistakes: list[str]
) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    values = {}
    for name, value in table.items():
        where = f"{part}.{name}"
        if name not in hints:
            meant = _meant(name, hints, f"{part}.") or _meant_elsewhere(name)
            mistakes.append(f"{where} is not a setting{meant}")
            continue
        if hints[name] in (float, float | None) and type(value) is int and abs(value) <= _LARGEST:
            value = float(value)
        wrong = _wrong(hints[name], value) or _outside(where, value)
        if wrong:
            mistakes.append(f"{where} {wrong}, not {_shown(value)}")
        else:
            values[name] = value
    return values


def _wrong(hint: Any, value: Any) -> str | None:
    """What a value of type `hint` must be, if `value` is not one."""
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        fits = any(value == choice and type(value) is type(choice) for choice in choices)
        return None if fits else f"must be one of {', '.join(map(str, choices))}"
    if isinstance(hint, types.UnionType):
        hint = typing.get_args(hint)[0]
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    if type(value) is str and not _is_unicode(value):
        return "must be Unicode, which TOML is written in"
    return None if type(value) is hint else f"must be {names[hint]}"


def _is_unicode(text: str) -> bool:
    """A path whose bytes are not UTF-8 comes as a text with lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


_LARGEST = (1 << 63) - 1  # of whole numbers, as in TOML
_POSITIVE = {
    "model.dim", "model.scale", "loss.count", "loss.temperature", "loss.block",
    "optimizer.learning_rate", "optimizer.decay", "optimizer.every", "training.epochs",
    "training.batch_size", "training.micro_batch", "evaluation.every", "evaluation.patience",
    "evaluation.block", "hardware.threads",
}  # fmt: skip
_SHARES = {
    "model.entity_dropout", "model.relation_dropout", "loss.smoothing", "data.valid_share",
    "data.test_share",
}  # fmt: skip


def _outside(where: str, value: Any) -> str | None:
    """What range a number must be in, if `value` is not in it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and value > _LARGEST:
        return f"must be at most {_LARGEST}"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if where in _POSITIVE and value <= 0:
        return "must be more than 0"
    if where in _SHARES and not 0 <= value < 1:
        return "must be at least 0 and less than 1"
    return "must not be negative" if value < 0 else None


def _clashes(recipe: Recipe) -> list[str]:
    """Settings that are fine alone and do not go together."""
    model, loss, found = recipe.model, recipe.loss, []
    if recipe.hardware.mesh is not None and not is_mesh(recipe.hardware.mesh):
        found.append("hardware.mesh must be such as rows=4,batch=2")
    if sorted(recipe.data.columns) != sorted("hrt"):
        found.append("data.columns must be the letters h, r, t in some order, such as hrt")
    if recipe.data.valid_share + recipe.data.test_share >= 1:
        found.append("data.valid_share and data.test_share leave nothing to train on")
    if model.name not in ("transe", "rotate") and model.norm != 1:
        found.append(f"model.norm is for transe and rotate; model.name is {model.name}")
    if loss.negatives != "all" and loss.count is None:
        found.append(f"loss.negatives is {loss.negatives}: say how many in loss.count")
    if loss.negatives == "all" and loss.count is not None:
        found.append("loss.count is for loss.negatives shared or own; all means every entity")
    if loss.correction and (loss.name != "softmax" or loss.negatives != "shared"):
        found.append("loss.correction is for loss.name softmax with loss.negatives shared")
    if loss.smoothing and loss.name != "softmax":
        found.append(f"loss.smoothing is for loss.name softmax, not {loss.name}")
    if loss.margin and loss.name == "softmax":
        found.append("loss.margin changes nothing in a softmax: leave it out")
    if loss.name == "margin" and loss.margin <= 0:
        found.append("loss.name margin needs a loss.margin above 0, such as 6")
    distance = model.name in ("transe", "rotate")
    if distance and loss.relation_weight:
        found.append(f"loss.relation_weight is for products; model.name is {model.name}")
    if distance and recipe.penalty.name in ("dura", "dura-w"):
        found.append(f"penalty.name {recipe.penalty.name} is for products, not {model.name}")
    if distance and loss.name in ("logistic", "self-adversarial") and loss.margin <= 0:
        found.append(f"{loss.name} on distances needs a loss.margin above 0, such as 6")
    return found


def _meant(word: str, words: Iterable[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def _meant_elsewhere(name: str) -> str:
    """As `_meant`, for a field that may belong to another part."""
    homes = {each.partition(".")[2]: each.partition(".")[0] for each in _all_settings()}
    close = difflib.get_close_matches(name, homes, n=1, cutoff=0.5)
    return f"; did you mean {homes[close[0]]}.{close[0]}?" if close else ""


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # ValueError: a number of thousands of digits
        return "what is too much to show"
    return text if len(text) <= 40 else text[:37] + "..."


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML string, once DEL is escaped too; the controls above it go along,
        # since recipes are printed on terminals.
        text = json.dumps(value, ensure_ascii=False)
        return re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)
    return repr(value)
