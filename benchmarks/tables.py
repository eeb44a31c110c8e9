"""Write the tables of the pages from benchmarks/results/*.json.

python benchmarks/tables.py

Run it after adding results. It replaces the text between `<!-- table NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ask_tables
import complete_tables
import growing_tables
import kernel_tables
import large_tables
import mesh_tables
import speed_tables
from speed_tables import machine_line

HERE = Path(__file__).parent
ROOT = HERE.parent
_PAGES = (
    "ask", "complete", "data", "evaluation", "explorer", "growing", "kernels", "large-graphs",
    "many-gpus", "models", "search", "speed",
)  # fmt: skip
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in _PAGES)]
Report = dict[str, Any]


def main() -> None:
    reports = read_reports()
    for page in PAGES:
        text = page.read_text()
        if (new := page_with_tables(text, reports)) != text:
            page.write_text(new)


def read_reports() -> list[Report]:
    return [json.loads(path.read_text()) for path in sorted((HERE / "results").glob("*.json"))]


def page_with_tables(page: str, reports: list[Report]) -> str:
    """`page` with each of its tables written from the reports."""

    def written(match: re.Match[str]) -> str:
        return f"{match['open']}\n{TABLES[match['name']](reports)}<!-- end -->"

    return re.sub(
        r"(?P<open><!-- table (?P<name>[\w-]+) -->)\n.*?<!-- end -->",
        written,
        page,
        flags=re.DOTALL,
    )


def distances(reports: list[Report], kernel: str) -> str:
    """One table per machine: one line per size, one column per way.

    A second run adds columns of other ways; the ways of both runs are those of the first.
    """
    found = [report for report in reports if report.get("kernel") == kernel]
    found.sort(key=lambda r: ("NVIDIA" not in r["machine"], not _has_ways(r, "captured")))
    out = ""
    for line in dict.fromkeys(map(machine_line, found)):
        first, *others = (report for report in found if machine_line(report) == line)
        rows, ways = [*first["rows"]], [*dict.fromkeys(row["way"] for row in first["rows"])]
        for other in others:
            new = [row for row in other["rows"] if row["way"] not in ways]
            ways += dict.fromkeys(row["way"] for row in new)
            rows += new
        out += f"\n{line}; ms / peak extra MiB per step"
        second = ways[len({row["way"] for row in first["rows"]}) :]
        out += f"; of a second run: {', '.join(second)}" if second else ""
        out += ":\n\n" + _by_size(rows, ways, ("b", "n", "dim"), ("B", "N", "D"))
    return out + "\n"


def losses(reports: list[Report]) -> str:
    """One table per run: one line per kernel and size, one column per way."""
    out = ""
    for report in reports:
        if "loss" not in report:
            continue
        out += f"\n{machine_line(report)}; ms / peak extra MiB per step:\n\n"
        columns = ("kernel", "b", "n", "dim"), ("kernel", "B", "N", "D")
        out += _by_size(report["rows"], ["streamed", "one block", "plain"], *columns)
    return out + "\n"


def service(reports: list[Report]) -> str:
    """One table per machine: a line for one client, and one for several at once."""
    out = ""
    for report in reports:
        if "service" not in report:
            continue
        size = f"{report['entities']:,} entities, dim {report['dim']:,}"
        out += f"\n{machine_line(report)}; {size}:\n\n"
        out += "| clients | p50 ms | p99 ms | max ms | server CPU ms | client CPU ms |\n"
        out += "|---|---|---|---|---|---|\n"
        for clients, times in ((1, report["alone"]), (report["clients"], report["together"])):
            names = ("p50_ms", "p99_ms", "most_ms", "server_cpu_ms", "client_cpu_ms")
            cells = [f"{times[name]:.1f}" if name in times else "-" for name in names]
            out += f"| {clients} | " + " | ".join(cells) + " |\n"
        memory, grown = report["resident_mib"], max(0.0, report["grown_mib"])
        out += f"\nCPU times are per answer. Memory: {memory:,.0f} MiB; after "
        out += f"{report['requests']:,} answers {grown:.1f} MiB more.\n"
    return out + "\n"


def completions(reports: list[Report]) -> str:
    """One line per run: seconds, and the precision of the first facts beside the baseline's."""
    out = "\n| graph | model | machine | questions | seconds | of CPU | complete | `--within seen` "
    out += "| frequency |\n|---|---|---|--:|--:|--:|--:|--:|--:|\n"
    for report, row in _rows(reports, "complete"):
        ways = ("precision", "precision_seen", "frequency")
        cells = [f"{row[way]['1000']:.3f}, {row[way]['10000']:.3f}" for way in ways]
        out += f"| {row['data']} | {row['model']}, dim {row['dim']:,} | {report['machine']} "
        out += f"| {row['questions']:,} | {row['seconds']:.3g} | {_cpu_seconds(row)} "
        out += f"| {' | '.join(cells)} |\n"
    return out + "\n"


