"""A graph of 5 million entities: seconds to make, read and train, and the plan beside the peak.

python benchmarks/bench_large.py --out FILE.json          text, reading, a few steps
python benchmarks/bench_large.py --ids --out FILE.json    ids made in memory, a few steps

On a GPU it is ComplEx of rank 128 with the tables on the device, then in the host's memory; on a
CPU, where three tables of 5 GB would be too much, DistMult of dim 128. Each part runs in a process
of its own, so that its peak is its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from large_graph import Size, in_memory, write
from measure import benchmark_parser, machine, resident, write_whole
from torch import Generator

from allneg.graph import Graph, read_graph
from allneg.graph.queries import batches
from allneg.hardware import peak_bytes, prepare, reset_peak
from allneg.recipe import Data, Recipe
from allneg.runs.checkpoint import State
from allneg.training.memory import plan
from allneg.training.trainer import Trainer

TOY = Size(entities=2_000, triples=8_000, relations=20, held_out=20)


@dataclass(frozen=True)
class Way:
    """What is trained, and for how long."""

    model: str
    dim: int
    batches: tuple[int, ...]  # queries a step; the first is the recipe's
    tables: tuple[str, ...]
    steps: int
    warm_up: int


GPU = Way("complex", 128, (1000, 8000), ("device", "host"), steps=5, warm_up=5)
CPU = Way("distmult", 128, (256,), ("device",), steps=3, warm_up=1)


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--ids", action="store_true", help="no text: ids are made in memory")
    parser.add_argument("--work", type=Path, help="a folder for the text and the cache")
    parser.add_argument("--share", type=float, default=1.0, help="of the whole size")
    parser.add_argument("--toy", action="store_true", help="a tiny size, in a few seconds")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    size = TOY if args.toy else _scaled(Size(), args.share)
    if args.part:
        print(json.dumps(_part(args, size)))
        return
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        os.environ["ALLNEG_HOME"] = str(Path(folder) / "home")
        report: dict[str, Any] = {"large": asdict(size), **machine(torch.device(args.device))}
        if not args.ids:
            text = Path(folder) / "large"
            began = time.perf_counter()
            write(text, size)
            report["make_seconds"] = round(time.perf_counter() - began, 1)
            report["text_bytes"] = sum(path.stat().st_size for path in text.iterdir())
            report["first"] = _child(args, size, "read", str(text))
            report["cached"] = _child(args, size, "read", str(text))
            _write(args.out, report)
        report["rows"] = []
        for table in (GPU if args.device.startswith("cuda") else CPU).tables:
            report["rows"] += _child(args, size, "train", table if args.ids else f"{table} {text}")
            _write(args.out, report)


def _write(out: Path | None, report: dict[str, Any]) -> None:
    print(json.dumps(report), flush=True)
    if out:
        write_whole(out, report)


def _scaled(size: Size, share: float) -> Size:
    return replace(size, entities=int(size.entities * share), triples=int(size.triples * share))


def _child(args: argparse.Namespace, size: Size, *part: str) -> Any:
    """What a part returns, run by this program in another process; in this one at toy size."""
    if args.toy:
        args.part = part
        return _part(args, size)
    command = [sys.executable, *sys.argv, "--part", *part]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _part(args: argparse.Namespace, size: Size) -> Any:
    name, rest = args.part
    if name == "read":
        return _read(rest)
    table, _, text = rest.partition(" ")
    way = GPU if args.device.startswith("cuda") else CPU
    if args.toy:
        way = replace(way, batches=(16, 64)[: len(way.batches)], dim=8)
    graph = read_graph(text, Data(store="disk")) if text else in_memory(size)
    return _train(graph, way, table, args.device)


def _read(text: str) -> dict[str, Any]:
    began = time.perf_counter()
    graph = read_graph(text, Data(store="disk"))
    took = time.perf_counter() - began
    return {
        "seconds": round(took, 2),
        "cpu_seconds": round(time.process_time(), 2),
        "peak_bytes": peak_bytes(torch.device("cpu")),
        "entities": graph.n_entities,
        "triples": len(graph.train),
    }


def _train(graph: Graph, way: Way, table: str, device_name: str) -> list[dict[str, Any]]:
    """A row for each size of batch."""
    # Nothing is ranked here, so that nothing is kept for it.
    graph = replace(graph, valid=graph.valid[:0], test=graph.test[:0])
    recipe = Recipe().with_settings(
        [
            f"model.name={way.model}",
            f"model.dim={way.dim}",
            f"training.batch_size={way.batches[0]}",
            f"hardware.table={table}",
            f"hardware.device={device_name}",
            f"loss.block={1 << 28 if device_name != 'cpu' else 1 << 26}",
        ]
    )
    device = prepare(recipe.hardware)
    reset_peak(device)
    # A CPU's peak counts the program, too, and what was read.
    before = resident() if device.type == "cpu" else 0
    train = torch.from_numpy(graph.train).to(device)
    rows, trainer = [], None
    for batch in way.batches:
        recipe = recipe.with_settings([f"training.batch_size={batch}"])
        del trainer  # its tables, before those of the next
        began = time.perf_counter()
        trainer = Trainer(recipe, graph, device)
        trainer.set_rate(State())
        start_seconds = time.perf_counter() - began
        planned = plan(recipe, graph, device)
        seconds, cpu_seconds = _seconds_a_step(trainer, train, batch, way, device)
        rows.append(
            {
                "model": way.model,
                "dim": way.dim,
                "table": table,
                "batch": batch,
                "path": planned.path,
                "start_seconds": round(start_seconds, 1),
                "planned_bytes": planned.peak,
                "planned_host_bytes": sum(planned.host.values()),
                "peak_bytes": (peak_bytes(device) or 0) - before,
                "host_peak_bytes": peak_bytes(torch.device("cpu")),
                "step_seconds": round(seconds, 4),
                "step_cpu_seconds": round(cpu_seconds, 4),
                "seconds_a_million_questions": round(seconds / batch * 1e6, 2),
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _seconds_a_step(
    trainer: Trainer, train: torch.Tensor, batch: int, way: Way, device: torch.device
) -> tuple[float, float]:
    """By the clock, and of all the threads of a CPU."""
    order = Generator(device).manual_seed(batch)
    generator, losses = Generator(device), []
    queries = batches(train, batch, order)
    for some in itertools.islice(queries, way.warm_up):
        trainer.step(some, generator)
    _synchronize(device)
    began, cpu_began = time.perf_counter(), time.process_time()
    for some in itertools.islice(queries, way.steps):
        losses.append(trainer.step(some, generator).clone())
    _synchronize(device)
    took, cpu_took = time.perf_counter() - began, time.process_time() - cpu_began
    assert all(loss.isfinite() for loss in losses)
    return took / len(losses), cpu_took / len(losses)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
