"""Pieces of Markdown: numbers, links, lines of a table."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def digits(value: float | None, count: int) -> str:
    """As a table has it: .4876; nothing where there is no number."""
    if value is None:
        return ""
    text = f"{value:.{count}f}"
    return text.removeprefix("0") if value < 1 else text


def signed(value: float | None, count: int = 3) -> str:
    """A difference: +.012, −.003; nothing where there is none."""
    if value is None:
        return ""
    return ("+" if value >= 0 else "−") + digits(abs(value), count)


def link(text: str, path: Path, docs: Path) -> str:
    """A link from a page in `docs` to a file."""
    return f"[{text}]({Path(os.path.relpath(path, docs)).as_posix()})"


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
