"""Tables → a recipe: every value has its type and is in its range, and values fit together."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Self

from allneg.errors import RecipeError
from allneg.recipe import parts, text
from allneg.recipe.parts import MESH_FORM, PARTS, registered

_LARGEST = (1 << 63) - 1  # the largest whole number in TOML
_LARGEST_FLOAT = 3e38  # tables are float32
_MOST = {"hardware.threads": 1024}  # many more threads crash the process
_POSITIVE = {
    "model.dim", "model.scale", "loss.max_answers", "loss.n_negatives", "loss.temperature",
    "loss.block", "optimizer.learning_rate", "optimizer.decay", "optimizer.every",
    "training.epochs", "training.batch_size", "training.micro_batch",
    "evaluation.every", "evaluation.patience", "evaluation.block", "hardware.threads",
}  # fmt: skip
_SHARES = {
    "model.entity_dropout", "model.relation_dropout", "loss.label_smoothing", "data.valid_share",
    "data.test_share",
}  # fmt: skip
# What may change when a run is resumed: when training ends, and what depends on the hardware.
_CHANGEABLE = {
    "training.epochs", "evaluation.patience", "training.micro_batch", "training.save_seconds",
    "loss.block", "evaluation.block",
}  # fmt: skip
MAY_CHANGE = ", ".join([*sorted(_CHANGEABLE), "hardware"])
# Settings that only those losses or regularizers have that name them in `uses`.
_OF_SOME = {
    "loss": ("correction", "distillation", "grouped", "label_smoothing", "margin", "temperature"),
    "regularizer": ("exponent", "product_weight"),
}
# Settings without effect where another one has one of these values.
_UNUSED_WITH: dict[str, tuple[str, tuple[object, ...]]] = {
    "loss.max_answers": ("loss.grouped", (False,)),
    "optimizer.decay": ("optimizer.schedule", ("none",)),
    "optimizer.every": ("optimizer.schedule", ("none", "cosine")),
    "regularizer.weight": ("regularizer.name", ("none",)),
}
_DISTILLED = {"loss.negatives": "all", "loss.grouped": False, "training.micro_batch": None,
              "hardware.table": "device"}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """All settings of a run, in parts."""

    data: parts.Data = field(default_factory=parts.Data)
    model: parts.Model = field(default_factory=parts.Model)
    loss: parts.Loss = field(default_factory=parts.Loss)
    regularizer: parts.Regularizer = field(default_factory=parts.Regularizer)
    optimizer: parts.Optimizer = field(default_factory=parts.Optimizer)
    training: parts.Training = field(default_factory=parts.Training)
    evaluation: parts.Evaluation = field(default_factory=parts.Evaluation)
    hardware: parts.Hardware = field(default_factory=parts.Hardware)

    @classmethod
    def from_tables(
        cls,
        tables: Mapping[str, Any],
        where: str = "recipe",
        given: Iterable[Mapping[str, Any]] = (),
    ) -> Self:
        """A recipe from nested tables, checked; one `RecipeError` lists every mistake.

        `given` are the tables among them that a user wrote: what has no effect is a mistake there.
        """
        mistakes: list[str] = []
        made: dict[str, Any] = {}
        for name, table in text.with_current_names(tables).items():
            if name not in PARTS:
                mistakes.append(f"{name} is not a part of a recipe{_meant(name, PARTS)}")
            elif not isinstance(table, Mapping):
                mistakes.append(f"{name} is a table of settings, not {text.shown(table)}")
            else:
                made[name] = PARTS[name](**_read_part(name, table, mistakes))
        recipe = cls(**made)
        mistakes += _clashes(recipe)
        mistakes += dict.fromkeys(line for some in given for line in _without_effect(recipe, some))
        if mistakes:
            raise RecipeError("\n".join(f"{where}: {mistake}" for mistake in mistakes))
        return recipe

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """A recipe from a TOML file."""
        return cls.from_tables(text.load_tables(path), str(path))

    @classmethod
    def from_saved(cls, tables: Mapping[str, Any], where: str = "recipe") -> Self:
        """The recipe of a run or a result file, which an earlier version may have written."""
        return cls.from_tables(text.with_earlier_defaults(tables), where)

    def with_settings(self, settings: Iterable[str] | Mapping[str, object]) -> Self:
        """This recipe, changed by texts `part.field=value` or by names and values."""
        changes = text.parse_settings(settings)
        return self.from_tables(text.merged(self.to_tables(), changes), "--set")

    def to_tables(self) -> dict[str, dict[str, Any]]:
        """Nested tables of every field, except those that are None, which TOML cannot express."""
        return {
            name: {key: value for key, value in table.items() if value is not None}
            for name, table in dataclasses.asdict(self).items()
        }

    def fixed_tables(self) -> dict[str, dict[str, Any]]:
        """`to_tables` without the settings that may change when a run is resumed."""
        return {
            part: {name: table[name] for name in table if f"{part}.{name}" not in _CHANGEABLE}
            for part, table in self.to_tables().items()
            if part != "hardware"
        }

    def fixed_changes(self, earlier: "Recipe") -> list[str]:
        """What differs from an earlier recipe of the same run, except what may change."""
        now, before = self.fixed_tables(), earlier.fixed_tables()
        return [
            f"{part}.{name} is {text.shown(now[part].get(name))}, "
            f"but the run was started with {text.shown(before[part].get(name))}"
            for part in now
            for name in sorted(now[part].keys() | before[part].keys())
            if now[part].get(name) != before[part].get(name)
        ]

    def to_toml(self) -> str:
        lines = []
        for name, table in self.to_tables().items():
            settings = (f"{key} = {text.toml_value(value)}" for key, value in table.items())
            lines += [f"[{name}]", *settings, ""]
        return "\n".join(lines)

    def to_settings(self) -> dict[str, Any]:
        """Names and values as `with_settings` takes them."""
        tables = self.to_tables()
        return {f"{part}.{name}": tables[part][name] for part in tables for name in tables[part]}


@cache
def _hints(part: str) -> dict[str, Any]:
    """The type of each field of a part."""
    return typing.get_type_hints(PARTS[part])


def _read_part(part: str, table: Mapping[str, Any], mistakes: list[str]) -> dict[str, Any]:
    """The valid fields of a table except None; mistakes are added to `mistakes`."""
    hints = _hints(part)
    values = {}
    for name, value in table.items():
        where = f"{part}.{name}"
        if name not in hints:
            everywhere = [f"{kind}.{field}" for kind in PARTS for field in vars(PARTS[kind]())]
            close = _meant(name, (f"{part}.{field}" for field in hints))
            mistakes.append(f"{where} is not a setting{close or _meant(name, everywhere)}")
            continue
        if value is None:
            continue
        hint, choices = hints[name], list(registered(where))
        if typing.get_origin(hint) is Literal:
            choices = list(typing.get_args(hint))
        if hint is float and type(value) is int and abs(value) <= _LARGEST:
            value = float(value)
        if isinstance(value, str) and value.lower() in choices:
            value = value.lower()
        if wrong := _wrong(where, hint, choices, value):
            close = _meant(value.lower(), map(str, choices)) if isinstance(value, str) else ""
            mistakes.append(f"{where} must {wrong}, not {text.shown(value)}{close}")
        else:
            values[name] = value
    return values


def _wrong(where: str, hint: Any, choices: list[Any], value: Any) -> str | None:
    """What a value must be, or None if the value is valid."""
    if choices:
        fits = any(value == choice and type(value) is type(choice) for choice in choices)
        return None if fits else f"be one of {', '.join(map(str, choices))}"
    if isinstance(hint, types.UnionType):
        hint = typing.get_args(hint)[0]
    if type(value) is not hint:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        return f"be {names[hint]}"
    if hint is str:
        # A path whose bytes are not UTF-8 is a text with lone surrogates.
        is_unicode = not any("\ud800" <= c <= "\udfff" for c in value)
        return None if is_unicode else "be valid Unicode"
    if hint is int and value > (most := _MOST.get(where, _LARGEST)):
        return f"be at most {most}"
    if hint is float and not math.isfinite(value):
        return "be finite"
    if hint is float and value > _LARGEST_FLOAT:
        return f"be at most {_LARGEST_FLOAT:g}"
    if where in _POSITIVE and value <= 0:
        return "be more than 0"
    if where in _SHARES and not 0 <= value < 1:
        return "be at least 0 and less than 1"
    return "be at least 0" if value < 0 else None


def _meant(word: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown `word`: the closest name, or nothing."""
    # Of a name part.field, only the field is compared.
    full_names = {name.rpartition(".")[2]: name for name in names}
    close = difflib.get_close_matches(word, full_names, n=1, cutoff=0.5)
    return f"; did you mean {full_names[close[0]]}?" if close else ""


