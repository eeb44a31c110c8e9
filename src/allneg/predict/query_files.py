"""Files of queries: triples of names in which one name is missing."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from allneg.errors import DataError, extra, printable
from allneg.graph.blocks import USUAL_NAMES

# Head, relation and tail; None is what is asked for.
NamedQuery: TypeAlias = tuple[str | None, str | None, str | None]
PARTS = ("head", "relation", "tail")
_LETTERS = "hrt"
_EXPECTED = "expected head, relation and tail, with ? or nothing for one of them"


def read_query_file(path: Path) -> list[tuple[str, NamedQuery | str]]:
    """Where each query of a file is, with the query or what is wrong with it.

    The suffix gives the format: .csv, .json, .jsonl, .parquet, or else lines with tabs. Lines may
    begin with a header, in any order; without one, the columns are head, relation, tail.
    """
    read = _READERS.get(path.suffix.lower(), _tabs)
    with read_errors(path):
        found = list(read(path))
    if not found:
        raise DataError(f"{path}: no queries; write head, relation, tail per line, with tabs")
    return [(f"{path.name}:{number}", query) for number, query in found]


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """A `DataError` if a file of text cannot be read."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start:,}); convert it to UTF-8") from None


_Numbered: TypeAlias = Iterator[tuple[int, NamedQuery | str]]  # by line or row


def _tabs(path: Path) -> _Numbered:
    return _table(path, lambda line: line.split("\t"))


def _commas(path: Path) -> _Numbered:
    return _table(path, lambda line: next(csv.reader([line], strict=True), [""]))


def _table(path: Path, split: Callable[[str], list[str]]) -> _Numbered:
    """Lines of fields. Only a line feed ends a line: a name may contain other line ends."""
    columns: Sequence[str] = _LETTERS
    for i, (number, line) in enumerate(numbered_lines(_text(path))):
        try:
            fields = split(line.removesuffix("\r"))
        except csv.Error as error:
            yield number, f"the quotes do not match ({error}): {printable(line)}"
            continue
        letters = [USUAL_NAMES.get(field.strip().lower(), "") for field in fields]
        if i == 0 and len(fields) > 1 and all(letters) and len(set(letters)) == len(fields):
            columns = letters
        elif len(fields) != len(columns):
            yield number, f"{_EXPECTED}; found {printable(line)}"
        else:
            named = dict(zip(columns, fields, strict=True))
            yield number, _query(named, line)


def _json(path: Path) -> _Numbered:
    """A list of objects with the keys head, relation and tail."""
    try:
        items = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error})") from None
    yield from _objects(items if isinstance(items, list) else [items])


def _json_lines(path: Path) -> _Numbered:
    for number, line in numbered_lines(_text(path)):
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, f"not JSON ({error}): {printable(line)}"
        else:
            yield number, next(_objects([item]))[1]


def _parquet(path: Path) -> _Numbered:
    with extra("tables", "Parquet"):
        import pyarrow
        import pyarrow.parquet
    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path}: not Parquet ({error})") from None
    yield from _objects(table.to_pylist())


_READERS: dict[str, Callable[[Path], _Numbered]] = {
    ".csv": _commas, ".json": _json, ".jsonl": _json_lines, ".parquet": _parquet,
}  # fmt: skip


def _objects(items: Iterable[Any]) -> _Numbered:
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            yield number, f"{_EXPECTED}; found {printable(str(item))}"
            continue
        named = {USUAL_NAMES.get(str(key).lower(), ""): value for key, value in item.items()}
        yield number, _query(named, str(item))


def _query(named: Mapping[str, Any], found: str) -> NamedQuery | str:
    """The query with these names by h, r and t, or what is wrong with it."""
    names = [named.get(letter) for letter in _LETTERS]
    names = [None if name in ("", "?") else name for name in names]
    if names.count(None) != 1 or not all(isinstance(name, str | None) for name in names):
        return f"{_EXPECTED}; found {printable(found)}"
    head, relation, tail = names
    return head, relation, tail


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file; none if it is empty."""
    text = _text(path)
    return text.removesuffix("\n").split("\n") if text else []


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    lines = enumerate(text.split("\n"), 1)
    return ((number, line) for number, line in lines if line.strip(" \r"))


def _text(path: Path) -> str:
    """The text of a UTF-8 file, which may begin with a byte order mark."""
    return path.read_bytes().decode().removeprefix("\ufeff")
