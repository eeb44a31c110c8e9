"""What people see: tables and JSON on stdout, notes on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

SCHEMA_VERSION = 1


def json_document(value: Any) -> None:
    """Print one JSON document. A number that is not finite becomes null."""
    plain = (sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")
    json.dump(_finite(value), sys.stdout, ensure_ascii=plain, indent=2)
    sys.stdout.write("\n")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; a column whose name ends in `#` holds numbers and is set to the right."""
    out = Table(title=Text(clean(title)), title_justify="left", header_style="bold")
    for column in columns:
        right = column.endswith("#")
        out.add_column(column.rstrip("#"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        out.add_row(*(Text(clean(_show(cell))) for cell in row))
    _Console(width=None if sys.stdout.isatty() else 120).print(out)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # rich would leave with 1; the command line ends quietly, whoever prints


def speaks() -> bool:
    """Is this the process that prints? Of those that torchrun started, it is the first."""
    return os.environ.get("RANK", "0") == "0"


def note(text: str) -> None:
    """A line for the person, on stderr."""
    print(clean(text), file=sys.stderr)


def clean(text: str) -> str:
    """`text` with control characters escaped: names come from files, and go to a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _show(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value
