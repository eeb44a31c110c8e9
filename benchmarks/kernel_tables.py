"""Tables of bench_half_distances.py with count_instructions.py, of bench_product_adagrad.py, and of
bench_rank_large.py.
"""

from __future__ import annotations

from typing import Any

from markdown_tables import machine_line

Report = dict[str, Any]
# Per second, of an H200: instructions of a thread, and roots by the special-function unit.
_INSTRUCTIONS, _ROOTS = 33.4e12, 4.2e12
_NAMES = {"library": "float32, loaded singly", "float32": "float32, loaded by fours"}
_WAYS = {
    "product": "product by cuBLAS", "triton": "product by Triton", "adagrad": "AdaGrad",
    "separate": "product by cuBLAS, rows of the batch added, then AdaGrad: as in training",
    "overlapped 2": "the same in 2 parts, with AdaGrad in a second stream",
    "overlapped 4": "in 4 parts", "overlapped 8": "in 8 parts",
    "fused": "AdaGrad behind each tile of a product by Triton, no gradient stored",
}  # fmt: skip


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
        times = {
            (kernel, direction): _fastest(
                [r for r in rows if (r["kernel"], r["direction"]) == (kernel, direction)]
            )
            for kernel in ("l1", "modulus")
            for direction in ("forward", "backward", "step")
        }
        out += f"\n{machine_line(report)}; B = {b:,}, N = {n:,}, D = {d:,}; ms:\n\n"
        out += _times(times)
        out += "\nForward and backward in detail; rates are 10¹² pairs and coordinates per second:"
        out += "\n\n| kernel | | numbers | rate | error | instructions | roots | ms, at least |\n"
        out += "|---" * 8 + "|\n"
        for (kernel, direction), found in times.items():
            for way, row in found.items() if direction != "step" else ():
                out += f"| `{kernel}` | {direction} | {_NAMES.get(way, way)} "
                out += f"| {_rest(row, counts, b * n * d)} |\n"
    return out + "\n"


def _times(times: dict[tuple[str, str], dict[str, dict[str, Any]]]) -> str:
    """One line per kernel and direction, one column per kind of numbers."""
    ways = dict.fromkeys(way for found in times.values() for way in found)
    out = "| kernel | | " + " | ".join(_NAMES.get(way, way) for way in ways) + " |\n"
    out += "|---" * (2 + len(ways)) + "|\n"
    for kernel in dict.fromkeys(kernel for kernel, _ in times):
        found = {
            direction: {way: row["milliseconds"] for way, row in times[kernel, direction].items()}
            for direction in ("forward", "backward", "step")
        }
        pairs = [w for w in found["forward"] if w in found["backward"]]  # u8 has no gradients
        found["both"] = {way: found["forward"][way] + found["backward"][way] for way in pairs}
        for direction in ("forward", "backward", "both", "step"):
            cells = (f"{found[direction][w]:.3g}" if w in found[direction] else "-" for w in ways)
            out += f"| `{kernel}` | {direction} | {' | '.join(cells)} |\n"
    return out


def _fastest(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The fastest row of each way."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: float(row["milliseconds"])):
        found.setdefault(row["way"], row)
    return {way: found[way] for way in dict.fromkeys(row["way"] for row in rows)}


def _rest(row: dict[str, Any], counts: dict[Any, dict[str, Any]], elements: int) -> str:
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
        for way, row in _fastest(rows).items():
            out += f"| {_WAYS.get(way, way)} | {row['milliseconds']:.3g} |\n"
    return out + "\n"


def _ranks(reports: list[Report]) -> str:
    """Milliseconds per 1,000 queries, and memory, of ranks with and without stored scores."""
    out = ""
    for report in reports:
        if "rank_large" not in report:
            continue
        out += f"\n{machine_line(report)}; ms per 1,000 queries, and MiB beside the table:\n\n"
        out += "| operands | entities | width | counted | stored, block by default "
        out += "| stored, large block | ranks that differ, at most by |\n" + "|---" * 7 + "|\n"
        for row in report["rows"]:
            cells = [
                f"{1000 * row[f'{way}_s']:.3g} / {row[f'{way}_extra_mib']:,.0f}"
                for way in ("counted", "stored", "large")
            ]
            out += f"| {row['precision']} | {row['n']:,} | {row['width']:,} | {' | '.join(cells)} "
            share, most = row["differ"] / row["answers"], row["most"] / row["n"]
            out += f"| {share:.1%}, {most:.2%} of all |\n"
    return out + "\n"


TABLES = {"half": _half, "product": _product, "ranks": _ranks}
