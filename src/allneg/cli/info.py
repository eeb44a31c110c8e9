"""`allneg info`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import json_option, run_argument
from allneg.cli.say import SCHEMA_VERSION, json_document, table


@click.command()
@run_argument
@json_option
def command(run: Path, as_json: bool) -> None:
    """Say what RUN is and how far it came."""
    from allneg.runs import Run
    from allneg.runs.epochs import best_of

    opened = Run.open(run)
    graph, metrics, standing = opened.graph, opened.metrics(), opened.live_status
    report = opened.report if opened.has_report else None
    split = report.protocol["split"] if report else None
    valid_mrr, best_epoch = best_of(metrics)
    said = {
        "schema_version": SCHEMA_VERSION,
        "run": str(opened.folder),
        "status": standing,
        "data": {
            "name": graph.name,
            "entities": graph.n_entities,
            "relations": graph.n_relations,
            "train": len(graph.train),
            "valid": len(graph.valid),
            "test": len(graph.test),
        },
        "recipe": opened.recipe.to_tables(),
        "environment": opened.environment,
        "epochs": len(metrics),
        "seconds": metrics[-1]["seconds"] if metrics else 0.0,
        "split": split,
        "mrr": report.mrr if report else None,
        "valid_mrr": valid_mrr,
        "best_epoch": best_epoch,
    }
    if as_json:
        json_document(said)
        return
    rows: list[tuple[str, object]] = [
        ("state", _state(standing["state"], opened.folder)),
        ("data", graph.name),
        ("entities", graph.n_entities),
        ("relations", graph.n_relations),
        (
            "train / valid / test",
            f"{len(graph.train):,} / {len(graph.valid):,} / {len(graph.test):,}",
        ),
        ("epochs", len(metrics)),
        ("seconds", f"{said['seconds']:.1f}"),
    ]
    if best_epoch is not None:
        rows.append((f"best valid MRR, epoch {best_epoch}", valid_mrr))
    if split != "valid":
        rows.append((f"{split or 'test'} MRR", said["mrr"]))
    if "reason" in standing:
        rows.append(("reason", standing["reason"]))
    table(str(opened.folder), ("", "value"), rows)
    print(opened.recipe.to_toml(), end="")


def _state(state: str, folder: Path) -> str:
    return f"was cut off; `allneg resume {folder}` goes on" if state == "cut off" else state
