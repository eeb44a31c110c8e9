"""Tables of bench_half_distances.py with count_instructions.py, of bench_product_adagrad.py, and of
bench_rank_large.py.
"""

from __future__ import annotations

from table_text import Report, Row, machine_line, markdown_table, reports_of, rows_of

Fastest = dict[tuple[str, str], dict[str, Row]]  # rows by kernel and direction, then by way
# Per second, of an H200: instructions of a thread, and roots by the special-function unit.
_INSTRUCTIONS, _ROOTS = 33.4e12, 4.2e12
_NAMES = {"library": "float32, loaded singly", "float32": "float32, loaded by fours"}
_DIRECTIONS = ("forward", "backward", "step")
_WAYS = {
    "product": "product by cuBLAS", "triton": "product by Triton", "adagrad": "AdaGrad",
    "separate": "product by cuBLAS, rows of the batch added, then AdaGrad: as in training",
    "overlapped 2": "the same in 2 parts, with AdaGrad in a second stream",
    "overlapped 4": "in 4 parts", "overlapped 8": "in 8 parts",
    "fused": "AdaGrad behind each tile of a product by Triton, no gradient stored",
}  # fmt: skip


def _half(reports: list[Report]) -> str:
    """The fastest tile of each way: time, rate, error, and the bound by its instructions."""
    counts = {_tile(row): row for _, row in rows_of(reports, "instructions")}
    out = ""
    for report in reports_of(reports, "half_distances"):
        b, n, d = (report["rows"][0][key] for key in "bnd")
        rows = [row for row in report["rows"] if row["b"] == b and "milliseconds" in row]
        fastest: Fastest = {
            (kernel, direction): _fastest(
                [r for r in rows if (r["kernel"], r["direction"]) == (kernel, direction)]
            )
            for kernel in ("l1", "modulus")
            for direction in _DIRECTIONS
        }
        caption = f"{machine_line(report)}; B = {b:,}, N = {n:,}, D = {d:,}; ms"
        out += _times(caption, fastest) + _details(fastest, counts, b * n * d)
    return out


def _times(caption: str, fastest: Fastest) -> str:
    """One line per kernel and direction, one column per kind of numbers."""
    ways = dict.fromkeys(way for found in fastest.values() for way in found)
    rows = []
    for kernel in dict.fromkeys(kernel for kernel, _ in fastest):
        found = {
            direction: {way: row["milliseconds"] for way, row in fastest[kernel, direction].items()}
            for direction in _DIRECTIONS
        }
        pairs = [w for w in found["forward"] if w in found["backward"]]  # u8 has no gradients
        found["both"] = {way: found["forward"][way] + found["backward"][way] for way in pairs}
        for direction in ("forward", "backward", "both", "step"):
            cells = (f"{found[direction][w]:.3g}" if w in found[direction] else "-" for w in ways)
            rows.append([f"`{kernel}`", direction, *cells])
    headings = ["kernel", "", *(_NAMES.get(way, way) for way in ways)]
    return markdown_table(headings, rows, caption=caption)


def _details(fastest: Fastest, counts: dict[tuple[str, ...], Row], elements: int) -> str:
    """Rate and error of each way, and the least time that its instructions take."""
    rows = []
    for (kernel, direction), found in fastest.items():
        for way, row in found.items() if direction != "step" else ():
            error = max(row["error"], row.get("d_table_error", 0.0))
            cells = [_NAMES.get(way, way), f"{row['t_elements']:.3g}", f"{error:.1e}"]
            bound = ["-", "-", "-"]
            if (count := counts.get(_tile(row))) is not None:
                least = max(count["instructions"] / _INSTRUCTIONS, count["roots"] / _ROOTS)
                bound = [f"{count['instructions']:.2f}", f"{count['roots']:.1f}"]
                bound += [f"{1000 * least * elements:.3g}"]
            rows.append([f"`{kernel}`", direction, *cells, *bound])
    return markdown_table(
        ["kernel", "", "numbers", "rate", "error", "instructions", "roots", "ms, at least"], rows,
        caption="Forward and backward in detail; rates are 10¹² pairs and coordinates per second",
    )  # fmt: skip


def _tile(row: Row) -> tuple[str, ...]:
    """The loop that a row measured, or whose instructions it counts."""
    return tuple(str(row[key]) for key in ("kernel", "direction", "way", "tile"))


def _fastest(rows: list[Row]) -> dict[str, Row]:
    """The fastest row of each way."""
    found: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: float(row["milliseconds"])):
        found.setdefault(row["way"], row)
    return {way: found[way] for way in dict.fromkeys(row["way"] for row in rows)}


def _product(reports: list[Report]) -> str:
    out = ""
    for report in reports_of(reports, "product_adagrad"):
        b, n, width = report["product_adagrad"]
        fastest = _fastest([row for row in report["rows"] if "milliseconds" in row])
        out += markdown_table(
            ["", "ms"],
            ([_WAYS.get(way, way), f"{row['milliseconds']:.3g}"] for way, row in fastest.items()),
            caption=f"{machine_line(report)}; B = {b:,}, N = {n:,}, W = {width:,}",
        )
    return out


def _ranks(reports: list[Report]) -> str:
    """Milliseconds per 1,000 queries, and memory, of ranks with and without stored scores."""
    out = ""
    headings = ["operands", "entities", "width", "counted", "stored, block by default"]
    headings += ["stored, large block", "ranks that differ, at most by"]
    for report in reports_of(reports, "rank_large"):
        rows = []
        for row in report["rows"]:
            cells = [
                f"{1000 * row[f'{way}_s']:.3g} / {row[f'{way}_extra_mib']:,.0f}"
                for way in ("counted", "stored", "large")
            ]
            share, most = row["differ"] / row["answers"], row["most"] / row["n"]
            differ = f"{share:.1%}, {most:.2%} of all"
            rows.append([row["precision"], row["n"], row["width"], *cells, differ])
        caption = f"{machine_line(report)}; ms per 1,000 queries, and MiB beside the table"
        out += markdown_table(headings, rows, caption=caption)
    return out


TABLES = {"half": _half, "product": _product, "ranks": _ranks}
