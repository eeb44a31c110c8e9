"""Tables of bench_extend.py and bench_features.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from markdown_tables import Report, machine_line

Row = dict[str, Any]

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
        return [*(f"{way[seconds]:.3g}" if way else "-" for way in ways), share]

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
    some = [report for report in reports if "extend" in report]
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
    for report in reports:
        rows = [row for row in report["rows"] if row["way"] in _WAYS] if "extend" in report else []
        if not rows:
            continue
        unit = what or _seconds(report).replace("cpu_", "CPU ")
        out += f"\n{machine_line(report)}; {unit}:\n\n"
        out += f"{report['note']}\n\n" if "note" in report else ""
        names = ["graph", "model", "facts per entity", *columns]
        out += f"| {' | '.join(names)} |\n" + "|---" * len(names) + "|\n"
        found = {(*_key(row), row["way"]): row for row in rows}
        for key in dict.fromkeys(map(_key, rows)):
            data, model, dim, facts, added = key
            ways = [found.get((*key, way)) for way in _WAYS]
            # A retraining with few new entities takes as long as one with many, to a few percent.
            again = ways[2] or found.get((*key[:-1], None, "retrain"))
            facts = facts if added is None else f"{facts}, {added} entities"
            shown = [data, f"{model}, dim {dim}", facts, *cells(report, ways, again)]
            out += f"| {' | '.join(map(str, shown))} |\n"
    return (out or "\nNot measured yet.\n") + "\n"


def _seconds(report: Report) -> str:
    """The time that other work on the machine changes least."""
    return "seconds" if "NVIDIA" in report["machine"] else "cpu_seconds"


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["data"], row["model"], row["dim"], row["facts"], row.get("added")


def _parts(reports: list[Report]) -> str:
    """A line per extension whose parts were measured, with the steps' share of a retraining."""
    out, head = "", ""
    for report in _with_ten(reports):
        rows, whole = report["rows"], _seconds(report)
        again = {_key(row): row[whole] for row in rows if row["way"] == "retrain"}
        for row in rows:
            key = (*_key(row)[:-1], None)  # with all of the held-out entities
            if row["way"] != "extend" or "parts" not in row or key not in again:
                continue
            data, model, dim, facts, added = _key(row)
            facts = facts if added is None else f"{facts}, {added} entities"
            parts, steps = row["parts"], row["parts"]["steps"]
            cells = [data, f"{model}, dim {dim}", facts, report["machine"]]
            cells += [f"{seconds:.2f}" for seconds in (*parts.values(), row[whole])]
            cells += [f"{steps / again[key]:.2%}", f"{row[whole] / again[key]:.2%}"]
            out += "| " + " | ".join(cells) + " |\n"
            head = "\n| graph | model | facts | machine | " + " | ".join(parts)
    if not out:
        return "\nNot measured yet.\n\n"
    head += " | all | steps / retraining | all / retraining |\n"
    return head + "|---" * (head.count("|") - 1) + "|\n" + out + "\n"


def _warm_starts(reports: list[Report]) -> str:
    """A line per graph and model: epochs to the same validation MRR from both starts."""
    out = ""
    for report in reports:
        for row in report["rows"] if "extend" in report else ():
            if row["way"] != "warm":
                continue
            warm = "not reached | -"
            if row["epochs"] is not None:
                warm = f"{row['epochs']} | {row['epochs'] / row['retrain_epochs']:.0%}"
            out += f"| {row['data']} | {row['model']}, dim {row['dim']} | {report['machine']} "
            out += f"| {row['mrr']:.4f} | {row['retrain_epochs']} | {warm} "
            out += f"| {row['best_mrr']:.4f} |\n"
    if not out:
        return "\nNot measured yet.\n\n"
    head = "\n| graph | model | machine | valid MRR | at random: epochs | `--from`: epochs "
    head += "| share | its best MRR |\n" + "|---" * 8 + "|\n"
    return head + out + "\n"


def _features(reports: list[Report]) -> str:
    """Two lines per graph and model: the mean MRR over seeds, with the range."""
    out = ""
    for report in reports:
        rows = report["rows"] if "features" in report else []
        kinds = [(row["data"], row["model"], row["dim"], row["features"]) for row in rows]
        for kind in dict.fromkeys(kinds):
            some = [row for row, other in zip(rows, kinds, strict=True) if other == kind]
            data, model, dim, has_features = kind
            cells = [data, f"{model}, dim {dim}", "yes" if has_features else "no", len(some)]
            cells += [_spread([row[part] for row in some]) for part in ("rare", "others", "all")]
            cells += [f"{statistics.fmean(row['seconds'] for row in some):.3g}"]
            out += "| " + " | ".join(map(str, cells)) + " |\n"
    if not out:
        return "\nNot measured yet.\n\n"
    head = "\n| graph | model | features | seeds | rare | others | all | seconds |\n"
    return head + "|---" * 8 + "|\n" + out + "\n"


def _spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


TABLES = {
    "extend": _quality, "extend-time": _times, "extend-old": _old, "parts": _parts,
    "warm": _warm_starts, "features": _features,
}  # fmt: skip