def _clashes(recipe: Recipe) -> Iterator[str]:
    """Settings that are valid alone but do not fit together, one message per problem."""
    data, model, hardware = recipe.data, recipe.model, recipe.hardware
    if mistake := parts.columns_mistake(data.columns):
        yield mistake
    if data.weight is not None and "w" in data.columns and "," not in data.columns:
        yield "data.weight and the w in data.columns both name the weights; set only one of them"
    if data.valid_share + data.test_share >= 1:
        yield "data.valid_share and data.test_share must be less than 1 together"
    kind = registered("model.name")[model.name]
    if not kind.is_distance and model.norm != 1:
        yield f"model.norm is for distance models; {model.name} has no norm"
    if model.squared and model.norm != 2:
        yield "model.squared needs model.norm 2"
    if model.bias and not model.squared:
        yield "model.bias needs model.squared"
    if recipe.loss.relation_weight and not kind.supports_relation_query():
        yield f"loss.relation_weight needs a relation query; {model.name} has none"
    regularizer = recipe.regularizer.name
    penalty = registered("regularizer.name")[regularizer]
    if penalty is not None and penalty.bilinear_only and kind.is_distance:
        yield f"regularizer.name {regularizer} is for bilinear models, not {model.name}"
    elif penalty is not None and penalty.uses_relation_query and not kind.has_relation_query():
        yield f"regularizer.name {regularizer} needs a relation query; {model.name} has none"
    if recipe.regularizer.exponent < 2:
        yield "regularizer.exponent must be at least 2"
    yield from _unused("regularizer", recipe.regularizer)
    yield from _loss_clashes(recipe.loss, kind.is_distance)
    if recipe.loss.distillation:
        if kind.is_distance:
            yield f"loss.distillation is for bilinear models, not {model.name}"
        for name, needed in _DISTILLED.items():
            part, _, setting = name.partition(".")
            if (value := getattr(getattr(recipe, part), setting)) != needed:
                yield f"loss.distillation does not work with {name} {text.shown(value)}"
    elif recipe.loss.distillation_start:
        yield "loss.distillation_start needs loss.distillation"
    if recipe.training.average > 1:
        yield "training.average must be at most 1"
    if recipe.optimizer.warmup >= recipe.training.epochs:
        yield "optimizer.warmup must be less than training.epochs"
    if hardware.mesh is not None and not MESH_FORM.fullmatch(hardware.mesh):
        yield "hardware.mesh must have the form rows=4,batch=2"
    if hardware.table == "host" and hardware.engine == "gpu":
        yield "hardware.table host updates rows on the CPU; set hardware.engine to auto"


