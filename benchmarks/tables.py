"""Write the tables of the pages from benchmarks/results/*.json.

python benchmarks/tables.py

Run it after adding results. It replaces the text between `<!-- table NAME -->` and `<!-- end -->`.
A new table is a function from all reports to Markdown (`table_text.markdown_table` writes it),
and a line in `TABLES`, here or in the `*_tables.py` of its benchmark.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ask_tables
import complete_tables
import growing_tables
import kernel_tables
import large_tables
import mesh_tables
import speed_tables
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

HERE = Path(__file__).parent
ROOT = HERE.parent
_PAGES = (
    "ask", "complete", "data", "evaluation", "explorer", "growing", "kernels", "large-graphs",
    "many-gpus", "models", "search", "speed",
)  # fmt: skip
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in _PAGES)]
_SIZES = {"b": "B", "n": "N", "dim": "D"}


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
        text = TABLES[match["name"]](reports).strip() or "Not measured yet."
        return f"{match['open']}\n\n{text}\n\n<!-- end -->"

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
    for line in dict.fromkeys(machine_line(report, triton=True) for report in found):
        first, *others = (r for r in found if machine_line(r, triton=True) == line)
        rows, ways = [*first["rows"]], [*dict.fromkeys(row["way"] for row in first["rows"])]
        n_first = len(ways)
        for other in others:
            new = [row for row in other["rows"] if row["way"] not in ways]
            ways += dict.fromkeys(row["way"] for row in new)
            rows += new
        caption = f"{line}; ms / peak extra MiB per step"
        second = ways[n_first:]
        caption += f"; of a second run: {', '.join(second)}" if second else ""
        out += _by_size(caption, rows, ways, _SIZES)
    return out


def losses(reports: list[Report]) -> str:
    """One table per run: one line per kernel and size, one column per way."""
    out = ""
    for report in reports_of(reports, "loss"):
        caption = f"{machine_line(report, triton=True)}; ms / peak extra MiB per step"
        ways = ["streamed", "one block", "plain"]
        out += _by_size(caption, report["rows"], ways, {"kernel": "kernel", **_SIZES})
    return out


def service(reports: list[Report]) -> str:
    """One table per machine: a line for one client, and one for several at once."""
    out = ""
    names = ("p50_ms", "p99_ms", "most_ms", "server_cpu_ms", "client_cpu_ms")
    for report in reports_of(reports, "service"):
        rows = [
            [clients, *(f"{times[name]:.1f}" if name in times else "-" for name in names)]
            for clients, times in ((1, report["alone"]), (report["clients"], report["together"]))
        ]
        size = f"{report['entities']:,} entities, dim {report['dim']:,}"
        out += markdown_table(
            ["clients", "p50 ms", "p99 ms", "max ms", "server CPU ms", "client CPU ms"], rows,
            caption=f"{machine_line(report)}; {size}",
        )  # fmt: skip
        memory, grown = report["resident_mib"], max(0.0, report["grown_mib"])
        out += f"\nCPU times are per answer. Memory: {memory:,.0f} MiB; after "
        out += f"{report['requests']:,} answers {grown:.1f} MiB more.\n"
    return out


def completions(reports: list[Report]) -> str:
    """One line per run: seconds, and the precision of the first facts beside the baseline's."""
    rows = []
    for report, row in rows_of(reports, "complete"):
        ways = (row[way] for way in ("precision", "precision_seen", "frequency"))
        rows.append([
            row["data"], model_and_dim(row), report["machine"], row["questions"],
            f"{row['seconds']:.3g}", _cpu_seconds(row),
            *(f"{way['1000']:.3f}, {way['10000']:.3f}" for way in ways),
        ])  # fmt: skip
    headings = ["graph", "model", "machine", "questions", "seconds", "of CPU"]
    headings += ["complete", "`--within seen`", "frequency"]
    return markdown_table(headings, rows, align="lllr")


def _cpu_seconds(row: Row) -> str:
    return f"{row['cpu_seconds']:.3g}" if "cpu_seconds" in row else "not measured"


def classifications(reports: list[Report]) -> str:
    """One line per run."""
    rows = []
    for report, row in rows_of(reports, "classification"):
        numbers = [f"{row[name]:.4f}" for name in ("accuracy", "f1", "auc", "ece")]
        rows.append([row["data"], model_and_dim(row), report["machine"], row["facts"], *numbers])
    headings = ["graph", "model", "machine", "facts", "accuracy", "F1", "AUC", "ECE"]
    return markdown_table(headings, rows, align="lllr")


