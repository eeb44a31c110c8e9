"""Tables of bench_half_distances.py with count_instructions.py, of bench_product_adagrad.py, and of
bench_rank_large.py.
"""

from __future__ import annotations

from typing import Any

from large_tables import machine_line

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
        out += f"\n{machine_line(report)}; B = {b:,}, N = {n:,}, D = {d:,}:\n\n"
        out += "| kernel | | numbers | ms | 10¹² pairs and coordinates per second | error "
        out += "| instructions | roots | ms, at least |\n" + "|---" * 9 + "|\n"
        for kernel in ("l1", "modulus"):
            both: dict[str, float] = {}
            for direction in ("forward", "backward"):
                some = [r for r in rows if (r["kernel"], r["direction"]) == (kernel, direction)]
                for way, row in _fastest(some).items():
                    both[way] = both.get(way, 0.0) + row["milliseconds"]
                    out += f"| `{kernel}` | {direction} | {_NAMES.get(way, way)} "
                    out += f"| {row['milliseconds']:.3g} | {_rest(row, counts, b * n * d)} |\n"
            steps = [r for r in rows if (r["kernel"], r["direction"]) == (kernel, "step")]
            whole = {way: row["milliseconds"] for way, row in _fastest(steps).items()}
            both = {way: took for way, took in both.items() if way != "u8"}  # has no gradients
            for name, found in (("both", both), ("step", whole)):
                for way, took in found.items():
                    out += f"| `{kernel}` | {name} | {_NAMES.get(way, way)} | {took:.3g} "
                    out += "| - " * 5 + "|\n"
    return out + "\n"


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
