"""Write the tables of docs/kernels.md and docs/explorer.md from benchmarks/results/*.json.

python benchmarks/tables.py            after new results were put there
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "kernels.md"
SERVICE_PAGE = HERE.parent / "docs" / "explorer.md"
Report = dict[str, Any]


def main() -> None:
    reports = [json.loads(path.read_text()) for path in sorted((HERE / "results").glob("*.json"))]
    kernels = [report for report in reports if report.get("kernel") in ("l1", "modulus")]
    PAGE.write_text(page_with_tables(PAGE.read_text(), kernels))
    services = [report for report in reports if "service" in report]
    SERVICE_PAGE.write_text(page_with_service(SERVICE_PAGE.read_text(), services))


def page_with_tables(page: str, reports: list[Report]) -> str:
    """`page` with what stands between `<!-- table l1 -->` and `<!-- end -->` written anew."""

    def written(match: re.Match[str]) -> str:
        own = [report for report in reports if report["kernel"] == match["kernel"]]
        return f"{match['open']}\n{tables(own)}<!-- end -->"

    return re.sub(
        r"(?P<open><!-- table (?P<kernel>\w+) -->)\n.*?<!-- end -->", written, page, flags=re.DOTALL
    )


def page_with_service(page: str, reports: list[Report]) -> str:
    """`page` with what stands between `<!-- table service -->` and `<!-- end -->` written anew."""
    open_, close = "<!-- table service -->", "<!-- end -->"
    before, _, rest = page.partition(open_)
    return f"{before}{open_}\n{service(reports)}{close}{rest.partition(close)[2]}"


def service(reports: list[Report]) -> str:
    """One table a machine: a line for one client and one for several at once."""
    out = ""
    for report in reports:
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


def tables(reports: list[Report]) -> str:
    """One table a machine: a line for each size, a column for each way."""
    out = ""
    for machine in dict.fromkeys(_machine(report) for report in reports):
        rows = [row for report in reports if _machine(report) == machine for row in report["rows"]]
        ways = sorted(dict.fromkeys(row["way"] for row in rows), key=lambda way: way != "engine")
        sizes = list(dict.fromkeys((row["b"], row["n"], row["dim"]) for row in rows))
        cells = {(row["b"], row["n"], row["dim"], row["way"]): _cell(row) for row in rows}
        out += f"\n{machine}; ms and peak extra MiB of a step:\n\n"
        out += "| B | N | D | " + " | ".join(ways) + " |\n"
        out += "|---" * (3 + len(ways)) + "|\n"
        for size in sizes:
            line = [
                *(f"{each:,}" for each in size),
                *(cells.get((*size, way), "-") for way in ways),
            ]
            out += "| " + " | ".join(line) + " |\n"
    return out + "\n"


def _machine(report: Report) -> str:
    threads = f", {report['threads']} threads" if "NVIDIA" not in report["machine"] else ""
    triton = f", triton {report['triton']}" if "NVIDIA" in report["machine"] else ""
    return f"{report['machine']}{threads}, torch {report['torch']}{triton}"


def _cell(row: dict[str, Any]) -> str:
    if "problem" in row:
        return str(row["problem"])
    took = row["milliseconds"]
    short = f"{took:,.0f}" if took >= 100 else f"{took:.3g}"
    return f"{short} / {row['extra_mib']:,.0f}" if "extra_mib" in row else short


if __name__ == "__main__":
    main()
