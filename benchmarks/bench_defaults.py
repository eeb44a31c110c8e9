"""The default run of each model on many graphs, beside the best recipe known for it.

python benchmarks/bench_defaults.py GRAPHS --models complex --out benchmarks/results/NAME.json

GRAPHS is a folder of graphs (benchmarks/graphs.py makes one; the benchmark sets may be beside
them). For a benchmark set, the best recipe is the shipped one with the highest test MRR in
results/. For another graph, it is the candidate with the highest valid MRR in
benchmarks/results/defaults-sweep.json, which is trained here as well.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import torch
from measure import machine, write_rows
from sweep_defaults import in_time, recipe_of, value_of

from allneg import train
from allneg.errors import AllnegError
from allneg.graph import read_graph
from allneg.models import MODELS

ROOT = Path(__file__).parents[1]
SWEEP = ROOT / "benchmarks" / "results" / "defaults-sweep.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--only", default="", help="graphs, separated by commas")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run after this")
    parser.add_argument("--out", type=Path, required=True, help="runs that it has are not repeated")
    args = parser.parse_args()
    end, rows = time.monotonic() + 60 * args.minutes, []
    if args.out.exists():
        rows = json.loads(args.out.read_text())["rows"]
    names = args.only.split(",") if args.only else sorted(p.name for p in args.graphs.iterdir())
    more = [f"hardware.device={args.device}", f"training.seed={args.seed}", *args.settings]
    done = {(row["graph"], row["model"]) for row in rows}
    jobs = [
        (args.graphs / name, model, more)
        for name in names
        for model in args.models.split(",")
        if any((args.graphs / name).glob("train.*")) and (name, model) not in done
    ]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    about = {"defaults": "test MRR", "seed": args.seed, "at_once": args.workers, **machine(device)}
    write_rows(about, in_time(_row, jobs, end, args.workers), args.out, rows)


def _row(path: Path, model: str, settings: list[str]) -> dict[str, Any]:
    row = {"graph": path.name, "model": model, **_run(path, settings, model=model)}
    row |= _published(path.name, model) or _best_candidate(path, model, settings)
    if row.get("best_mrr"):
        row["ratio"] = round(row["mrr"] / row["best_mrr"], 4)
    return row


def _run(path: Path, settings: list[str], **choice: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = train(path, settings=settings, out=Path(folder) / "run", **choice)
        except AllnegError as error:
            return {"mrr": 0.0, "problem": str(error)}
        metrics = run.metrics()
        return {
            "mrr": round(run.report.mrr, 5),
            "dim": run.recipe.model.dim,
            "epochs": len(metrics),
            "seconds": round(metrics[-1]["seconds"], 1),
        }


def _published(name: str, model: str) -> dict[str, Any]:
    """The best result of a shipped recipe with this model; nothing for other graphs."""
    best: dict[str, Any] = {}
    for folder in (ROOT / "results", ROOT / "results" / "seen"):
        for path in sorted((folder / name).glob("*.json")):
            result = json.loads(path.read_text())
            mrr = sum(seed["mrr"] for seed in result["seeds"]) / len(result["seeds"])
            is_of_model = tomllib.loads(result["recipe"])["model"]["name"] == model
            if is_of_model and mrr > best.get("best_mrr", 0.0):
                best = {"best": f"{name}/{path.stem}", "best_mrr": round(mrr, 5)}
    return best


def _best_candidate(path: Path, model: str, settings: list[str]) -> dict[str, Any]:
    """The test MRR of the sweep's best candidate; nothing if the sweep had no such trial."""
    found: list[tuple[float, str, dict[str, Any]]] = []
    for one in json.loads(SWEEP.read_text())["rounds"]:
        for trial in one["trials"]:
            part = (one["space"] or {}).get(trial["model"], {})
            of_model = part.get("model", trial["model"]) == model
            if part and of_model and trial["graph"] == path.name:
                chosen = {**part["shared"], **part["candidates"][trial["candidate"]]}
                chosen["default"] = part.get("default", False)
                found.append((trial["valid_mrr"], trial["candidate"], chosen))
    if not found:
        return {}
    _, name, chosen = max(found, key=lambda entry: entry[0])
    graph = read_graph(path)
    given = {key: value_of(value, graph) for key, value in chosen.items()}
    recipe = recipe_of({"model.name": model, **given}, graph)
    return {"best": name, "best_mrr": _run(path, settings, recipe=recipe)["mrr"]}


if __name__ == "__main__":
    main()
