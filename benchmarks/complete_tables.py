"""Tables of bench_complete_bounds.py, and the least time of what bench_complete.py measured."""

from __future__ import annotations

from table_text import Report, Row, markdown_table, rows_of

# Of an H200, per second: operations of float32 and TF32 products (nominal), bytes of a copy.
_FLOAT32, _TF32, _BYTES = 66.9e12, 494.7e12, 4.2e12
# How often a stored score is written or read for (?, r, t), for (h, r, ?), and when that is asked
# again: the product and the check for NaN 1 each, log Σ exp 6. Then the largest score 1; or six
# operations for log-odds 12 in total, and the best answers at least 5 or the sufficient ones 2.
_HEAD, _TAIL, _AGAIN = 9, 25, 22
_SCORES = 1e12  # for which `complete-bounds` gives seconds
_WIDTH = 200


def _floor(reports: list[Report]) -> str:
    """The least seconds of products and of passes, beside the measured ones."""
    rows = []
    for report, row in rows_of(reports, "complete"):
        if "NVIDIA" not in report["machine"]:
            continue
        n, width = row["entities"], 2 * row["dim"]  # of ComplEx
        questions, again = row["questions"], n * row["asked_again"]
        heads, tails = n * questions, n * (questions - row["skipped"])
        scores = heads + tails + again
        passes = _HEAD * heads + _TAIL * tails + _AGAIN * again
        least = [2 * width * scores / _FLOAT32, 2 * width * scores / _TF32, 4 * passes / _BYTES]
        cells = [row["data"], width, f"{scores / 1e9:.0f}·10⁹", f"{row['seconds']:.3g}"]
        rows.append([*cells, *(f"{seconds:.2g}" for seconds in least)])
    headings = ["graph", "width of a row", "scores", "seconds", "float32 products, at least"]
    headings += ["TF32 products, at least", "passes over stored scores, at least"]
    return markdown_table(headings, rows, align="lr")


def _bounds(reports: list[Report]) -> str:
    """The questions that are scored, and by count the seconds of an H200."""
    (attend,) = (
        row
        for _, row in rows_of(reports, "attention")
        if (row["precision"], row["width"], row["b"]) == ("bf16", _WIDTH, 8000)
    )
    bound, rows = _of_bound(attend), []
    for _, row in rows_of(reports, "complete_bounds"):
        assert row["same"], "the bounds changed the facts"
        stored = _seconds(row, "plain", 1.0)
        bounded = 2 * bound + _seconds(row, "sharp", row["sharp_heads"])
        scored = [row["plain_scored"], row["sharp_scored"], row["sharp_heads"]]
        rows.append([
            row["data"], f"{1000 * row['top'] / row['questions']:.0f}",
            *(f"{share:.0%}" for share in scored),
            f"{stored:.0f}", f"{bounded:.0f}", f"{stored / bounded:.1f}×",
        ])  # fmt: skip
    headings = ["graph", "facts wanted per 1,000 questions", "(h, r, ?) scored", "with bounds"]
    headings += ["(?, r, t) scored with bounds", "seconds, stored", "with bounds", ""]
    return markdown_table(headings, rows, align="lr")


def _of_bound(row: Row) -> float:
    """Seconds of `SharpReach`: once with the fixed anchor, and for sharp sums also without."""
    times = [
        t["milliseconds"] for t in row["attend"] if t["tile"]["tma"] and not t["tile"]["fixed"]
    ]
    return (2 * row["attend_ms"] + min(times)) / 1000 * _SCORES / (row["b"] * row["n"])


def _seconds(row: Row, way: str, heads: float) -> float:
    """Of stored scores: products and passes, for 10¹² scores in each direction."""
    tails, again = row[f"{way}_scored"], row[f"{way}_again"]
    products = 2 * _WIDTH * (heads + tails + again) / _FLOAT32
    return (products + 4 * (_HEAD * heads + _TAIL * tails + _AGAIN * again) / _BYTES) * _SCORES


TABLES = {"complete-floor": _floor, "complete-bounds": _bounds}
