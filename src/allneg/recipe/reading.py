"""One part of a recipe from its table: every value of its type and in its range."""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal

from allneg.recipe.parts import PARTS, registered
from allneg.recipe.text import shown


def read_part(part: str, table: Mapping[str, Any], mistakes: list[str]) -> dict[str, Any]:
    """The fields of a part that its table gives rightly; what is wrong joins the mistakes.

    None is what was taken back: as if it were not there.
    """
    hints = typing.get_type_hints(PARTS[part])
    values = {}
    for name, value in table.items():
        where = f"{part}.{name}"
        if name not in hints:
            close = meant(name, hints, f"{part}.") or _meant_elsewhere(name)
            mistakes.append(f"{where} is not a setting{close}")
            continue
        if value is None:
            continue
        if hints[name] in (float, float | None) and type(value) is int and abs(value) <= _LARGEST:
            value = float(value)
        choices = [value for value in typing.get_args(hints[name]) if type(value) is str]
        choices = list(registered(where) or choices)
        if isinstance(value, str) and value.lower() in choices:
            value = value.lower()
        wrong = _wrong(hints[name], value) or _outside(where, value)
        if not wrong and registered(where) and value not in choices:
            wrong = f"must be one of {', '.join(choices)}"
        if wrong:
            close = meant(value.lower(), choices) if isinstance(value, str) else ""
            mistakes.append(f"{where} {wrong}, not {shown(value)}{close}")
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
_MOST = {"hardware.threads": 1024}  # many more crash the process that starts them
_POSITIVE = {
    "model.dim", "model.scale", "loss.n_negatives", "loss.temperature", "loss.block",
    "optimizer.learning_rate", "optimizer.decay", "optimizer.every", "training.epochs",
    "training.batch_size", "training.micro_batch", "evaluation.every", "evaluation.patience",
    "evaluation.block", "hardware.threads",
}  # fmt: skip
_SHARES = {
    "model.entity_dropout", "model.relation_dropout", "loss.label_smoothing", "data.valid_share",
    "data.test_share",
}  # fmt: skip


def _outside(where: str, value: Any) -> str | None:
    """What range a number must be in, if `value` is not in it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and value > (most := _MOST.get(where, _LARGEST)):
        return f"must be at most {most}"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if where in _POSITIVE and value <= 0:
        return "must be more than 0"
    if where in _SHARES and not 0 <= value < 1:
        return "must be at least 0 and less than 1"
    return "must not be negative" if value < 0 else None


def meant(word: str, words: Iterable[str], prefix: str = "") -> str:
    """The end of a message about an unknown `word`: the nearest of `words`, or nothing."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def _meant_elsewhere(name: str) -> str:
    """As `meant`, for a field that may belong to another part."""
    homes = {field.name: part for part, kind in PARTS.items() for field in fields(kind)}
    close = difflib.get_close_matches(name, homes, n=1, cutoff=0.5)
    return f"; did you mean {homes[close[0]]}.{close[0]}?" if close else ""
