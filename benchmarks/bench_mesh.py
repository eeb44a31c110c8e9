"""A step in 1, 2 and 4 processes on this CPU, beside what the cost model says of it.

python benchmarks/bench_mesh.py --out benchmarks/results/NAME-mesh.json

The model's rates are measured first, in as many processes at once as then take steps, so that
what is checked are its counts: operations, memory traffic, bytes on the wire.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine, write_rows
from mesh_cost import Rates, cost
from torch import Generator, Tensor
from torch import distributed as dist

from allneg.graph import Graph
from allneg.graph.graph import Vocabulary
from allneg.graph.queries import batches
from allneg.recipe import Mesh, Recipe
from allneg.scoring.distributed import SINGLE_PROCESS, World
from allneg.training.launch import make_world
from allneg.training.memory import Counts
from allneg.training.trainer import Trainer

MESHES = ("rows=1", "rows=2", "batch=2", "rows=4", "rows=2,batch=2")
RELATIONS = 10
TINY = 64  # entities of a step that is all small operations


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path)
    options.add_argument("--toy", action="store_true", help="small sizes, to see that it works")
    options.add_argument("--steps", type=int, default=9, help="whose median is taken")
    given = options.parse_args()
    size = {"entities": 500, "dim": 8, "batch_size": 32} if given.toy else {
        "entities": 40_000, "dim": 64, "batch_size": 256,
    }  # fmt: skip
    torch.set_num_threads(1)
    meshes = ("rows=2", "batch=2", "rows=2,batch=2") if given.toy else MESHES
    about = {"bench": "mesh", **machine(torch.device("cpu")), "cores": os.cpu_count(), **size}
    write_rows(about, (row(mesh, size, given.steps) for mesh in meshes), given.out)


def row(mesh: str, size: dict[str, int], steps: int) -> dict[str, Any]:
    """What a step in a mesh took, and what the model says that it takes."""
    found = run_processes(Mesh.read(mesh), measured, size, steps)
    rates = Rates(**{**found[0]["rates"], "products": {"tf32": found[0]["rates"]["products"]}})
    counts = Counts(size["entities"], RELATIONS, size["batch_size"])
    predicted = cost(make_recipe(size), counts, Mesh.read(mesh), rates)
    return {
        "mesh": mesh,
        "milliseconds": round(statistics.median(each["seconds"] for each in found) * 1e3, 2),
        "predicted": round(predicted.step_seconds * 1e3, 2),
        "parts": {name: round(took * 1e3, 2) for name, took in predicted.seconds.items()},
        "sent": max(each["sent"] for each in found),
        "predicted_sent": round(predicted.rows_wire + predicted.batch_wire),
        "rates": found[0]["rates"],
    }


def run_processes(mesh: Mesh, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work(world, …)` gives in each process of a mesh."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["allneg.training.trainer", "allneg.training.launch"])
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(mesh.size):
            mine, theirs = context.Pipe()
            given = (rank, mesh, Path(folder) / "store", theirs, work, arguments)
            processes.append(context.Process(target=run_process, args=given))
            processes[-1].start()
            pipes.append(mine)
        answers = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
    return answers


def run_process(
    rank: int,
    mesh: Mesh,
    store: Path,
    pipe: Connection,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    world = SINGLE_PROCESS
    if mesh.size > 1:
        shared = dist.FileStore(str(store), mesh.size)
        dist.init_process_group("gloo", store=shared, rank=rank, world_size=mesh.size)
        world = make_world(mesh, rank)
    pipe.send(work(world, *arguments))
    if mesh.size > 1:
        dist.destroy_process_group()


def measured(world: World, size: dict[str, int], steps: int) -> dict[str, Any]:
    """Rates, seconds of a step, and the bytes that this process sends in one.

    All are measured in turn, again and again, so that what else the machine does disturbs them
    alike; the medians are taken.
    """
    b, n = size["batch_size"] // world.batch.size, size["entities"] // world.rows.size
    width, p = 2 * size["dim"], world.size
    query, table, scores = torch.randn(b, width), torch.randn(n, width), torch.randn(b, n)
    many, few = torch.randn(1 << 20), torch.randn(1)
    small = make_trainer(SINGLE_PROCESS, {**size, "batch_size": b}, TINY)
    trainer = make_trainer(world, size, size["entities"])
    works: dict[str, Callable[[], object]] = {
        "products": lambda: query @ table.T,
        "memory": lambda: scores.mul_(1.0),
        "near": lambda: world.everyone.sum(many),
        "pause": lambda: world.everyone.sum(few),
        "rest": lambda: take_step(small),
        "step": lambda: take_step(trainer),
    }
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(steps + 1):
        for name, work in works.items():
            took[name].append(seconds(world, work))
    middle = {name: statistics.median(each[1:]) for name, each in took.items()}
    with counted() as sent:
        take_step(trainer)
    rates = {
        "products": 2 * b * n * width / middle["products"],
        "memory": 2 * scores.nbytes / middle["memory"],
        "near": 2 * (p - 1) / p * many.nbytes / middle["near"] if p > 1 else 1.0,
        "far": 1.0,
        "pause": middle["pause"] if p > 1 else 0.0,
        "rest": middle["rest"],
        "rest_many": middle["rest"],
        "distances": 1.0,
        "bytes": 0,
    }
    return {"rates": rates, "seconds": middle["step"], "sent": round(sum(sent))}


def seconds(world: World, work: Callable[[], object]) -> float:
    """What work takes that all processes begin together and wait for each other after."""
    world.max(0)
    began = time.perf_counter()
    work()
    world.max(0)
    return time.perf_counter() - began


def take_step(trainer: Trainer) -> Tensor:
    """One step, on a batch as large as the recipe's."""
    size = trainer.recipe.training.batch_size
    generator = Generator().manual_seed(0)
    triples = torch.stack(
        [
            torch.randint(high, (size,), generator=generator)
            for high in (trainer.tables.shard.total, RELATIONS, trainer.tables.shard.total)
        ],
        dim=1,
    )
    return trainer.step(next(batches(triples, size, generator)), generator)


def make_trainer(world: World, size: dict[str, int], entities: int) -> Trainer:
    names = Vocabulary(tuple(map(str, range(entities))), tuple(map(str, range(RELATIONS))))
    triples = np.zeros((1, 3), dtype=np.int64)
    graph = Graph("made up", names, triples, triples, triples)
    return Trainer(make_recipe(size), graph, torch.device("cpu"), world)


def make_recipe(size: dict[str, int]) -> Recipe:
    settings = (f"model.dim={size['dim']}", f"training.batch_size={size['batch_size']}")
    return Recipe().with_settings(settings)


class counted:
    """Bytes that a ring of processes sends for the sums and gathers made within."""

    def __enter__(self) -> list[float]:
        self._real = dist.all_reduce, dist.all_gather
        sent: list[float] = []

        def all_reduce(each: Tensor, *more: Any, group: Any, **options: Any) -> Any:
            p = dist.get_world_size(group)
            sent.append(2 * (p - 1) / p * each.nbytes)
            return self._real[0](each, *more, group=group, **options)

        def all_gather(out: list[Tensor], each: Tensor, group: Any) -> Any:
            sent.append((dist.get_world_size(group) - 1) * each.nbytes)
            return self._real[1](out, each, group=group)

        dist.all_reduce, dist.all_gather = all_reduce, all_gather
        return sent

    def __exit__(self, *_: object) -> None:
        dist.all_reduce, dist.all_gather = self._real


if __name__ == "__main__":
    main()
