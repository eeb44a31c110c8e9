"""Tables of bench_large.py, bench_reading.py, bench_fused_softmax.py, bench_startup.py and
speedrun.py.
"""

from __future__ import annotations

from table_text import Report, machine_line, markdown_table, model_and_dim, reports_of, rows_of

_TRAINING = ("training", "rank valid")  # phases of bench_startup.py that are training


def _reading(reports: list[Report]) -> str:
    out = ""
    for report in reports_of(reports, "reading"):
        size = report["reading"]
        rows = [
            [row["what"], f"{row['seconds']:,.1f}", f"{row['cpu_seconds']:,.1f}",
             _gib(row["peak_bytes"])]
            for row in report["rows"]
        ]  # fmt: skip
        caption = f"{machine_line(report)}; {size['entities']:,} entities, {size['triples']:,} "
        caption += f"triples, {report['text_bytes'] / 2**20:,.0f} MiB of text"
        headings = ["", "seconds", "CPU seconds", "peak memory, GiB"]
        out += markdown_table(headings, rows, caption=caption)
    return out


def _training(reports: list[Report]) -> str:
    out = ""
    headings = (
        "model", "tables on", "queries per step", "seconds per step", "CPU seconds per step",
        "seconds per million queries", "GiB, planned", "GiB, measured", "host GiB, planned",
    )  # fmt: skip
    for report in reports_of(reports, "large"):
        size, rows = report["large"], []
        for row in report["rows"]:
            host = row["planned_host_bytes"]
            rows.append([
                model_and_dim(row), row["table"], row["batch"], f"{row['step_seconds']:.3g}",
                f"{row['step_cpu_seconds']:.3g}", f"{row['seconds_a_million_questions']:,.0f}",
                _gib(row["planned_bytes"]), _gib(row["peak_bytes"]), _gib(host) if host else "",
            ])  # fmt: skip
        caption = f"{machine_line(report)}; {size['entities']:,} entities, "
        caption += f"{size['triples']:,} triples, {size['relations']:,} relations"
        out += markdown_table(headings, rows, caption=caption)
    return out


def _attention(reports: list[Report]) -> str:
    """Both ways for each size, and the parts of a step without stored scores."""
    sizes, parts, first = [], [], reports_of(reports, "attention")[0]
    for report, row in rows_of(reports, "attention"):
        size = [row["precision"], *(row[name] for name in ("b", "n", "width"))]
        cells = [f"{row['step_ms']:.3g}", f"{row['stored_ms']:.3g}"]
        if row["step_extra_mib"]:  # else captured, and not measured
            extra = row["step_extra_mib"], row["stored_extra_mib"]
            cells = [f"{ms} / {mib:,.0f}" for ms, mib in zip(cells, extra, strict=True)]
            names = ("attend_ms", "row_gradients_ms", "adagrad_ms", "step_ms", "floor_4_ms")
            times = [f"{row[name]:.3g}" for name in names]
            parts.append([*size, *times, f"{report['bf16_tflops']:.0f}"])
        sizes.append([*size, *cells])
    headings = ["operands", "B", "N", "W"]
    steps = [*headings, "attention", "stored scores"]
    headings += ["`attend`", "`row_gradients`", "AdaGrad", "attention, all", "four products"]
    return markdown_table(
        steps, sizes, caption=f"{machine_line(first)}; a step, ms / extra MiB"
    ) + markdown_table(
        [*headings, "TFLOP/s of bfloat16"], parts, caption="The parts of a step with attention, ms"
    )


def _startup(reports: list[Report]) -> str:
    """One table per machine: seconds by phase, one column per process."""
    out = ""
    for report in reports_of(reports, "startup"):
        found, names = report["rows"], ["first", "second", "third"]
        rows = [
            [phase, *(f"{row['phases'].get(phase, 0):.2f}" for row in found)]
            for phase in dict.fromkeys(name for row in found for name in row["phases"])
            if phase not in _TRAINING
        ]
        rows += [["all of these", *(f"{row['outside_training']:.2f}" for row in found)]]
        headings = ["", *(f"{name} process" for name in names[: len(found)])]
        caption = f"{machine_line(report)}; `allneg train {report['startup']}`, seconds"
        out += markdown_table(headings, rows, caption=caption)
    return out


def _speedrun(reports: list[Report]) -> str:
    out = ""
    headings = (
        "graph", "", "seed", "total seconds", "training seconds", "epochs", "test MRR", "goal",
    )  # fmt: skip
    for report in reports_of(reports, "speedrun"):
        rows = [
            [row["data"], row["way"], row.get("seed", ""), f"{row['seconds']:.1f}",
             row.get("training_seconds", ""), row["epochs"], f"{row['mrr']:.4f}",
             f"{report['speedrun'].get(row['data'], 0):.3f}"]
            for row in report["rows"]
        ]  # fmt: skip
        out += markdown_table(headings, rows, caption=machine_line(report))
    return out


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f}"


TABLES = {
    "reading": _reading,
    "training": _training,
    "attention": _attention,
    "speedrun": _speedrun,
    "startup": _startup,
}
