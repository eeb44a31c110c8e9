"""`allneg info`, `allneg verify` and `allneg export`: commands about the files of a run."""

from pathlib import Path

import click

from allneg.cli.options import PATH, json_option, run_argument
from allneg.cli.output import json_document, table
from allneg.errors import RunError


@click.command()
@run_argument
@json_option
def info_command(run: Path, as_json: bool) -> None:
    """Print the data, the recipe and the progress of RUN."""
    from allneg.runs import Run
    from allneg.runs.run import best_of

    opened = Run.open(run)
    graph, metrics, status = opened.graph, opened.metrics(), opened.live_status
    report = opened.report if opened.has_report else None
    split, mrr = (report.protocol["split"], report.mrr) if report else (None, None)
    valid_mrr, best_epoch = best_of(metrics)
    data = {"name": graph.name, "entities": graph.n_entities, "relations": graph.n_relations}
    data |= {split: len(graph.split(split)) for split in ("train", "valid", "test")}
    seconds = metrics[-1]["seconds"] if metrics else 0.0
    if as_json:
        json_document(
            {
                "run": str(run),
                "status": status,
                "data": data,
                "recipe": opened.recipe.to_tables(),
                "environment": opened.environment,
                "epochs": len(metrics),
                "seconds": seconds,
                "split": split,
                "mrr": mrr,
                "valid_mrr": valid_mrr,
                "best_epoch": best_epoch,
            }
        )
        return
    state = status["state"]
    if state == "cut off":
        state = f"was cut off; `allneg resume {run}` continues it"
    rows: list[tuple[str, object]] = [
        ("state", state),
        *data.items(),
        ("epochs", len(metrics)),
        ("seconds", f"{seconds:.1f}"),
    ]
    if best_epoch is not None:
        rows.append((f"best valid MRR, epoch {best_epoch}", valid_mrr))
    if split != "valid":
        rows.append((f"{split or 'test'} MRR", mrr))
    if "reason" in status:
        rows.append(("reason", status["reason"]))
    table(str(run), ("", "value"), rows)
    print(opened.recipe.to_toml(), end="")


@click.command()
@run_argument
@click.option("--rank", is_flag=True, help="Also rank again, and compare with the report.")
@json_option
def verify_command(run: Path, rank: bool, as_json: bool) -> None:
    """Check sizes, SHA-256, shapes, names and ids of all files of RUN.

    The exit code is 4 if a check fails.
    """
    from allneg.runs.verify import verify

    checks = verify(run, rank)
    failed = [check for check in checks if check.wrong is not None]
    if as_json:
        results = [check.to_json() for check in checks]
        json_document({"run": str(run), "whole": not failed, "checks": results})
    else:
        rows = [(check.what, check.wrong or "ok") for check in checks]
        table(str(run), ("checked", "result"), rows)
    if failed:
        raise RunError(f"{run}: {len(failed)} of {len(checks)} checks failed")


@click.command()
@run_argument
@click.option(
    "--out",
    type=PATH,
    required=True,
    help="A new .safetensors file for the best weights, or a new folder for the whole run.",
)
@json_option
def export_command(run: Path, out: Path, as_json: bool) -> None:
    """Join the shards of RUN, as if one process had trained it.

    Rows are copied in blocks, so the tables need not fit in memory.
    """
    from allneg.runs import Run
    from allneg.runs.export import export

    export(Run.open(run), out)
    if as_json:
        json_document({"run": str(run), "out": str(out)})
    else:
        print(out)