def _unused(part: str, settings: parts.Loss | parts.Regularizer) -> Iterator[str]:
    """Settings of a part that are set, but that its loss or regularizer does not use."""
    uses = {name: getattr(kind, "uses", ()) for name, kind in registered(f"{part}.name").items()}
    for name in _OF_SOME[part]:
        is_set = getattr(settings, name) != getattr(type(settings), name)
        if is_set and name not in uses[settings.name]:
            users = ", ".join(other for other in uses if name in uses[other])
            yield f"{part}.{name} is for {part}.name {users}, not {settings.name}"


def unused_settings(recipe: Recipe) -> set[str]:
    """The settings that have no effect in a recipe, because another one switches them off."""
    found = _UNUSED_WITH.items()
    return {name for name, (other, values) in found if attrgetter(other)(recipe) in values}


def _without_effect(recipe: Recipe, given: Mapping[str, Any]) -> Iterator[str]:
    """Settings that are given, but not the one that switches them off in this recipe."""
    for name in sorted(unused_settings(recipe)):
        (part, _, field), (other, _) = name.partition("."), _UNUSED_WITH[name]
        table = given.get(part)
        if not isinstance(table, Mapping) or other.rpartition(".")[2] in table:
            continue
        if table.get(field):  # a weight of 0 asks for no effect
            value = text.toml_value(attrgetter(other)(recipe))
            yield f"{name} has no effect with {other} {value}"


def _loss_clashes(loss: parts.Loss, is_distance: bool) -> Iterator[str]:
    kind = registered("loss.name")[loss.name]
    yield from _unused("loss", loss)
    if loss.margin <= 0 and kind.needs_margin == "always":
        yield f"loss.name {loss.name} needs a loss.margin above 0, such as 6"
    if loss.margin <= 0 and kind.needs_margin == "distance" and is_distance:
        yield f"{loss.name} on distances needs a loss.margin above 0, such as 6"
    if loss.class_weights and loss.subsampling:
        yield "loss.class_weights and loss.subsampling both weight queries; set only one of them"
    if loss.grouped:
        if loss.negatives != "all":
            yield f"loss.grouped needs loss.negatives all, not {loss.negatives}"
        weights = ("class_weights", "subsampling") if kind.once_per_query else ()
        for name in ("mask_known", *weights):
            if getattr(loss, name):
                yield f"loss.{name} does not work with loss.grouped and loss.name {loss.name}"
    if loss.negatives != "all" and loss.n_negatives is None:
        yield f"loss.negatives {loss.negatives} needs loss.n_negatives, such as 256"
    if loss.negatives == "all" and loss.n_negatives is not None:
        yield (
            "loss.n_negatives needs loss.negatives shared or per_query; "
            "reset it with --set loss.n_negatives="
        )
    if loss.correction and loss.negatives != "shared":
        yield f"loss.correction needs loss.negatives shared, not {loss.negatives}"
    if not loss.in_batch_negatives and loss.negatives != "shared":
        yield f"loss.in_batch_negatives is for loss.negatives shared, not {loss.negatives}"
    if not loss.in_batch_negatives and loss.correction:
        yield "loss.correction needs loss.in_batch_negatives; change only one of them"
