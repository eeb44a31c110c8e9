"""Tables of bench_half_distances.py with count_instructions.py, and of bench_product_adagrad.py."""

from __future__ import annotations

from typing import Any

from large_tables import machine_line

Report = dict[str, Any]
# Per second, of an H200: instructions of a thread, and roots by the special-function unit.
_INSTRUCTIONS, _ROOTS = 33.4e12, 4.2e12
_NAMES = {"library": "float32, before", "float32": "float32, four at a time"}


def _half(reports: list[Report]) -> str:
    """The fastest tile of each way: time, rate, error, and the bound by its instructions."""
    counts = {
        (*(row[key] for key in ("kernel", "direction", "way")), str(row["tile"])): row
        for report in reports
        if "instructions" in report
        for row in report["rows"]
    }
    out = ""
    for report in reports:
        if "half_distances" not in report:
            continue
        b, n, d = (report["rows"][0][key] for key in "bnd")
        rows = [row for row in report["rows"] if row["b"] == b and "milliseconds" in row]
        out += f"\n{machine_line(report)}; B = {b:,}, N = {n:,}, D = {d:,}:\n\n"
        out += "| kernel | | numbers | ms | 10¹² pairs and coordinates per second | error "
        out += "| instructions | roots | ms, at least |\n" + "|---" * 9 + "|\n"
        for kernel in ("l1", "modulus"):
            for direction in ("forward", "backward", "step"):
                some = [r for r in rows if (r["kernel"], r["direction"]) == (kernel, direction)]
                for way in dict.fromkeys(row["way"] for row in some):
                    row = min(
                        (r for r in some if r["way"] == way), key=lambda r: float(r["milliseconds"])
                    )
                    out += f"| `{kernel}` | {direction} | {_NAMES.get(way, way)} "
                    out += f"| {row['milliseconds']:.3g} | {_rest(row, counts, b * n * d)} |\n"
    return out + "\n"


def _rest(row: dict[str, Any], counts: dict[Any, dict[str, Any]], elements: int) -> str:
    if row["direction"] == "step":
        return " | ".join(["-"] * 5)
    error = max(row["error"], row.get("d_table_error", 0.0))
    cells = [f"{row['t_elements']:.3g}", f"{error:.1e}"]
    key = (*(row[name] for name in ("kernel", "direction", "way")), str(row["tile"]))
    if key not in counts:
        return " | ".join([*cells, "-", "-", "-"])
    count = counts[key]
    least = max(count["instructions"] / _INSTRUCTIONS, count["roots"] / _ROOTS)
    cells += [f"{count['instructions']:.2f}", f"{count['roots']:.1f}"]
    return " | ".join([*cells, f"{1000 * least * elements:.3g}"])


def _product(reports: list[Report]) -> str:
    out = ""
    for report in reports:
        if "product_adagrad" not in report:
            continue
        b, n, width = report["product_adagrad"]
        out += f"\n{machine_line(report)}; B = {b:,}, N = {n:,}, W = {width:,}:\n\n"
        out += "| | ms |\n|---|---|\n"
        rows = [row for row in report["rows"] if "milliseconds" in row]
        for way in dict.fromkeys(row["way"] for row in rows):
            least = min(row["milliseconds"] for row in rows if row["way"] == way)
            out += f"| {way} | {least:.3g} |\n"
    return out + "\n"


TABLES = {"half": _half, "product": _product}
