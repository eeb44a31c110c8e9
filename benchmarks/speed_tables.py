"""Tables of bench_epoch.py, bench_grouped.py, bench_max_answers.py, bench_profile.py and
bench_ranking.py: one per machine, with a column for whatever differs between its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from table_text import Report, Row, machine_line, markdown_table, reports_of

# Names in result files, and what the tables call them.
_DATA = {"made up": "a synthetic graph"}
_KINDS = {
    "products": "matrix products",
    "query": "query vectors",
    "rows looked up and added, and the penalty": "gather, scatter and regularizer",
    "everything else": "other",
}
_WAY = ("operands", "grouped", "batch")
_SHARES = (0.98, 0.99, 1.0)  # of the best MRR of a graph


class Merged(NamedTuple):
    """Runs whose tables become one."""

    caption: str  # what all runs share
    titles: list[str]  # of the columns that tell them apart
    runs: list[tuple[list[str], Report]]  # the cells of these columns, and the run


def merged(reports: list[Report], about: Callable[[Report], dict[str, str]]) -> Iterator[Merged]:
    """Runs on one machine are one table; GPUs and usual benchmarks come first.

    `about` has a title and a text for each fact about a run. A fact that is the same for all of
    them goes into the caption, any other one is a column.
    """
    order = sorted(reports, key=lambda r: ("NVIDIA" not in r["machine"], r.get("data") in _DATA))
    for line in dict.fromkeys(machine_line(report, triton=True) for report in order):
        runs = [(about(r), r) for r in order if machine_line(r, triton=True) == line]
        found = {t: {facts.get(t, "-") for facts, _ in runs} for facts, _ in runs for t in facts}
        titles = [title for title, texts in found.items() if len(texts) > 1]
        shared = [_fact(t, *texts) for t, texts in found.items() if t not in titles]
        cells = [([facts.get(t, "-") for t in titles], run) for facts, run in runs]
        yield Merged("; ".join([line, *shared]), titles, cells)


def factor(times: float) -> str:
    return f"{times:.0f}" if times >= 10 else f"{times:.2g}"


def _times(seconds: float, first: float) -> list[str]:
    """Seconds, and their ratio to those of the first line of a run."""
    return [f"{seconds:.3g}", factor(seconds / first)]


def _fact(title: str, text: str) -> str:
    return f"{title} {text}" if text[0].isdigit() else text


def _task(report: Report) -> dict[str, str]:
    graph = f"{_DATA.get(report['data'], report['data'])} ({report['entities']:,} entities)"
    return {"graph": graph, "dim": f"{report['dim']:,}"}


def _steps(report: Report) -> dict[str, str]:
    return {**_task(report), "batch": f"{report['batch']:,}"}


def _queries(report: Report) -> dict[str, str]:
    return {"queries per epoch": f"{report['questions']:,}"}


def _ranked(report: Report) -> dict[str, str]:
    return {"queries ranked": f"{report['rows'][0]['ranked']:,}"}


def _tables(
    reports: list[Report],
    about: Callable[[Report], dict[str, str]],
    headings: Iterable[str],
    lines: Callable[[Report], Iterator[list[object]]],
    note: str = "",
) -> str:
    """One table per machine; `lines` gives those of a run, without what tells the runs apart."""
    out = ""
    for table in merged(reports, about):
        rows = [[*cells, *line] for cells, report in table.runs for line in lines(report)]
        out += markdown_table([*table.titles, *headings], rows, caption=table.caption + note)
    return out


def _epochs(reports: list[Report]) -> str:
    """Seconds per epoch, and their ratio to the first line of the run."""
    headings = ["", "seconds per epoch", "relative time", "peak MiB"]
    found = reports_of(reports, "epoch")
    return _tables(found, lambda r: _steps(r) | _queries(r), headings, _epoch_lines)


def _epoch_lines(report: Report) -> Iterator[list[object]]:
    first = report["rows"][0]["seconds"]
    for row in report["rows"]:
        peak = f"{row['peak_mib']:,.0f}" if "peak_mib" in row else "-"
        yield [row["way"], *_times(row["seconds"], first), peak]
        if row["way"] == "PyKEEN" and "seconds_timed" in row:
            own = row["seconds_timed"]  # of its distinct queries, not scaled to all
            yield ["PyKEEN, its own grouped epoch", *_times(own, first), "-"]


def _groupings(reports: list[Report]) -> str:
    """Seconds per epoch, then seconds to an MRR, by batch size, grouped or not.

    Compiling does not count: an epoch takes as long as those after the first ranking.
    """
    found = sorted(reports_of(reports, "grouped"), key=lambda r: (r["data"], -r["dim"]))
    curves = [report for report in found if "curve" in report["rows"][0]]
    epochs = [report for report in found if report not in curves]
    headings = [*_WAY, "seconds per epoch", "relative time"]
    out = _tables(epochs, lambda r: _task(r) | _queries(r), headings, _batch_lines)
    headings = [*_WAY, "rate", *(f"{100 * share:.0f} %" for share in _SHARES)]
    headings += ["best MRR", "epochs", "seconds"]
    note = "; seconds until valid has this share of the lowest best MRR of the graph"
    return out + _tables(curves, _task, headings, _curve_lines, note)


def _batch_lines(report: Report) -> Iterator[list[object]]:
    whole = {r["precision"]: r["seconds"] for r in report["rows"] if not r["grouped"]}
    for row in report["rows"]:
        times = factor(row["seconds"] / whole[row["precision"]])
        yield [*_way(row), f"{row['seconds']:.3g}", times]


def _curve_lines(report: Report) -> Iterator[list[object]]:
    """A line per training: the seconds until valid is ranked with some MRRs, and the best one."""
    best = min(row["best"] for row in report["rows"])
    goals = [round(share * best, 4) for share in _SHARES]
    for row in report["rows"]:
        (first, began, _), *_, (last, ended, _) = row["curve"]
        epoch = (ended - began) / (last - first)
        reached = [[at for at, _, mrr in row["curve"] if round(mrr, 4) >= goal] for goal in goals]
        times = [f"{epoch * epochs[0]:.1f}" if epochs else "-" for epochs in reached]
        rest = [f"{row['best']:.4f}", last, f"{epoch * last:.1f}"]
        yield [*_way(row), row["rate"], *times, *rest]


def _way(row: Row) -> list[object]:
    """The cells of the columns `_WAY`."""
    return [row["precision"], "yes" if row["grouped"] else "no", row["batch"]]


def _answer_limits(reports: list[Report]) -> str:
    """One line per graph and setting: the best valid MRR by the answers of a grouped query."""
    out = ""
    for table in merged(reports_of(reports, "max_answers"), _limited):
        found = {row["most"] or 0 for _, report in table.runs for row in report["rows"]}
        limits = sorted(found, key=lambda most: -most or -(10**9))  # single queries first
        rows = []
        for cells, report in table.runs:
            for graph in dict.fromkeys(row["graph"] for row in report["rows"]):
                of_graph = (row for row in report["rows"] if row["graph"] == graph)
                results = {row["most"] or 0: _mrr_and_seconds(row) for row in of_graph}
                rows.append([graph, *cells, *(results.get(most, "-") for most in limits)])
        titles = ["graph", *table.titles, *(str(most or "not grouped") for most in limits)]
        out += markdown_table(titles, rows, caption=table.caption)
    return out


def _limited(report: Report) -> dict[str, str]:
    settings = dict(setting.split("=") for setting in report["settings"])
    out = {"model": report["max_answers"], "epochs": f"{report['epochs']}"}
    out |= {"answers in a batch": f"{report['answers']:,}"}
    out |= {"seeds": str(report["rows"][0].get("seeds", 1))}
    return out | {f"`{name}`": value for name, value in settings.items()}


def _mrr_and_seconds(row: Row) -> str:
    return f"{row['valid_mrr']:.4f}, {row['seconds']:.0f} s"


def _profiles(reports: list[Report]) -> str:
    """Microseconds per step by kind of work, one column per run and precision."""
    out = ""
    for table in merged(reports_of(reports, "profile"), _steps):
        titles, columns = [""], []
        for cells, report in table.runs:
            differs = [_fact(*fact) for fact in zip(table.titles, cells, strict=True)]
            for precision, times in report["microseconds"].items():
                titles.append(", ".join([precision, *differs]))
                of_kind = {_KINDS.get(kind, kind): time for kind, time in times.items()}
                of_kind["total"] = sum(times.values())
                if floor := report.get("floor"):
                    of_kind["three products at the rate of a large one"] = floor[precision]
                columns.append(of_kind)
        kinds = columns[0]
        rows = [[kind, *(f"{column[kind]:.0f}" for column in columns)] for kind in kinds]
        out += markdown_table(titles, rows, caption=f"{table.caption}; µs per step")
    return out


def _rankings(reports: list[Report]) -> str:
    """Seconds to rank test, and their ratio to the first line of the run."""
    headings = ["", "seconds", "relative time"]
    found = reports_of(reports, "ranking")
    return _tables(found, lambda r: _task(r) | _ranked(r), headings, _ranking_lines)


def _ranking_lines(report: Report) -> Iterator[list[object]]:
    first = report["rows"][0]["seconds"]
    for row in report["rows"]:
        yield [row["way"], *_times(row["seconds"], first)]


TABLES = {
    "epoch": _epochs,
    "grouped": _groupings,
    "answers": _answer_limits,
    "profile": _profiles,
    "ranking": _rankings,
}
