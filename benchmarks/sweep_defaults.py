"""Find the default settings of each model: many settings on many graphs, compared on valid.

python benchmarks/sweep_defaults.py GRAPHS SPACE --out benchmarks/results/NAME.json

GRAPHS is a folder of graphs (benchmarks/graphs.py makes one), SPACE a TOML file: per model, the
settings that all candidates share, and the candidates. With `default = true`, they change the
default recipe of the model for this graph; otherwise the recipe contains nothing else. A
candidate's score is the mean, over the graphs, of its valid MRR divided by the best valid MRR that
any candidate of the model reaches there. Test is never ranked.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import torch
from measure import machine, write_whole

from allneg.errors import AllnegError
from allneg.graph import read_graph
from allneg.graph.graph import Graph
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.run import best_of
from allneg.training import fit
from allneg.training.defaults import default_recipe, n3_weight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("space", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="models and graphs, separated by commas")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no trial after this")
    args = parser.parse_args()
    space = tomllib.loads(args.space.read_text())
    only = set(filter(None, args.only.split(",")))
    trials = list(_trials(space, args.graphs, only))
    done: list[dict[str, Any]] = []
    end = time.monotonic() + 60 * args.minutes
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    report: dict[str, Any] = {"sweep": space, **machine(device)}
    for row in in_time(_run, trials, end, args.workers):
        done.append(row)
        print(json.dumps(row), flush=True)
        done.sort(key=lambda row: (row["model"], row["candidate"], row["graph"]))
        write_whole(args.out, {**report, "trials": done})
    for model, scores in scored(done).items():
        for name, (score, lowest, graphs) in scores.items():
            print(f"{model:9} {name:28} {score:.4f}  lowest {lowest:.3f}  graphs {graphs}")


def in_time(
    run: Callable[..., dict[str, Any]], trials: list[Any], end: float, workers: int
) -> Iterator[dict[str, Any]]:
    """The results of `run` for all trials that were started in time, as they end."""
    if workers == 1:
        yield from (run(*trial) for trial in trials if time.monotonic() < end)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        pending = [pool.submit(_before, end, run, *trial) for trial in trials]
        yield from filter(None, (future.result() for future in as_completed(pending)))


def _before(end: float, run: Callable[..., dict[str, Any]], *trial: Any) -> dict[str, Any] | None:
    return run(*trial) if time.monotonic() < end else None


def _trials(
    space: dict[str, Any], folder: Path, only: set[str]
) -> Iterable[tuple[str, str, str, dict[str, Any]]]:
    """Model, candidate, graph and settings; the first candidates of all models come first."""
    graphs = sorted(path.name for path in folder.iterdir() if any(path.glob("train.*")))
    graphs += ["countries", "countries-hard"]  # in the package
    rows = []
    for model, part in space.items():
        wanted = [name for name in part["graphs"] if name in graphs]
        if only and model not in only:
            continue
        for number, (name, settings) in enumerate(part["candidates"].items()):
            for graph in wanted:
                if not only & set(graphs) or graph in only:
                    every = {"model.name": part.get("model", model), **part["shared"], **settings}
                    every["default"] = part.get("default", False)
                    path = folder / graph
                    data = str(path) if path.is_dir() else graph
                    rows.append((number, (model, name, data, every)))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


@cache
def _graph(path: str) -> Graph:
    return read_graph(path)


def value_of(value: Any, graph: Graph) -> Any:
    """A setting. { n3 = 2.0 } is a multiple of the graph's `n3_weight`, { distance_n3 = 2.0 } of
    that for distance models; { per_degree, low, high } is a number divided by the triples per
    entity.
    """
    if not isinstance(value, dict):
        return value
    if "n3" in value:
        return value["n3"] * n3_weight(graph)
    if "distance_n3" in value:
        return value["distance_n3"] * n3_weight(graph, is_distance=True)
    degree = len(graph.train) / graph.n_entities
    return min(max(value["per_degree"] / degree, value["low"]), value["high"])


def recipe_of(settings: dict[str, Any], graph: Graph) -> Recipe:
    """A recipe of these settings alone, or the model's default one with these settings on top."""
    if settings.pop("default", False):
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return default_recipe(settings.pop("model.name"), graph, device, settings)
    return Recipe().with_settings(settings)


def _run(model: str, candidate: str, path: str, settings: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"model": model, "candidate": candidate, "graph": Path(path).name}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            graph = _graph(path)
            given = {name: value_of(value, graph) for name, value in settings.items()}
            recipe = recipe_of(given | {"training.save_seconds": 1e6}, graph)
            run = Run.create(Path(folder) / "run", recipe, graph)
            fit(run, split="valid")
            mrr, epoch = best_of(run.metrics())
            row |= {"valid_mrr": mrr, "best_epoch": epoch, "epochs": len(run.metrics())}
        except AllnegError as error:
            row |= {"valid_mrr": 0.0, "problem": str(error)}
    return row | {"seconds": round(time.perf_counter() - began, 2)}


def scored(rows: list[dict[str, Any]]) -> dict[str, dict[str, tuple[float, float, int]]]:
    """Per model and candidate: mean and lowest relative valid MRR, and the number of graphs."""
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row["model"], row["graph"]
        best[key] = max(best.get(key, 1e-9), row["valid_mrr"])
    shares: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        share = row["valid_mrr"] / best[row["model"], row["graph"]]
        shares.setdefault(row["model"], {}).setdefault(row["candidate"], []).append(share)
    return {
        model: {
            name: (statistics.fmean(found), min(found), len(found))
            for name, found in sorted(by_name.items(), key=lambda pair: -statistics.fmean(pair[1]))
        }
        for model, by_name in shares.items()
    }


if __name__ == "__main__":
    main()
