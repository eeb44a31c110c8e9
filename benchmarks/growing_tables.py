"""Tables of bench_extend.py and bench_features.py."""

from __future__ import annotations

import statistics
from typing import Any

from large_tables import Report, machine_line

_WAYS = ("extend", "neighbours", "retrain")


def _extensions(reports: list[Report]) -> str:
    """A table per machine: a line per recipe and number of facts, with MRR and seconds."""
    out = ""
    for report in reports:
        rows = [row for row in report["rows"] if row["way"] in _WAYS] if "extend" in report else []
        if not rows:
            continue
        seconds = _seconds(report)
        out += f"\n{machine_line(report)}; MRR / {seconds.replace('cpu_', 'CPU ')}:\n\n"
        out += f"{report['note']}\n\n" if "note" in report else ""
        out += "| graph | model | facts per entity | `extend` | `--touch neighbours` | retraining "
        out += "| MRR, `extend` / retraining | time | old: before | among old | among all |\n"
        out += "|---" * 11 + "|\n"
        found = {(*_key(row), row["way"]): row for row in rows}
        for key in dict.fromkeys(map(_key, rows)):
            data, model, dim, facts, added = key
            ways = [found.get((*key, way)) for way in _WAYS]
            cells = [f"{way['mrr']:.3f} / {way[seconds]:.3g}" if way else "-" for way in ways]
            extend, again = ways[0], ways[2]
            cells += [f"{extend['mrr'] / again['mrr']:.0%}" if extend and again else "-"]
            # A retraining with few new entities takes as long as one with many, to a few percent.
            again = again or found.get((*key[:-1], None, "retrain"))
            cells += [f"{extend[seconds] / again[seconds]:.2%}" if extend and again else "-"]
            names = ("old_mrr_before", "old_mrr_among_old", "old_mrr")
            cells += [f"{extend[name]:.4f}" if extend else "-" for name in names]
            facts = facts if added is None else f"{facts}, {added} entities"
            out += f"| {data} | {model}, dim {dim} | {facts} | " + " | ".join(cells) + " |\n"
    return (out or "\nNot measured yet.\n") + "\n"


def _seconds(report: Report) -> str:
    """The time that other work on the machine changes least."""
    return "seconds" if "NVIDIA" in report["machine"] else "cpu_seconds"


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["data"], row["model"], row["dim"], row["facts"], row.get("added")


def _parts(reports: list[Report]) -> str:
    """A line per extension whose parts were measured, with the steps' share of a retraining."""
    out, head = "", ""
    for report in reports:
        if "extend" not in report:
            continue
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


TABLES = {"extend": _extensions, "parts": _parts, "warm": _warm_starts, "features": _features}
