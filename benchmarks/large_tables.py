"""The tables of docs/large-graphs.md, from bench_large.py and bench_reading.py; see tables.py."""

from __future__ import annotations

from typing import Any

Report = dict[str, Any]


def _reading(reports: list[Report]) -> str:
    out = ""
    for report in reports:
        if "reading" not in report:
            continue
        size = report["reading"]
        out += f"\n{_machine(report)}; {size['entities']:,} entities, {size['triples']:,} "
        out += f"triples, {report['text_bytes'] / 2**20:,.0f} MiB of text:\n\n"
        out += "| | seconds | CPU seconds | peak memory, GiB |\n|---|---|---|---|\n"
        for row in report["rows"]:
            out += f"| {row['what']} | {row['seconds']:,.1f} | {row['cpu_seconds']:,.1f} "
            out += f"| {_gib(row['peak_bytes'])} |\n"
    return out + "\n"


def _training(reports: list[Report]) -> str:
    out = ""
    for report in reports:
        if "large" not in report:
            continue
        size = report["large"]
        out += f"\n{_machine(report)}; {size['entities']:,} entities, {size['triples']:,} triples, "
        out += f"{size['relations']:,} relations:\n\n"
        out += (
            "| model | tables on | queries per step | seconds per step | CPU seconds per step "
            "| seconds per million queries | GiB, planned | GiB, measured "
            "| host GiB, planned |\n"
        )
        out += "|---|---|---|---|---|---|---|---|---|\n"
        for row in report["rows"]:
            host = row["planned_host_bytes"]
            out += (
                f"| {row['model']}, dim {row['dim']} | {row['table']} | {row['batch']:,} "
                f"| {row['step_seconds']:.3g} | {row['step_cpu_seconds']:.3g} "
                f"| {row['seconds_a_million_questions']:,.0f} "
                f"| {_gib(row['planned_bytes'])} | {_gib(row['peak_bytes'])} "
                f"| {_gib(host) if host else ''} |\n"
            )
    return out + "\n"


def _machine(report: Report) -> str:
    threads = "" if "NVIDIA" in report["machine"] else f", {report['threads']} threads"
    return f"{report['machine']}{threads}, torch {report['torch']}"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f}"


TABLES = {"reading": _reading, "training": _training}
