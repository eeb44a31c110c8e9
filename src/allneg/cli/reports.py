"""A report on stdout, as tables or JSON."""

from collections.abc import Mapping
from typing import Any

from allneg.cli.output import json_document, note, table
from allneg.errors import counted
from allneg.evaluation import Report
from allneg.evaluation.report import by_heading
from allneg.runs import Run


def print_run(run: Run, as_json: bool) -> None:
    """Print the report of a run, or why there is none."""
    if run.has_report or not run.finished:
        print_report(run.report, run, as_json)
        return
    reason = "trained; there is no valid or test split, so there is no report"
    if as_json:
        json_document({"run": str(run.folder), "mrr": None, "reason": reason})
    note(reason)
    note(f"run: {run.folder}")


def note_if_unfinished(run: Run) -> None:
    """Print a note if the weights of a run may still improve."""
    state = run.live_status["state"]
    if state != "finished":
        note(f"{run.folder} is not finished ({state}): these are its best weights so far")


def print_report(report: Report, run: Run, as_json: bool) -> None:
    if as_json:
        json_document({"run": str(run.folder), **report.to_json()})
        return
    protocol, unseen = report.protocol, report.unseen
    rows = [
        ("all", *_cells(report.to_json())),
        *((f"? {side}", *_cells(report.by_side[side])) for side in ("tail", "head")),
        *((name, *_cells(metrics)) for name, metrics in report.by_category.items()),
    ]
    title = f"{run.graph.name}, {protocol['split']}: {run.recipe.model.name}"
    columns = [*(f"{name}#" for name in by_heading(report.metrics)), "queries#"]
    table(title, ("", *columns), rows)
    rows = [(name, *_cells(metrics)) for name, metrics in report.by_relation.items()]
    rows.sort(key=lambda row: -row[-1])
    table("by relation", ("relation", *columns), rows, most=20)
    print(f"protocol {protocol['name']}: {protocol['in_words']}; {report.candidates:,} candidates")
    low, high = report.pessimistic["mrr"], report.optimistic["mrr"]
    print(f"MRR if the answer wins ties {high:.4f}, if it loses them {low:.4f}")
    if unseen["triples"] or unseen["dropped"]:
        print(
            f"{counted(unseen['triples'], 'triple')} with entities not in train; "
            f"{unseen['dropped']:,} left out for entities or relations not in train"
        )
    print(f"run: {run.folder}")


def _cells(metrics: Mapping[str, Any]) -> tuple[Any, ...]:
    cells = by_heading(metrics) | {"MR": f"{metrics['mr']:,.1f}"}
    return (*cells.values(), metrics["count"])
