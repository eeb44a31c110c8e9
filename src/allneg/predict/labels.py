"""Labels: readable names of entities whose names are ids."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

from allneg.errors import DataError, printable
from allneg.graph.files import DAMAGE

_MAX_LINE = 1 << 20  # bytes
_MAX_LABEL = 200  # characters
_OPENERS = {".gz": gzip.open, ".xz": lzma.open}


def read_labels(path: Path) -> dict[str, str]:
    """The label of each name in a file of lines `name TAB label`, plain, .gz or .xz.

    The first label of a name counts. Long labels are cut.
    """
    labels: dict[str, str] = {}
    try:
        with _OPENERS.get(path.suffix, open)(path, "rb") as stream:
            number = 0
            while line := stream.readline(_MAX_LINE):
                number += 1
                name, label = _fields(line, f"{path.name}:{number}")
                labels.setdefault(name, label)
    except DAMAGE as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({why})") from None
    return labels


def _fields(line: bytes, where: str) -> tuple[str, str]:
    if len(line) == _MAX_LINE:
        raise DataError(f"{where}: the line has {_MAX_LINE:,} bytes or more; is this a label file?")
    try:
        text = line.decode().removeprefix("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError:
        raise DataError(f"{where}: not UTF-8") from None
    name, _, label = text.partition("\t")
    label = " ".join(label.split())
    if not name or not label:
        raise DataError(f"{where}: expected name, tab, label; found {printable(text)}")
    return name, label if len(label) <= _MAX_LABEL else label[: _MAX_LABEL - 1] + "…"