def _cpu_seconds(row: Mapping[str, Any]) -> str:
    return f"{row['cpu_seconds']:.3g}" if "cpu_seconds" in row else "not measured"


def classifications(reports: list[Report]) -> str:
    """One line per run."""
    out = "\n| graph | model | machine | facts | accuracy | F1 | AUC | ECE |\n"
    out += "|---|---|---|--:|--:|--:|--:|--:|\n"
    for report, row in _rows(reports, "classification"):
        cells = [f"{row[name]:.4f}" for name in ("accuracy", "f1", "auc", "ece")]
        out += f"| {row['data']} | {row['model']}, dim {row['dim']:,} | {report['machine']} "
        out += f"| {row['facts']:,} | {' | '.join(cells)} |\n"
    return out + "\n"


def audits(reports: list[Report]) -> str:
    """One line per graph and kind of errors."""
    out = (
        "\n| graph | errors | planted | model | machine | seconds | of CPU | audit | degree "
        "| frequency |\n"
    )
    out += "|---|---|--:|---|---|--:|--:|--:|--:|--:|\n"
    for report, row in _rows(reports, "audit"):
        ways = (row[way] for way in ("audit", "degree", "frequency"))
        cells = [f"{way['ap']:.3f}, {way['at_planted']:.3f}" for way in ways]
        folds = f"{row['folds']} folds of {row['epochs']} epochs"
        errors = row["errors"] + (f", seed {row['seed']}" if row.get("seed") else "")
        out += f"| {row['data']} | {errors} | {row['planted']:,} of {row['facts']:,} "
        out += f"| {row['model']}, dim {row['dim']:,}, {folds} | {report['machine']} "
        out += f"| {row['seconds']:.0f} | {_cpu_seconds(row)} "
        out += f"| {' | '.join(cells)} |\n"
    return out + "\n"


def graphs(reports: list[Report]) -> str:
    """One line per graph of benchmarks/graphs.py."""
    rows = next(report["graphs"] for report in reports if "graphs" in report)
    out = "\n| graph | content | entities | relations | train | valid | test | leaked by train |\n"
    out += "|---|---|--:|--:|--:|--:|--:|--:|\n"
    columns = ("entities", "relations", "train", "valid", "test")
    for row in rows:
        numbers = " | ".join(f"{row[column]:,}" for column in columns)
        leaked = f"{row['leaked'] / row['test']:.0%}"
        out += f"| {row['name']} | {row['about'].rstrip('.')} | {numbers} | {leaked} |\n"
    sources = dict.fromkeys(row["source"] for row in rows if ":" in row["source"])
    return f"{out}\nSources: {'; '.join(sources)}.\n\n"