def audits(reports: list[Report]) -> str:
    """One line per graph and kind of errors."""
    rows = []
    for report, row in rows_of(reports, "audit"):
        ways = (row[way] for way in ("audit", "degree", "frequency"))
        rows.append([
            row["data"],
            row["errors"] + (f", seed {row['seed']}" if row.get("seed") else ""),
            f"{row['planted']:,} of {row['facts']:,}",
            f"{model_and_dim(row)}, {row['folds']} folds of {row['epochs']} epochs",
            report["machine"], f"{row['seconds']:.0f}", _cpu_seconds(row),
            *(f"{way['ap']:.3f}, {way['at_planted']:.3f}" for way in ways),
        ])  # fmt: skip
    headings = ["graph", "errors", "planted", "model", "machine", "seconds", "of CPU"]
    return markdown_table([*headings, "audit", "degree", "frequency"], rows, align="llrllr")


def graphs(reports: list[Report]) -> str:
    """One line per graph of benchmarks/graphs.py."""
    (found,) = (report["graphs"] for report in reports_of(reports, "graphs"))
    counts = ["entities", "relations", "train", "valid", "test"]
    rows = []
    for row in found:
        leaked = f"{row['leaked'] / row['test']:.0%}"
        rows.append([row["name"], row["about"].rstrip("."), *(row[n] for n in counts), leaked])
    sources = dict.fromkeys(row["source"] for row in found if ":" in row["source"])
    out = markdown_table(["graph", "content", *counts, "leaked by train"], rows, align="llr")
    return f"{out}\nSources: {'; '.join(sources)}.\n"


def headline(reports: list[Report]) -> str:
    """One training step of allneg, PyKEEN and plain PyTorch, each from one run."""
    lines, machine = [], ""
    for kernel, name in {"l1": "TransE, L1", "modulus": "RotatE"}.items():
        for report in reports:
            if report.get("kernel") != kernel or not _has_ways(report, "PyKEEN", "captured"):
                continue
            machine = report["machine"]
            sizes: dict[tuple[int, ...], dict[str, Row]] = {}
            for row in report["rows"]:
                sizes.setdefault((row["b"], row["n"], row["dim"]), {})[row["way"]] = row
            for (b, n, dim), rows in [*sizes.items()][:2]:  # the others are in docs/kernels.md
                mine = {**rows["engine"], "milliseconds": rows["captured"]["milliseconds"]}
                others = [_compared(rows[way], mine) for way in ("PyKEEN", "reference")]
                what = f"{name}, {b:,} queries × {n:,} entities, dim {dim:,}"
                lines.append([what, _time_and_memory(mine), *others])
    caption = f"Time and extra memory of one training step on one {machine}"
    headings = ["", "allneg", "PyKEEN", "plain PyTorch, in blocks"]
    return markdown_table(headings, lines, caption=caption)


def _compared(row: Row, mine: Row) -> str:
    if "problem" in row:
        return str(row["problem"])
    slower = row["milliseconds"] / mine["milliseconds"]
    larger = row["extra_mib"] / mine["extra_mib"]
    return f"{_time_and_memory(row)} ({slower:,.0f}× the time, {larger:,.0f}× the memory)"


def _time_and_memory(row: Row) -> str:
    return f"{three_digits(row['milliseconds'])} ms, {row['extra_mib']:,.0f} MiB"


def _has_ways(report: Report, *ways: str) -> bool:
    return set(ways) <= {row["way"] for row in report["rows"]}


def defaults(reports: list[Report]) -> str:
    """One table per run. On a GPU: one line per graph, one column per model."""
    found = reports_of(reports, "defaults")
    return "".join(
        _gpu_defaults(report) if "NVIDIA" in report["machine"] else _cpu_defaults(report)
        for report in found
    )


