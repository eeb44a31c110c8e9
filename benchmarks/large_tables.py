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
    out = ""
    for report in reports:
        if "attention" not in report:
            continue
        out += f"\n{machine_line(report)}; {report['bf16_tflops']:.0f} TFLOP/s of bfloat16:\n\n"
        out += (
            "| operands | B | N | W | attention, ms | `attend` | `row_gradients` | AdaGrad "
            "| four products | stored scores, ms | seconds per million queries "
            "| with stored scores | extra MiB | with stored scores |\n"
        )
        out += "|---" * 14 + "|\n"
        for row in report["rows"]:
            steps = (row["step_ms"], row["stored_ms"])
            parts = (row["attend_ms"], row["row_gradients_ms"], row["adagrad_ms"])
            times = [f"{ms:.3g}" for ms in (steps[0], *parts, row["floor_4_ms"], steps[1])]
            rates = (f"{1000 * ms / row['b']:.3g}" for ms in steps)
            memory = [f"{row[name]:,.0f}" for name in ("step_extra_mib", "stored_extra_mib")]
            if not row["step_extra_mib"]:  # captured: it starts its parts faster than Python
                times[1:4], memory = ["-"] * 3, ["-"] * 2
            sizes = (f"{row[name]:,}" for name in ("b", "n", "width"))
            out += f"| {row['precision']} | {' | '.join([*sizes, *times, *rates, *memory])} |\n"
    return out + "\n"


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
        out += "| graph | | seed | seconds | of them training | epochs | test MRR | goal |\n"
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
