"""The default run of each model on many graphs, beside the best recipe known for it.

python benchmarks/bench_defaults.py GRAPHS --models complex --out benchmarks/results/NAME.json

GRAPHS is a folder of graphs (benchmarks/graphs.py makes one); --only may also name what `allneg
train` takes. For a benchmark set, the best recipe is the shipped one with the highest test MRR in
results/, and the ratio is that of the test MRRs. For another graph, it is the candidate with the
highest valid MRR in benchmarks/results/defaults-sweep.json, and the ratio is that of the valid
MRRs: the test of a candidate is never ranked.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from measure import machine, write_rows
from sweep_defaults import in_time

from allneg import train
from allneg.errors import AllnegError
from allneg.hardware import find_device
from allneg.models import MODELS
from allneg.runs.run import best_of
from allneg.training.callbacks import Callbacks

ROOT = Path(__file__).parents[1]
SWEEP = ROOT / "benchmarks" / "results" / "defaults-sweep.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--only", default="", help="GRAPH or GRAPH:MODEL, in order, with commas")
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
    more = [*args.settings, f"hardware.device={args.device}", f"training.seed={args.seed}"]
    same = [row for row in rows if row.get("settings", []) == args.settings]
    done = {(row["graph"], row["model"]) for row in same}
    jobs = [
        (str(args.graphs / name) if (args.graphs / name).is_dir() else name, model, more)
        for name, model in _cells(args.graphs, args.only, args.models.split(","))
        if (name, model) not in done
    ]
    device = find_device(args.device)
    about = {"defaults": "test MRR", "seed": args.seed, "at_once": args.workers, **machine(device)}
    write_rows(about, in_time(_row, jobs, end, args.workers), args.out, rows)


def _cells(folder: Path, only: str, models: list[str]) -> list[tuple[str, str]]:
    """Graphs and models, each pair once."""
    names = sorted(path.name for path in folder.iterdir() if any(path.glob("train.*")))
    cells = []
    for item in only.split(",") if only else names:
        name, _, model = item.partition(":")
        cells += [(name, model)] if model else [(name, each) for each in models]
    return list(dict.fromkeys(cells))


def _row(data: str, model: str, settings: list[str]) -> dict[str, Any]:
    """The run of a cell; its last two settings, device and seed, are those of all rows."""
    name = Path(data).name
    row: dict[str, Any] = {"graph": name, "model": model, "settings": settings[:-2]}
    row |= _run(data, settings, model)
    row |= _published(name, model) or _best_candidate(name, model)
    if "best_mrr" in row:
        row["ratio"] = round(row["mrr"] / row["best_mrr"], 4)
    elif "best_valid_mrr" in row:
        row["ratio"] = round(row.get("valid_mrr", 0.0) / row["best_valid_mrr"], 4)
    return row


class _Messages(Callbacks):
    """Keeps what the training reports before it starts."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_message(self, line: str) -> None:
        self.lines.append(line)


def _run(data: str, settings: list[str], model: str) -> dict[str, Any]:
    messages, began = _Messages(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = train(
                data, model=model, settings=settings, out=Path(folder) / "run", callbacks=messages
            )
        except AllnegError as error:
            return {"mrr": 0.0, "problem": str(error)}
        metrics = run.metrics()
        valid, epoch = best_of(metrics)
        return {
            "mrr": round(run.report.mrr, 5),
            "valid_mrr": round(valid or 0.0, 5),
            "frequency_mrr": round(run.report.baselines["frequency"]["mrr"], 5),
            "dim": run.recipe.model.dim,
            "n_negatives": run.recipe.loss.n_negatives,
            "best_epoch": epoch,
            "epochs": len(metrics),
            "seconds": round(metrics[-1]["seconds"], 1),
            "with_test": round(time.perf_counter() - began, 1),
            "forecast": next((line for line in messages.lines if "per epoch" in line), None),
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


def _best_candidate(graph: str, model: str) -> dict[str, Any]:
    """The sweep's best candidate; nothing if the sweep had no such trial."""
    found = [
        (trial["valid_mrr"], trial["candidate"])
        for one in json.loads(SWEEP.read_text())["rounds"]
        if graph not in one.get("other_graphs", ())
        for trial in one["trials"]
        if trial["graph"] == graph and _model(one, trial["model"]) == model
    ]
    if not found:
        return {}
    mrr, name = max(found)
    return {"best": name, "best_valid_mrr": round(mrr, 5)}


def _model(one: dict[str, Any], name: str) -> str:
    """The model of a name in a round of the sweep: "rotate-full" may be candidates of "rotate"."""
    model: str = (one["space"] or {}).get(name, {}).get("model", name)
    return model


if __name__ == "__main__":
    main()