def _gpu_defaults(report: Report) -> str:
    rows, n = report["rows"], report["at_once"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    cells = {(row["graph"], row["model"]): _default_cell(row) for row in rows}
    lines = [
        [graph, *(cells.get((graph, model), "-") for model in models)]
        for graph in sorted({row["graph"] for row in rows})
    ]
    ratios = {m: [r["ratio"] for r in rows if r["model"] == m and "ratio" in r] for m in models}
    means = (f"{statistics.fmean(ratios[m]):.3f}" if ratios[m] else "-" for m in models)
    at_once = f", up to {n} trainings at a time" if n > 1 else ""
    caption = f"{machine_line(report, triton=True)}{at_once}; test MRR, ratio, seconds"
    return markdown_table(["graph", *models], [*lines, ["mean ratio", *means]], caption=caption)


def _cpu_defaults(report: Report) -> str:
    """One line per run, with the time that was forecast."""
    headings = ["graph", "model", "given", "negatives", "dim", "epochs", "test MRR", "by frequency"]
    headings += ["forecast", "took"]
    rows = (
        [
            row["graph"], row["model"],
            ", ".join(f"`{x}`" for x in row["settings"] if not x.startswith("hardware.")),
            f"{row['n_negatives']} shared" if row["n_negatives"] else "all",
            row["dim"], row["epochs"], f"{row['mrr']:.3f}", f"{row['frequency_mrr']:.3f}",
            row["forecast"], f"{row['with_test'] / 60:.1f} min",
        ]
        for row in report["rows"]
    )  # fmt: skip
    return markdown_table(headings, rows, align="llllrrrrlr", caption=machine_line(report))


def tunings(reports: list[Report]) -> str:
    """One line per tuning; its first trial is the best. Old results have no counts."""
    rows = []
    for report, row in rows_of(reports, "tune"):
        best, note = row["trials"][0], f" ({row['note']})" if row["note"] else ""
        rows.append([
            row["graph"], f"{report['machine']}{note}", f"{row['seconds'] / 60:.1f}",
            len(row["trials"]), ", ".join(f"{k} {v}" for k, v in best["settings"].items()),
            f"{best['valid_mrr']:.4f}",
            f"{row['valid_mrr']:.4f}" if len(row.get("members", ())) > 1 else "",
            f"{row['mrr']:.4f}",
        ])  # fmt: skip
    headings = ["graph", "machine", "minutes", "trials", "best trial", "valid MRR", "with counts"]
    return markdown_table([*headings, "test MRR"], rows, align="llrrlr")


def filters(reports: list[Report]) -> str:
    """One column per graph."""
    found = [row for _, row in rows_of(reports, "filter")]
    rows = [['`"seen"`', *(f"{row['mrr']:.3f}" for row in found)]]
    rows += [['`"all"`', *("1.000" for _ in found)]]
    return markdown_table(
        ["`evaluation.filter`", *(row["graph"] for row in found)], rows, align="lr"
    )


def baselines(reports: list[Report]) -> str:
    """One column per graph."""
    found = [row for _, row in rows_of(reports, "baselines")]
    names = found[0]["mrr"] if found else ()
    rows = [[f"`{name}`", *(f"{row['mrr'][name]:.3f}" for row in found)] for name in names]
    return markdown_table(["test MRR", *(row["graph"] for row in found)], rows, align="lr")


def _default_cell(row: Row) -> str:
    if "problem" in row:
        return str(row["problem"])
    ratio = f", {row['ratio']:.2f}" if "ratio" in row else ""
    return f"{row['mrr']:.3f}{ratio}, {row['seconds']:,.0f} s"


def _by_size(caption: str, rows: list[Row], ways: list[str], sizes: dict[str, str]) -> str:
    """One line per size and one column per way; `sizes` are keys and headings."""
    cells: dict[tuple[object, ...], dict[str, str]] = {}
    for row in rows:
        cells.setdefault(tuple(row[key] for key in sizes), {})[row["way"]] = _cell(row)
    lines = ([*size, *(found.get(way, "-") for way in ways)] for size, found in cells.items())
    return markdown_table([*sizes.values(), *ways], lines, caption=caption)


def _cell(row: Row) -> str:
    if "problem" in row:
        return str(row["problem"])
    short = three_digits(row["milliseconds"])
    return f"{short} / {row['extra_mib']:,.0f}" if "extra_mib" in row else short


TABLES: dict[str, Callable[[list[Report]], str]] = {
    "l1": partial(distances, kernel="l1"),
    "modulus": partial(distances, kernel="modulus"),
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
