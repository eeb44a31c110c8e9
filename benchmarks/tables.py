"""Write the tables of the pages from benchmarks/results/*.json.

python benchmarks/tables.py            after new results were put there

A page says where a table goes: what stands between `<!-- table l1 -->` and `<!-- end -->` is
written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import large_tables
import mesh_tables

HERE = Path(__file__).parent
HOUSE = HERE.parent
_PAGES = ("explorer", "kernels", "large-graphs", "many-gpus", "speed")
PAGES = [HOUSE / "README.md", *(HOUSE / "docs" / f"{name}.md" for name in _PAGES)]
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
    """One table a run: a line for each size, a column for each way."""
    out = ""
    for report in reports:
        if report.get("kernel") != kernel:
            continue
        ways = list(dict.fromkeys(row["way"] for row in report["rows"]))
        out += f"\n{_machine(report)}; ms and peak extra MiB of a step:\n\n"
        out += _by_size(report["rows"], ways, ("b", "n", "dim"), ("B", "N", "D"))
    return out + "\n"


def losses(reports: list[Report]) -> str:
    """One table a run: a line for each kernel and size, a column for each way."""
    out = ""
    for report in reports:
        if "loss" not in report:
            continue
        out += f"\n{_machine(report)}; ms and peak extra MiB of a step:\n\n"
        columns = ("kernel", "b", "n", "dim"), ("kernel", "B", "N", "D")
        out += _by_size(report["rows"], ["streamed", "one block", "plain"], *columns)
    return out + "\n"


def epochs(reports: list[Report]) -> str:
    """One table a run: seconds an epoch, and how many times ours that is."""
    out = ""
    for report in reports:
        if "epoch" not in report:
            continue
        out += f"\n{_task(report)}; batch {report['batch']:,}; {report['questions']:,} queries:\n\n"
        out += "| | s an epoch | times the first | peak MiB |\n|---|---|---|---|\n"
        first = report["rows"][0]["seconds"]
        for row in report["rows"]:
            peak = f"{row['peak_mib']:,.0f}" if "peak_mib" in row else "-"
            times = _factor(row["seconds"] / first)
            out += f"| {row['way']} | {row['seconds']:.3g} | {times} | {peak} |\n"
    return out + "\n"


def profiles(reports: list[Report]) -> str:
    """One table a run: microseconds of a step by kind of work, a column for each precision."""
    out = ""
    for report in reports:
        if "profile" not in report:
            continue
        times = report["microseconds"]
        out += f"\n{_task(report)}; batch {report['batch']:,}; µs a step:\n\n"
        out += "| | " + " | ".join(times) + " |\n" + "|---" * (1 + len(times)) + "|\n"
        for kind in next(iter(times.values())):
            out += f"| {kind} | " + " | ".join(f"{each[kind]:.0f}" for each in times.values())
            out += " |\n"
        sums = (f"{sum(each.values()):.0f}" for each in times.values())
        out += "| all | " + " | ".join(sums) + " |\n"
    return out + "\n"


def rankings(reports: list[Report]) -> str:
    """One table a run: seconds to rank test, and how many times ours that is."""
    out = ""
    for report in reports:
        if "ranking" not in report:
            continue
        out += f"\n{_task(report)}; {report['rows'][0]['ranked']:,} queries ranked:\n\n"
        out += "| | s | times the first |\n|---|---|---|\n"
        first = report["rows"][0]["seconds"]
        for row in report["rows"]:
            times = _factor(row["seconds"] / first)
            out += f"| {row['way']} | {row['seconds']:.3g} | {times} |\n"
    return out + "\n"


def service(reports: list[Report]) -> str:
    """One table a machine: a line for one client and one for several at once."""
    out = ""
    for report in reports:
        if "service" not in report:
            continue
        size = f"{report['entities']:,} entities, rank {report['dim']:,}"
        out += f"\n{_machine(report)}; {size}:\n\n"
        out += "| clients | p50 ms | p99 ms | longest ms | CPU ms an answer | of a client |\n"
        out += "|---|---|---|---|---|---|\n"
        for clients, said in ((1, report["alone"]), (report["clients"], report["together"])):
            names = ("p50_ms", "p99_ms", "most_ms", "server_cpu_ms", "client_cpu_ms")
            cells = [f"{said[name]:.1f}" if name in said else "-" for name in names]
            out += f"| {clients} | " + " | ".join(cells) + " |\n"
        there, grown = report["resident_mib"], max(0.0, report["grown_mib"])
        after = f"{report['requests']:,} answers"
        out += f"\nMemory: {there:,.0f} MiB, and {grown:.1f} more after {after}.\n"
    return out + "\n"


def headline(reports: list[Report]) -> str:
    """A step against every entity, ours beside PyKEEN's and plain PyTorch's, from one run each."""
    out = "\n| | allneg | PyKEEN | plain PyTorch, in pieces |\n|---|---|---|---|\n"
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
                others = [_beside(rows[way], mine) for way in ("PyKEEN", "reference")]
                b, n, dim = size
                what = f"{name}, {b:,} queries × {n:,} entities, dim {dim:,}"
                out += f"| {what} | {_said(mine)} | {' | '.join(others)} |\n"
    return f"\nOne training step on one {machine}: milliseconds and extra memory.\n{out}\n"


def _beside(row: dict[str, Any], mine: dict[str, Any]) -> str:
    if "problem" in row:
        return str(row["problem"])
    slower = row["milliseconds"] / mine["milliseconds"]
    larger = row["extra_mib"] / mine["extra_mib"]
    return f"{_said(row)} ({slower:,.0f}× the time, {larger:,.0f}× the memory)"


def _said(row: dict[str, Any]) -> str:
    return f"{_short(row['milliseconds'])} ms, {row['extra_mib']:,.0f} MiB"


def _has_ways(report: Report, *ways: str) -> bool:
    return set(ways) <= {row["way"] for row in report["rows"]}


def _by_size(
    rows: list[dict[str, Any]], ways: list[str], keys: tuple[str, ...], titles: tuple[str, ...]
) -> str:
    sizes = list(dict.fromkeys(tuple(row[key] for key in keys) for row in rows))
    cells = {(*(row[key] for key in keys), row["way"]): _cell(row) for row in rows}
    out = "| " + " | ".join([*titles, *ways]) + " |\n" + "|---" * (len(keys) + len(ways)) + "|\n"
    for size in sizes:
        said = [f"{each:,}" if isinstance(each, int) else str(each) for each in size]
        out += "| " + " | ".join([*said, *(cells.get((*size, way), "-") for way in ways)]) + " |\n"
    return out


def _task(report: Report) -> str:
    graph = f"{report['data']} ({report['entities']:,} entities), rank {report['dim']:,}"
    return f"{_machine(report)}; {graph}"


def _machine(report: Report) -> str:
    threads = f", {report['threads']} threads" if "NVIDIA" not in report["machine"] else ""
    triton = f", triton {report['triton']}" if "NVIDIA" in report["machine"] else ""
    return f"{report['machine']}{threads}, torch {report['torch']}{triton}"


def _cell(row: dict[str, Any]) -> str:
    if "problem" in row:
        return str(row["problem"])
    short = _short(row["milliseconds"])
    return f"{short} / {row['extra_mib']:,.0f}" if "extra_mib" in row else short


def _factor(times: float) -> str:
    return f"{times:.0f}" if times >= 10 else f"{times:.2g}"


def _short(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


TABLES: dict[str, Callable[[list[Report]], str]] = {
    "l1": lambda reports: distances(reports, "l1"),
    "modulus": lambda reports: distances(reports, "modulus"),
    "loss": losses,
    "epoch": epochs,
    "profile": profiles,
    "ranking": rankings,
    "service": service,
    "headline": headline,
    **large_tables.TABLES,
    **mesh_tables.TABLES,
}


if __name__ == "__main__":
    main()
