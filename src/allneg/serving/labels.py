"""Labels: what people call an entity whose name is an id."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allneg.errors import DataError, printable
from allneg.graph.files import DAMAGE

_LONGEST_LINE = 1 << 20
_LONGEST_LABEL = 200
_OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open}


def read_labels(path: Path) -> dict[str, str]:
    """The label of each name in a file of lines `name TAB label`, also .gz or .xz.

    A name that stands there twice keeps its first label; a long label is cut.
    """
    found: dict[str, str] = {}
    try:
        with _OPENERS.get(path.suffix, _open)(path) as stream:
            number = 0
            while line := stream.readline(_LONGEST_LINE):
                number += 1
                name, label = _fields(line, f"{path.name}:{number}")
                found.setdefault(name, label)
    except DAMAGE as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({why})") from None
    return found


def _open(path: Path) -> Any:
    return path.open("rb")


def _fields(line: bytes, where: str) -> tuple[str, str]:
    if len(line) == _LONGEST_LINE:
        raise DataError(f"{where}: a line of more than {_LONGEST_LINE:,} bytes; are these labels?")
    try:
        text = line.decode().removeprefix("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError:
        raise DataError(f"{where}: not UTF-8") from None
    name, tab, label = text.partition("\t")
    if not name or not tab or not label.strip():
        raise DataError(f"{where}: expected name, tab, label; found {printable(text)}")
    label = " ".join(label.split())
    return name, label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"
