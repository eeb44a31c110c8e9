"""Tables of bench_ask.py: questions per shape, beams, known facts, and published numbers."""

from __future__ import annotations

from collections.abc import Sequence

from table_text import Report, Row, machine_line, markdown_table, model_and_dim

Line = dict[str, str]  # by shape
NAMES = {"fb15k-237": "FB15k-237"}
SHAPES = ("1p", "2p", "3p", "2i", "3i", "ip", "pi", "2u", "up")
HOPS = ("2p", "3p", "ip", "pi", "up")  # with a variable beside the answer, where beams matter


def _timed(reports: list[Report]) -> str:
    """One table per report with times."""
    return "".join(map(_shapes, filter(_has_times, reports)))


def _countries(reports: list[Report]) -> str:
    """One table per report on this graph, and the times of single questions."""
    found = [report for report in reports if report.get("data") == "countries"]
    out = "".join(_shapes(report) for report in found if "ask" in report)
    for report in found:
        for row in report["rows"] if "ask_alone" in report else ():
            out += f"\n{machine_line(report)}; one question of shape {row['shape']} with its "
            out += f"derivations: {row['seconds']:.2g} s, the least of {row['turns']} times; "
            out += f"load {row['load']:.1f}.\n"
    return out


def _shapes(report: Report) -> str:
    """A line per shape."""
    found = {row["shape"]: row for row in _rows(report, "all")}
    rows = []
    for row in (found[shape] for shape in SHAPES if shape in found):
        seconds = [f"{row['seconds']:.3g}"] if "seconds" in row else []
        quality = [f"{row['mrr']:.3f}", f"{row['hits']['3']:.3f}"]
        rows.append([row["shape"], row["questions"], *seconds, *quality])
    headings = ["shape", "questions", *["seconds"] * _has_times(report), "MRR", "Hits@3"]
    beam = next(iter(found.values()))["beam"]
    caption = f"{machine_line(report)}; {_task(report)}, beam {beam}"
    return markdown_table(headings, rows, align="lr", caption=caption)


def _beams(reports: list[Report]) -> str:
    """A line per model, most questions first: their MRR with each beam."""
    lines: dict[str, Line] = {}
    for report in sorted(reports, key=_n_compared, reverse=True):
        for shape in HOPS:
            rows = [row for row in _rows(report, "compared") if row["shape"] == shape]
            if len(rows) > 1:
                beams = " / ".join(str(row["beam"]) for row in rows)
                mrr = " / ".join(f"{row['mrr']:.4f}" for row in rows)
                title = f"{_task(report)}; {report['machine']}; {_n_compared(report):,} questions"
                line = lines.setdefault(f"{title}; beam {beams}", {})
                line[shape] = f"{line[shape]}; {mrr}" if shape in line else mrr
    return _by_shape("MRR", lines)


def _n_compared(report: Report) -> int:
    return max((row["questions"] for row in _rows(report, "compared")), default=0)


def _facts(reports: list[Report]) -> str:
    """The MRR of a model without known facts and with them, if both were measured."""
    lines: dict[str, Line] = {}
    for report, other in ((a, b) for a in reports for b in reports if _rows(a, "all")):
        if _task(other) == f"{_task(report)}, with --facts":
            for each in (report, other):
                rows = _rows(each, "all")
                title = f"{_task(each)}; {rows[0]['questions']:,} questions"
                lines[title] = {row["shape"]: f"{row['mrr']:.3f}" for row in rows}
    return _by_shape("MRR", lines)


def _published(reports: list[Report]) -> str:
    """Hits@3 of the reports with times on our questions, and published ones on other questions."""
    (published,) = (report for report in reports if "ask_published" in report)
    lines: dict[str, Line] = {}
    for report in filter(_has_times, reports):
        if report["data"] == published["ask_published"] and report["split"] == "test":
            rows = _rows(report, "all")
            line = {row["shape"]: f"{row['hits']['3']:.3f}" for row in rows}
            lines[f"allneg, our questions; {_task(report)}"] = line
    theirs = {shape: f"{hits:.3f}" for shape, hits in published["hits3"].items()}
    lines["CQD-Beam, questions of Query2Box"] = theirs
    return f"{_by_shape('Hits@3', lines, SHAPES)}\nCQD-Beam: {published['source']}.\n"


def _rows(report: Report, way: str) -> list[Row]:
    return [row for row in report["rows"] if row["way"] == way] if "ask" in report else []


def _has_times(report: Report) -> bool:
    return any("seconds" in row for row in _rows(report, "all"))


def _task(report: Report) -> str:
    """The graph, the split and the model of a report of questions; else nothing."""
    if "ask" not in report:
        return ""
    split = "" if report["split"] == "test" else f", questions of {report['split']}"
    model = f"{model_and_dim(report)}{', with --facts' * report['facts']}"
    return f"{NAMES.get(report['data'], report['data'])}{split}; {model}"


def _by_shape(title: str, lines: dict[str, Line], shapes: Sequence[str] = HOPS) -> str:
    """A column per shape."""
    rows = ([name, *(line.get(shape, "-") for shape in shapes)] for name, line in lines.items())
    return markdown_table([title, *shapes], rows, align="lr")


TABLES = {
    "ask": _timed,
    "ask-beams": _beams,
    "ask-facts": _facts,
    "ask-countries": _countries,
    "ask-published": _published,
}
