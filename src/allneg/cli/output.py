"""Output for people and programs: tables and JSON on stdout, notes on stderr."""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from allneg.terminal import clean

SCHEMA_VERSION = 1
_ANY_WIDTH = 10_000  # more than a table needs


def json_document(value: Mapping[str, Any]) -> None:
    """Print an object as JSON after its `schema_version`. Numbers that are not finite are null."""
    value = {"schema_version": SCHEMA_VERSION, **value}
    is_utf8 = (sys.stdout.encoding or "utf-8").lower() in ("utf-8", "utf8")
    text = json.dumps(_finite(value), ensure_ascii=not is_utf8, indent=2)
    # JSON leaves some control characters as they are; a terminal may obey them.
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], most: int | None = None
) -> None:
    """Print a table of at most `most` rows.

    A column whose name ends with `#` is right-aligned. One whose name ends with `?` is left out
    of a table that is wider than the terminal.
    """
    all_rows = list(rows)
    shown = all_rows[:most]
    console = _Console(width=None if sys.stdout.isatty() else 120)
    out = make_table(title, columns, shown)
    anywhere = console.options.update(max_width=_ANY_WIDTH)
    if console.measure(out, options=anywhere).maximum > console.width:
        kept = [not column.endswith("?") for column in columns]
        out = make_table(
            title, list(compress(columns, kept)), [list(compress(row, kept)) for row in shown]
        )
    _fit(out, console)
    console.print(out)
    if most is not None and len(all_rows) > most:
        print(f"and {len(all_rows) - most:,} more (--json has all)")


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table to print, or to show and update."""
    out = Table(title=Text(clean(title)), title_justify="left", header_style="bold")
    for column in columns:
        is_right = column.rstrip("?").endswith("#")
        name = Text(clean(column.rstrip("#?")))
        out.add_column(name, justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        out.add_row(*(Text(clean(_format(cell))) for cell in row))
    return out


def _fit(out: Table, console: Console) -> None:
    """Narrow a table that is too wide: fold no numbers, and remove padding before words break."""
    anywhere = console.options.update(max_width=_ANY_WIDTH)
    if console.measure(out, options=anywhere).maximum <= console.width:
        return
    for column in out.columns:
        if column.justify == "right":
            numbers = (str(cell) for cell in column.cells)
            column.width = max(map(len, (*str(column.header).split(), *numbers)), default=1)
    if console.measure(out, options=anywhere).minimum > console.width:
        out.padding = 0


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # `main` handles it; rich would exit with 1


def is_rank_zero() -> bool:
    """Only this process prints if torchrun started several."""
    return os.environ.get("RANK", "0") == "0"


def echo(text: str) -> None:
    """Print lines on stdout."""
    for line in text.splitlines():
        print(clean(line))


def _format(cell: object) -> str:
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
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
