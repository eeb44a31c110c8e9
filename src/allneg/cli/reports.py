"""A report as people read it and as programs do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allneg.cli.say import SCHEMA_VERSION, json_document, note, table
from allneg.errors import counted
from allneg.evaluation import Report
from allneg.evaluation.report import by_heading
from allneg.runs import Run

_MOST_RELATIONS = 20


def print_report(run: Run, as_json: bool) -> None:
    """The report of a run; where there was nothing to rank, say so."""
    if run.finished and not run.has_report:
        why = "trained; there is no valid or test split, so there is no report"
        if as_json:
            about = {"schema_version": SCHEMA_VERSION, "run": str(run.folder)}
            json_document({**about, "mrr": None, "reason": why})
        note(why)
        note(f"run: {run.folder}")
        return
    show(run.report, run, as_json)


def note_if_unfinished(run: Run) -> None:
    """Say of a run that is asked before its end that there may be better weights yet."""
    state = run.live_status["state"]
    if state != "finished":
        note(f"{run.folder} is not finished ({state}): these are its best weights so far")


def show(report: Report, run: Run, as_json: bool) -> None:
    """A report on stdout: one JSON document, or tables."""
    if as_json:
        about = {"schema_version": SCHEMA_VERSION, "run": str(run.folder)}
        json_document({**about, **report.to_json()})
        return
    rule, split = report.protocol, report.protocol["split"]
    rows = [
        ("all", *_cells(report.to_json())),
        *(("? " + side, *_cells(report.by_side[side])) for side in ("tail", "head")),
        *((name, *_cells(each)) for name, each in report.by_category.items()),
    ]
    columns = [*(f"{name}#" for name in by_heading(report.metrics)), "queries#"]
    table(f"{run.graph.name}, {split}: {run.recipe.model.name}", ("", *columns), rows)
    relations = sorted(report.by_relation.items(), key=lambda each: -each[1]["count"])
    rows = [(name, *_cells(each)) for name, each in relations[:_MOST_RELATIONS]]
    table("by relation", ("relation", *columns), rows)
    if len(relations) > _MOST_RELATIONS:
        print(f"and {counted(len(relations) - _MOST_RELATIONS, 'relation')} more (--json has all)")
    print(f"protocol {rule['name']}: {rule['in_words']}; {report.candidates:,} candidates")
    spread = (report.optimistic["mrr"], report.pessimistic["mrr"])
    print(f"MRR with ties for the answer {spread[0]:.4f}, against it {spread[1]:.4f}")
    if report.unseen["triples"] or report.unseen["dropped"]:
        few = report.unseen
        touch = f"{counted(few['triples'], 'triple')} touch{'es' if few['triples'] == 1 else ''}"
        out = f"{few['dropped']:,} left out for entities or relations not in train"
        print(f"{touch} entities not in train, {out if few['dropped'] else 'none left out'}")
    print(f"run: {run.folder}")


def _cells(said: Mapping[str, Any]) -> tuple[object, ...]:
    metrics = by_heading(said) | {"MR": f"{said['mr']:,.1f}"}
    return (*metrics.values(), said["count"])