def headline(reports: list[Report]) -> str:
    """One training step of allneg, PyKEEN and plain PyTorch, each from one run."""
    out = "\n| | allneg | PyKEEN | plain PyTorch, in blocks |\n|---|---|---|---|\n"
    names = {"l1": "TransE, L1", "modulus": "RotatE"}
    machine = ""
    for kernel, name in names.items():
        for report in reports:
            if report.get("kernel") != kernel or not _has_ways(report, "PyKEEN", "captured"):
                continue
            machine = report["machine"]
            sizes = dict.fromkeys((row["b"], row["n"], row["dim"]) for row in report["rows"])
            for size in list(sizes)[:2]:  # the others are in docs/kernels.md
                rows = {
                    row["way"]: row
                    for row in report["rows"]
                    if (row["b"], row["n"], row["dim"]) == size
                }
                mine = {**rows["engine"], "milliseconds": rows["captured"]["milliseconds"]}
                others = [_compared(rows[way], mine) for way in ("PyKEEN", "reference")]
                b, n, dim = size
                what = f"{name}, {b:,} queries × {n:,} entities, dim {dim:,}"
                out += f"| {what} | {_time_and_memory(mine)} | {' | '.join(others)} |\n"
    return f"\nTime and extra memory of one training step on one {machine}:\n{out}\n"


def _compared(row: dict[str, Any], mine: dict[str, Any]) -> str:
    if "problem" in row:
        return str(row["problem"])
    slower = row["milliseconds"] / mine["milliseconds"]
    larger = row["extra_mib"] / mine["extra_mib"]
    return f"{_time_and_memory(row)} ({slower:,.0f}× the time, {larger:,.0f}× the memory)"


def _time_and_memory(row: dict[str, Any]) -> str:
    return f"{_short(row['milliseconds'])} ms, {row['extra_mib']:,.0f} MiB"


def _has_ways(report: Report, *ways: str) -> bool:
    return set(ways) <= {row["way"] for row in report["rows"]}


def defaults(reports: list[Report]) -> str:
    """One table per run. On a GPU: one line per graph, one column per model."""
    out = ""
    for report in reports:
        if "defaults" not in report:
            continue
        rows = report["rows"]
        if not report["machine"].startswith("NVIDIA"):
            out += _cpu_defaults(report)
            continue
        models = list(dict.fromkeys(row["model"] for row in rows))
        n = report["at_once"]
        at_once = f", up to {n} trainings at a time" if n > 1 else ""
        out += f"\n{machine_line(report)}{at_once}; test MRR, ratio, seconds:\n\n"
        out += "| graph | " + " | ".join(models) + " |\n" + "|---" * (1 + len(models)) + "|\n"
        cells = {(row["graph"], row["model"]): _default_cell(row) for row in rows}
        for graph in sorted({row["graph"] for row in rows}):
            found = (cells.get((graph, model), "-") for model in models)
            out += f"| {graph} | " + " | ".join(found) + " |\n"
        ratios = {m: [r["ratio"] for r in rows if r["model"] == m and "ratio" in r] for m in models}
        means = (f"{statistics.fmean(ratios[m]):.3f}" if ratios[m] else "-" for m in models)
        out += "| mean ratio | " + " | ".join(means) + " |\n"
    return (out or "\nNot measured yet.\n") + "\n"


def _cpu_defaults(report: Report) -> str:
    """One line per run, with the time that was forecast."""
    out = f"\n{machine_line(report)}:\n\n"
    out += "| graph | model | dim | epochs | test MRR | by frequency | forecast | took |\n"
    out += "|---|---|--:|--:|--:|--:|---|--:|\n"
    for row in report["rows"]:
        out += f"| {row['graph']} | {row['model']} | {row['dim']} | {row['epochs']} "
        out += f"| {row['mrr']:.3f} | {row['frequency_mrr']:.3f} | {row['forecast']} "
        out += f"| {row['with_test'] / 60:.1f} min |\n"
    return out


