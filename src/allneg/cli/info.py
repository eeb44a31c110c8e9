"""`allneg info`."""

from __future__ import annotations

from pathlib import Path

import click

from allneg.cli.options import json_option, run_argument
from allneg.cli.output import json_document, table


@click.command()
@run_argument
@json_option
def command(run: Path, as_json: bool) -> None:
    """Print the data, the recipe and the progress of RUN."""
    from allneg.runs import Run
    from allneg.runs.run import best_of

    opened = Run.open(run)
    graph, metrics, status = opened.graph, opened.metrics(), opened.live_status
    report = opened.report if opened.has_report else None
    split = report.protocol["split"] if report else None
    valid_mrr, best_epoch = best_of(metrics)
    sizes = {name: len(graph.split(name)) for name in ("train", "valid", "test")}
    data = {"name": graph.name, "entities": graph.n_entities, "relations": graph.n_relations}
    seconds = metrics[-1]["seconds"] if metrics else 0.0
    if as_json:
        json_document(
            {
                "run": str(opened.folder),
                "status": status,
                "data": {**data, **sizes},
                "recipe": opened.recipe.to_tables(),
                "environment": opened.environment,
                "epochs": len(metrics),
                "seconds": seconds,
                "split": split,
                "mrr": report.mrr if report else None,
                "valid_mrr": valid_mrr,
                "best_epoch": best_epoch,
            }
        )
        return
    state = status["state"]
    if state == "cut off":
        state = f"was cut off; `allneg resume {opened.folder}` continues it"
    rows: list[tuple[str, object]] = [
        ("state", state),
        ("data", graph.name),
        ("entities", graph.n_entities),
        ("relations", graph.n_relations),
        (" / ".join(sizes), " / ".join(f"{size:,}" for size in sizes.values())),
        ("epochs", len(metrics)),
        ("seconds", f"{seconds:.1f}"),
    ]
    if best_epoch is not None:
        rows.append((f"best valid MRR, epoch {best_epoch}", valid_mrr))
    if split != "valid":
        rows.append((f"{split or 'test'} MRR", report.mrr if report else None))
    if "reason" in status:
        rows.append(("reason", status["reason"]))
    table(str(opened.folder), ("", "value"), rows)
    print(opened.recipe.to_toml(), end="")
