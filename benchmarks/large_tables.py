"""Tables of bench_large.py, bench_reading.py, bench_fused_softmax.py, bench_startup.py and
speedrun.py.
"""

from __future__ import annotations

from typing import Any

Report = dict[str, Any]
_TRAINING = ("training", "rank valid")  # phases of bench_startup.py that are training


def _reading(reports: list[Report]) -> str:
    out = ""
    for report in reports:
        if "reading" not in report:
            continue
        size = report["reading"]
        out += f"\n{machine_line(report)}; {size['entities']:,} entities, {size['triples']:,} "
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
        out += f"\n{machine_line(report)}; {size['entities']:,} entities, "
        out += f"{size['triples']:,} triples, {size['relations']:,} relations:\n\n"
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


def _attention(reports: list[Report]) -> str:
    """Both ways for each size, and the parts of a step without stored scores."""
    found = [report for report in reports if "attention" in report]
    rows = [(report, row) for report in found for row in report["rows"]]
    out = f"\n{machine_line(found[0])}; a step, ms / extra MiB:\n\n"
    out += "| operands | B | N | W | attention | stored scores |\n" + "|---" * 6 + "|\n"
    for _, row in rows:
        cells = [f"{row['step_ms']:.3g}", f"{row['stored_ms']:.3g}"]
        if row["step_extra_mib"]:  # else captured, and not measured
            names = ("step_extra_mib", "stored_extra_mib")
            cells = [f"{ms} / {row[n]:,.0f}" for ms, n in zip(cells, names, strict=True)]
        out += f"| {_operands_and_sizes(row)} | {' | '.join(cells)} |\n"
    out += "\nThe parts of a step with attention, ms:\n\n"
    out += "| operands | B | N | W | `attend` | `row_gradients` | AdaGrad | attention, all "
    out += "| four products | TFLOP/s of bfloat16 |\n" + "|---" * 10 + "|\n"
    for report, row in rows:
        if row["step_extra_mib"]:
            names = ("attend_ms", "row_gradients_ms", "adagrad_ms", "step_ms", "floor_4_ms")
            cells = [f"{row[name]:.3g}" for name in names] + [f"{report['bf16_tflops']:.0f}"]
            out += f"| {_operands_and_sizes(row)} | {' | '.join(cells)} |\n"
    return out + "\n"


def _operands_and_sizes(row: dict[str, Any]) -> str:
    return " | ".join([row["precision"], *(f"{row[name]:,}" for name in ("b", "n", "width"))])


def _startup(reports: list[Report]) -> str:
    """One table per machine: seconds by phase, one column per process."""
    out = ""
    for report in reports:
        if "startup" not in report:
            continue
        rows, names = report["rows"], ["first", "second", "third"]
        out += f"\n{machine_line(report)}; `allneg train {report['startup']}`, seconds:\n\n"
        out += "| | " + " | ".join(f"{name} process" for name, _ in zip(names, rows, strict=False))
        out += " |\n" + "|---" * (1 + len(rows)) + "|\n"
        for phase in dict.fromkeys(name for row in rows for name in row["phases"]):
            if phase not in _TRAINING:
                cells = (f"{row['phases'].get(phase, 0):.2f}" for row in rows)
                out += f"| {phase} | {' | '.join(cells)} |\n"
        totals = (f"{row['outside_training']:.2f}" for row in rows)
        out += f"| all of these | {' | '.join(totals)} |\n"
    return out + "\n"


def _speedrun(reports: list[Report]) -> str:
    out = ""
    for report in reports:
        if "speedrun" not in report:
            continue
        out += f"\n{machine_line(report)}:\n\n"
        out += "| graph | | seed | total seconds | training seconds | epochs | test MRR | goal |\n"
        out += "|---|---|---|---|---|---|---|---|\n"
        for row in report["rows"]:
            cells = [row["data"], row["way"], row.get("seed", ""), f"{row['seconds']:.1f}"]
            cells += [row.get("training_seconds", ""), row["epochs"], f"{row['mrr']:.4f}"]
            cells += [f"{report['speedrun'].get(row['data'], 0):.3f}"]
            out += "| " + " | ".join(map(str, cells)) + " |\n"
    return (out or "\nNot measured yet.\n") + "\n"


def machine_line(report: Report) -> str:
    """The machine of a report, in words."""
    threads = "" if "NVIDIA" in report["machine"] else f", {report['threads']} threads"
    return f"{report['machine']}{threads}, torch {report['torch']}"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f}"


TABLES = {
    "reading": _reading,
    "training": _training,
    "attention": _attention,
    "speedrun": _speedrun,
    "startup": _startup,
}