def tunings(reports: list[Report]) -> str:
    """One line per tuning; its first trial is the best. Old results have no counts."""
    out = "\n| graph | machine | minutes | trials "
    out += "| best trial | valid MRR | with counts | test MRR |\n"
    out += "|---|---|--:|--:|---|--:|--:|--:|\n"
    for report, row in _rows(reports, "tune"):
        best, note = row["trials"][0], f" ({row['note']})" if row["note"] else ""
        settings = ", ".join(f"{k} {v}" for k, v in best["settings"].items())
        out += f"| {row['graph']} | {report['machine']}{note} | {row['seconds'] / 60:.1f} "
        counts = f"{row['valid_mrr']:.4f}" if len(row.get("members", ())) > 1 else ""
        out += f"| {len(row['trials'])} | {settings} | {best['valid_mrr']:.4f} | {counts} "
        out += f"| {row['mrr']:.4f} |\n"
    return out + "\n"


def filters(reports: list[Report]) -> str:
    """One column per graph."""
    rows = [row for _, row in _rows(reports, "filter")]
    out = "\n| `evaluation.filter` | " + " | ".join(row["graph"] for row in rows) + " |\n"
    out += "|---" + "|--:" * len(rows) + "|\n"
    out += '| `"seen"` | ' + " | ".join(f"{row['mrr']:.3f}" for row in rows) + " |\n"
    return out + '| `"all"` | ' + " | ".join("1.000" for _ in rows) + " |\n\n"


def baselines(reports: list[Report]) -> str:
    """One column per graph."""
    rows = [row for _, row in _rows(reports, "baselines")]
    out = "\n| test MRR | " + " | ".join(row["graph"] for row in rows) + " |\n"
    out += "|---" + "|--:" * len(rows) + "|\n"
    for name in rows[0]["mrr"] if rows else ():
        out += f"| `{name}` | " + " | ".join(f"{row['mrr'][name]:.3f}" for row in rows) + " |\n"
    return out + "\n"


def _default_cell(row: dict[str, Any]) -> str:
    if "problem" in row:
        return str(row["problem"])
    ratio = f", {row['ratio']:.2f}" if "ratio" in row else ""
    return f"{row['mrr']:.3f}{ratio}, {row['seconds']:,.0f} s"


def _rows(reports: list[Report], name: str) -> Iterator[tuple[Report, dict[str, Any]]]:
    """The rows of all reports of one benchmark, each with its report."""
    return ((report, row) for report in reports if name in report for row in report["rows"])


def _by_size(
    rows: list[dict[str, Any]], ways: list[str], keys: tuple[str, ...], titles: tuple[str, ...]
) -> str:
    sizes = list(dict.fromkeys(tuple(row[key] for key in keys) for row in rows))
    cells = {(*(row[key] for key in keys), row["way"]): _cell(row) for row in rows}
    out = "| " + " | ".join([*titles, *ways]) + " |\n" + "|---" * (len(keys) + len(ways)) + "|\n"
    for size in sizes:
        numbers = [f"{value:,}" if isinstance(value, int) else str(value) for value in size]
        out += (
            "| " + " | ".join([*numbers, *(cells.get((*size, way), "-") for way in ways)]) + " |\n"
        )
    return out


def _cell(row: dict[str, Any]) -> str:
    if "problem" in row:
        return str(row["problem"])
    short = _short(row["milliseconds"])
    return f"{short} / {row['extra_mib']:,.0f}" if "extra_mib" in row else short


def _short(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


TABLES: dict[str, Callable[[list[Report]], str]] = {
    "l1": lambda reports: distances(reports, "l1"),
    "modulus": lambda reports: distances(reports, "modulus"),
    "loss": losses,
    "service": service,
    "complete": completions,
    "classify": classifications,
    "audit": audits,
    "graphs": graphs,
    "headline": headline,
    "defaults": defaults,
    "tune": tunings,
    "filter": filters,
    "baselines": baselines,
    **ask_tables.TABLES,
    **complete_tables.TABLES,
    **growing_tables.TABLES,
    **kernel_tables.TABLES,
    **large_tables.TABLES,
    **mesh_tables.TABLES,
    **speed_tables.TABLES,
}


if __name__ == "__main__":
    main()
