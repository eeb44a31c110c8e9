"""Tables of bench_extend.py and bench_features.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from table_text import (
    Report,
    Row,
    machine_line,
    markdown_table,
    model_and_dim,
    reports_of,
    rows_of,
    three_digits,
)

_WAYS = ("extend", "neighbours", "retrain")
_NAMES = ("`extend`", "`--touch neighbours`", "retraining")


def _quality(reports: list[Report]) -> str:
    """The MRR of new entities."""

    def cells(_: Report, ways: list[Row | None], __: Row | None) -> list[str]:
        extend, _neighbours, again = ways
        share = f"{extend['mrr'] / again['mrr']:.0%}" if extend and again else "-"
        return [*(f"{way['mrr']:.3f}" if way else "-" for way in ways), share]

    return _per_machine(reports, "MRR", [*_NAMES, "`extend` / retraining"], cells)


def _times(reports: list[Report]) -> str:
    """Seconds of each way, and their share of a retraining."""

    def cells(report: Report, ways: list[Row | None], again: Row | None) -> list[str]:
        extend, seconds = ways[0], _seconds(report)
        share = f"{extend[seconds] / again[seconds]:.2%}" if extend and again else "-"
        return [*(three_digits(way[seconds]) if way else "-" for way in ways), share]

    return _per_machine(_with_ten(reports), "", [*_NAMES, "`extend` / retraining"], cells)


def _old(reports: list[Report]) -> str:
    """The MRR of facts without a new entity."""

    def cells(_: Report, ways: list[Row | None], __: Row | None) -> list[str]:
        names = ("old_mrr_before", "old_mrr_among_old", "old_mrr")
        return [f"{ways[0][name]:.4f}" if ways[0] else "-" for name in names]

    names = ["before", "among old entities", "among all entities"]
    return _per_machine(_with_ten(reports), "MRR", names, cells)


def _with_ten(reports: list[Report]) -> list[Report]:
    """The measurements with ten facts per entity."""
    some = reports_of(reports, "extend")
    return [{**r, "rows": [row for row in r["rows"] if row.get("facts") == "10"]} for r in some]


def _per_machine(
    reports: list[Report],
    what: str,
    columns: list[str],
    cells: Callable[[Report, list[Row | None], Row | None], list[str]],
) -> str:
    """A table per report: a line per recipe and number of facts.

    `what` the numbers are; "" for times. `cells` gets the rows of all ways, and that of the
    retraining to compare times with.
    """
    out = ""
    for report in reports_of(reports, "extend"):
        rows = [row for row in report["rows"] if row["way"] in _WAYS]
        if not rows:
            continue
        found = {(*_key(row), row["way"]): row for row in rows}
        lines = []
        for key, row in {_key(row): row for row in rows}.items():
            ways = [found.get((*key, way)) for way in _WAYS]
            # A retraining with few new entities takes as long as one with many, to a few percent.
            again = ways[2] or found.get((*key[:-1], None, "retrain"))
            lines.append([*_task(row), *cells(report, ways, again)])
        unit = what or _seconds(report).replace("cpu_", "CPU ")
        out += f"\n{machine_line(report)}; {unit}:\n"
        out += f"\n{report['note']}\n" if "note" in report else ""
        out += markdown_table(["graph", "model", "facts per entity", *columns], lines)
    return out


def _seconds(report: Report) -> str:
    """The time that other work on the machine changes least."""
    return "seconds" if "NVIDIA" in report["machine"] else "cpu_seconds"


def _key(row: Row) -> tuple[Any, ...]:
    return row["data"], row["model"], row["dim"], row["facts"], row.get("added")


def _task(row: Row) -> list[str]:
    """The graph, the model and the facts per new entity, of all of them or of a few."""
    few = f", {row['added']} entities" if row.get("added") is not None else ""
    return [row["data"], model_and_dim(row), f"{row['facts']}{few}"]


def _parts(reports: list[Report]) -> str:
    """A line per extension whose parts were measured, with the steps' share of a retraining."""
    rows, names = [], list[str]()
    for report in _with_ten(reports):
        whole = _seconds(report)
        again = {_key(row): row[whole] for row in report["rows"] if row["way"] == "retrain"}
        for row in report["rows"]:
            key = (*_key(row)[:-1], None)  # with all of the held-out entities
            if row["way"] != "extend" or "parts" not in row or key not in again:
                continue
            parts, names = row["parts"], [*row["parts"]]
            cells = [f"{seconds:.2f}" for seconds in (*parts.values(), row[whole])]
            cells += [f"{seconds / again[key]:.2%}" for seconds in (parts["steps"], row[whole])]
            rows.append([*_task(row), report["machine"], *cells])
    headings = ["graph", "model", "facts", "machine", *names]
    return markdown_table([*headings, "all", "steps / retraining", "all / retraining"], rows)


def _warm_starts(reports: list[Report]) -> str:
    """A line per graph and model: epochs to the same validation MRR from both starts."""
    rows = []
    for report, row in rows_of(reports, "extend"):
        if row["way"] != "warm":
            continue
        warm = ["not reached", "-"]
        if row["epochs"] is not None:
            warm = [f"{row['epochs']}", f"{row['epochs'] / row['retrain_epochs']:.0%}"]
        rows.append([
            row["data"], model_and_dim(row), report["machine"], f"{row['mrr']:.4f}",
            row["retrain_epochs"], *warm, f"{row['best_mrr']:.4f}",
        ])  # fmt: skip
    headings = ["graph", "model", "machine", "valid MRR", "at random: epochs", "`--from`: epochs"]
    return markdown_table([*headings, "share", "its best MRR"], rows)


def _features(reports: list[Report]) -> str:
    """Two lines per graph and model: the mean MRR over seeds, with the range."""
    rows = []
    for report in reports_of(reports, "features"):
        groups: dict[tuple[str, str, bool], list[Row]] = {}
        for row in report["rows"]:
            groups.setdefault((row["data"], model_and_dim(row), row["features"]), []).append(row)
        for (data, model, has_features), some in groups.items():
            cells = [_spread([row[part] for row in some]) for part in ("rare", "others", "all")]
            cells += [f"{statistics.fmean(row['seconds'] for row in some):.3g}"]
            rows.append([data, model, "yes" if has_features else "no", len(some), *cells])
    headings = ["graph", "model", "features", "seeds", "rare", "others", "all", "seconds"]
    return markdown_table(headings, rows)


def _spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


TABLES = {
    "extend": _quality, "extend-time": _times, "extend-old": _old, "parts": _parts,
    "warm": _warm_starts, "features": _features,
}  # fmt: skip
