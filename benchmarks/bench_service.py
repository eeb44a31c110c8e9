"""The explorer's service under load: how long a prediction takes, and whether memory stays.

A service over made-up ComplEx tables runs in a process of its own; some clients ask it one
query after the other, all at the same time, over connections that stay open.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from clients import ask, queries
from measure import machine

from allneg.graph import Graph
from allneg.graph.graph import Vocabulary
from allneg.graph.queries import KnownAnswers
from allneg.models import ComplEx
from allneg.predict.predictor import Predictor
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.scoring import Shard, Tables
from allneg.serve.app import make_app
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.server import LOOPBACK, listen, serve
from allneg.serve.workers import Workers


@dataclass(frozen=True)
class Size:
    """What is served, and how much it is asked."""

    entities: int = 15_000
    relations: int = 200
    facts: int = 300_000
    dim: int = 1000
    clients: int = 8
    seconds: float = 10.0
    requests: int = 10_000  # over which memory is watched


TOY = Size(200, 3, 500, 8, 2, 0.3, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="a size that takes a second")
    parser.add_argument("--seconds", type=float, help="for which answers are timed")
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = TOY if options.toy else Size()
    if options.serve:
        serve_made_up(size)
        return
    if options.seconds:
        size = replace(size, seconds=options.seconds)
    text = json.dumps(measured(size, options.toy), indent=2)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)


def serve_made_up(size: Size) -> None:
    with tempfile.TemporaryDirectory() as folder, listen("127.0.0.1", 0) as listener:
        opened = _opened(size, Path(folder) / "run")
        print(listener.getsockname()[1], flush=True)
        serve(make_app({opened.id: opened}, Workers(), LOOPBACK), listener)


def measured(size: Size, toy: bool) -> dict[str, object]:
    command = [sys.executable, __file__, "--serve", *(["--toy"] if toy else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            service = Service(child.pid, int(child.stdout.readline()), size)
            service.asked(size.clients, min(2.0, size.seconds))  # warms caches
            alone = service.asked(1, size.seconds / 4)
            together = service.asked(size.clients, size.seconds)
            before = _resident(child.pid)
            service.asked(size.clients, most=size.requests)
            grown = _resident(child.pid) - before
        finally:
            child.terminate()
    return {
        "service": "predict",
        **machine(torch.device("cpu")),
        **asdict(size),
        "alone": alone,
        "together": together,
        "resident_mib": round(before / 2**20, 1),
        "grown_mib": round(grown / 2**20, 1),
    }


@dataclass
class Service:
    """A service in a process of its own, and the queries that it was not asked yet."""

    process: int
    port: int
    size: Size
    clients_yet: int = 0  # each draws its queries from a seed of its own

    def asked(self, clients: int, seconds: float = 1e9, most: int = 10**9) -> dict[str, float]:
        """How long answers took, and the CPU time of both ends."""
        seeds = range(self.clients_yet, self.clients_yet + clients)
        self.clients_yet += clients
        paths = [queries(seed, self.size.entities, self.size.relations) for seed in seeds]
        began = _cpu_seconds(self.process)
        timed = ask(self.port, paths, seconds, most)
        answers, spent = len(timed.seconds), _cpu_seconds(self.process) - began
        points = statistics.quantiles(timed.seconds, n=100, method="inclusive")
        return {
            "answers": answers,
            "p50_ms": round(points[49] * 1e3, 2),
            "p99_ms": round(points[98] * 1e3, 2),
            "most_ms": round(max(timed.seconds) * 1e3, 2),
            "server_cpu_ms": round(spent / answers * 1e3, 3),
            "client_cpu_ms": round(timed.client_cpu / answers * 1e3, 3),
        }


def _cpu_seconds(process: int) -> float:
    """CPU time of a process, all its threads together."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _opened(size: Size, folder: Path) -> LoadedRun:
    """A run of made-up facts and rows."""
    draw = np.random.default_rng(0)
    triples = np.stack(
        [
            draw.integers(0, most, size.facts)
            for most in (size.entities, size.relations, size.entities)
        ],
        axis=1,
    )
    vocabulary = Vocabulary(
        tuple(f"entity {i}" for i in range(size.entities)),
        tuple(f"relation {i}" for i in range(size.relations)),
    )
    cut = len(triples) * 9 // 10
    graph = Graph("made up", vocabulary, triples[:cut], triples[cut:], triples[:0])
    model = ComplEx(size.dim, 0.1)
    tables = Tables.create(model, size.relations, Shard.whole(size.entities), True, seed=0)
    known = {
        split: KnownAnswers.of([graph.split(split)], size.entities, size.relations)
        for split in ("train", "valid")
    }
    predictor = Predictor(model, tables.requires_grad_(False), graph, known).quick()
    return LoadedRun("made-up", Run.create(folder, Recipe(), graph), predictor, {})


if __name__ == "__main__":
    main()
