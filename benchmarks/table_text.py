"""What all tables of the pages share: Markdown, and the names of machines and models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Report = dict[str, Any]  # a file of benchmarks/results
Row = dict[str, Any]  # one of its rows


def markdown_table(
    headings: Iterable[str],
    rows: Iterable[Iterable[object]],
    *,
    align: str = "l",
    caption: str = "",
) -> str:
    """A table with its caption; nothing without rows. Integers get thousands separators.

    `align` has an l or r per column, as in LaTeX; the last one is that of all further columns.
    """
    headings = list(headings)
    lines = [_line(row) for row in rows]
    if not lines:
        return ""
    sides = align.ljust(len(headings), align[-1])
    rule = "".join("|--:" if side == "r" else "|---" for side in sides) + "|\n"
    return "".join([f"\n{caption}:\n\n" if caption else "\n", _line(headings), rule, *lines])


def reports_of(reports: Iterable[Report], key: str) -> list[Report]:
    """The reports of one benchmark: those that have `key`."""
    return [report for report in reports if key in report]


def rows_of(reports: Iterable[Report], key: str) -> Iterator[tuple[Report, Row]]:
    """The rows of all reports of one benchmark, each with its report."""
    return ((report, row) for report in reports_of(reports, key) for row in report["rows"])


def machine_line(report: Report, triton: bool = False) -> str:
    """The machine of a report, in words; with `triton`, also its version on a GPU."""
    if "NVIDIA" not in report["machine"]:
        return f"{report['machine']}, {report['threads']} threads, torch {report['torch']}"
    version = f", triton {report['triton']}" if triton else ""
    return f"{report['machine']}, torch {report['torch']}{version}"


def model_and_dim(row: Row) -> str:
    return f"{row['model']}, dim {row['dim']:,}"


def three_digits(number: float) -> str:
    """The first three digits, and all before the decimal point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _line(cells: Iterable[object]) -> str:
    texts = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
    return f"| {' | '.join(texts)} |\n"
