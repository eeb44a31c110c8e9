"""Commands on the files of a run: info, verify, export, push."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from allneg.cli import options
from allneg.cli.output import echo, json_document, table
from allneg.errors import RunError, counted
from allneg.exports.formats import FORMATS


@click.command()
@options.any_run
@options.as_json
def info_command(run: Path, as_json: bool) -> None:
    """Print the data, the recipe and the progress of RUN."""
    from allneg.runs import Run, checkpoint
    from allneg.runs.run import LOST, best_of

    opened = Run.open(run)
    graph, metrics, status = opened.graph, opened.metrics(), opened.live_status
    report = opened.report if opened.has_report else None
    split, mrr = (report.protocol["split"], report.mrr) if report else (None, None)
    valid_mrr, best_epoch = best_of(metrics)
    data = {"name": graph.name, "entities": graph.n_entities, "relations": graph.n_relations}
    data |= {split: len(graph.split(split)) for split in ("train", "valid", "test")}
    seconds, step = metrics[-1]["seconds"] if metrics else 0.0, 0
    checkpoints = opened.folder / "checkpoints"
    if status["state"] != "finished" and checkpoint.names(checkpoints):
        saved = checkpoint.last_state(checkpoints)
        seconds = max(seconds, saved.seconds)
        step = saved.step if saved.epoch == len(metrics) else 0
    if as_json:
        settings: dict[str, Any] = {"recipe": opened.recipe.to_tables()}
        members = [{"name": m.name, "recipe": m.recipe.to_tables()} for m in opened.members]
        settings |= {"members": members, "environment": opened.environment}
        settings |= {"parents": [parent.to_json() for parent in opened.parents]}
        progress = {
            "epochs": len(metrics),
            "step": step,
            "seconds": seconds,
            "split": split,
            "mrr": mrr,
        }
        progress |= {"valid_mrr": valid_mrr, "best_epoch": best_epoch}
        json_document({"run": str(run), "status": status, "data": data, **settings, **progress})
        return
    state = status["state"]
    if state == "cut off":
        state = LOST if opened.is_lost else f"was cut off; `allneg resume {run}` continues it"
    rows: list[tuple[str, object]] = [("state", state), ("model", opened.model_name)]
    rows += [("data" if key == "name" else key, value) for key, value in data.items()]
    rows += [(f"parent {i}", parent.in_words()) for i, parent in enumerate(opened.parents, 1)]
    more = f" and {counted(step, 'step')}" if step else ""
    if not opened.members:  # an ensemble is not trained itself
        rows += [("epochs", f"{len(metrics):,}{more}"), ("seconds", f"{seconds:.1f}")]
    if best_epoch is not None:
        rows.append((f"best valid MRR, epoch {best_epoch}", valid_mrr))
    if split != "valid":
        rows.append((f"{split or 'test'} MRR", mrr))
    if "reason" in status:
        rows.append(("reason", status["reason"]))
    table(str(run), ("", "value"), rows)
    for member in opened.members:
        echo(f"# member {member.name}\n{member.recipe.to_toml()}")
    if not opened.members:
        echo(opened.recipe.to_toml())


@click.command()
@options.any_run
@click.option("--rank", is_flag=True, help="Also rank again and compare with the report.")
@options.as_json
def verify_command(run: Path, rank: bool, as_json: bool) -> None:
    """Check sizes, SHA-256, shapes, names and ids of all files of RUN.

    The exit code is 4 if a check fails.
    """
    from allneg.runs.verify import verify

    checks = verify(run, rank)
    failed = [check for check in checks if check.wrong is not None]
    if as_json:
        results = [vars(check) for check in checks]
        json_document({"run": str(run), "whole": not failed, "checks": results})
    else:
        rows = [(check.what, check.wrong or "ok") for check in checks]
        table(str(run), ("checked", "result"), rows)
    if failed:
        raise RunError(f"{run}: {len(failed)} of {len(checks)} checks failed")


@click.command()
@options.any_run
@click.option("--out", type=options.PATH, required=True, help="A new file or folder.")
@click.option(
    "--format",
    type=click.Choice(list(FORMATS)),
    help="Format of the vectors. Default: that of the suffix of --out",
)
@options.as_json
def export_command(run: Path, out: Path, format: str | None, as_json: bool) -> None:
    """Write the vectors of RUN with their names and a description, or the whole run.

    --out NAME.npy, .parquet, .csv, .vec (word2vec) or .safetensors is the file of entity vectors;
    relation vectors, names and NAME.json are written next to it. --format neo4j writes a folder for
    `neo4j-admin database import`. --out NAME, without format and suffix, is a copy of the run
    with its shards joined. Rows are copied in blocks, so the tables need not fit in memory.
    """
    from allneg.exports.export import export

    written = [str(path) for path in export(run, out, format)]
    if as_json:
        json_document({"run": str(run), "out": str(out), "files": written})
    else:
        echo("\n".join(written))


@click.command()
@options.run
@click.argument("repository", metavar="USER/NAME")
@click.option("--private", is_flag=True, help="Only its owner can see a new repository.")
@options.as_json
def push_command(run: Path, repository: str, private: bool, as_json: bool) -> None:
    """Upload RUN, with a model card, to a repository of the Hugging Face Hub.

    The upload has the triples, the weights, the report, and the command and versions of the
    training. `allneg.load("hf:USER/NAME")` loads it. Log in first with `hf auth login`.
    """
    from allneg.hub import push

    address = push(run, repository, private)
    if as_json:
        json_document({"run": str(run), "repository": repository, "address": address})
    else:
        echo(address)
