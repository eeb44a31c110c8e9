"""Text → nested tables, not yet checked, and values → text."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from allneg.errors import RecipeError

LARGEST_FILE = 1 << 14  # bytes; a key of 16 KiB of dots already takes a second to parse


def parse_settings(settings: Iterable[str] | Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Nested tables from texts such as `training.epochs=10`; the value is TOML, or a bare word.

    A single text or a mapping of names to values also works. No value, or None, resets a
    setting to its default.
    """
    if isinstance(settings, Mapping):
        pairs = [(str(name), "=", _plain(value)) for name, value in settings.items()]
    else:
        texts = [settings] if isinstance(settings, str) else settings
        split = (text.partition("=") for text in texts)
        pairs = [(name, equals, _value(text.strip())) for name, equals, text in split]
    tables: dict[str, dict[str, Any]] = {}
    for key, equals, value in pairs:
        part, dot, name = key.strip().partition(".")
        if not equals or not dot or not name:
            raise RecipeError(f"--set {key}: write part.field=value, such as training.epochs=10")
        tables.setdefault(part, {})[name] = value
    return with_current_names(tables)


def _plain(value: object) -> Any:
    """A value given in Python; numbers of NumPy and torch become Python's."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _value(str(value))


def _value(text: str) -> Any:
    if not text:
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        if re.fullmatch(r"[+-]?(\.\d+|\d+\.)", text):
            return float(text)  # .5 and 5. are no numbers in TOML
        return text  # a bare word: complex, cuda:1, a path
    except (RecursionError, ValueError):  # ValueError: a number of thousands of digits
        raise RecipeError(f"--set: {shown(text)} is not a valid value") from None


# Parts and settings that had another name in earlier versions.
_RENAMED = {
    "penalty": "regularizer",
    "loss.count": "n_negatives",
    "loss.answers_too": "in_batch_negatives",
    "loss.smoothing": "label_smoothing",
}


def with_current_names(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The same tables, with names of earlier versions replaced by today's."""
    current: dict[str, Any] = {}
    for part, table in tables.items():
        part = _RENAMED.get(part, part)
        if not isinstance(table, Mapping):
            current[part] = table
            continue
        table = {_RENAMED.get(f"{part}.{name}", name): value for name, value in table.items()}
        if part == "loss" and table.get("negatives") == "own":
            table["negatives"] = "per_query"
        current = merged(current, {part: table})
    return current


def with_earlier_defaults(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The same tables; a setting that their version did not have gets the value it had then."""
    evaluation = tables.get("evaluation", {})
    if not isinstance(evaluation, Mapping):
        return dict(tables)
    return {**tables, "evaluation": {"filter": "seen", **evaluation}}


def load_tables(path: Path | str) -> dict[str, Any]:
    """The nested tables of a TOML file, not yet checked."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            return parse_tables(file.read(LARGEST_FILE + 1), path)
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror})") from None


def parse_tables(text: bytes, path: Path) -> dict[str, Any]:
    """The nested tables in the text of a TOML file."""
    if len(text) > LARGEST_FILE:
        raise RecipeError(f"{path}: larger than {LARGEST_FILE:,} bytes; not a recipe")
    try:
        return tomllib.loads(text.decode())
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise RecipeError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise RecipeError(f"{path}: nested too deeply; a recipe has two levels") from None


def merged(base: Mapping[str, Any], top: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Nested tables: the settings in `top` replace those in `base`."""
    both = dict(base)
    for part, table in top.items():
        under = both.get(part, {})
        both[part] = {**(under if isinstance(under, Mapping) else {}), **table}
    return both


def shown(value: Any) -> str:
    """A value for a message, shortened."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # ValueError: a number of thousands of digits
        return "a value that is too long to print"
    return text if len(text) <= 40 else text[:37] + "..."


def toml_value(value: Any) -> str:
    """The value of a setting in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML string if DEL is escaped. The control characters after DEL are
        # escaped as well, since recipes are printed on terminals.
        text = json.dumps(value, ensure_ascii=False)
        return re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)
    return repr(value)
