"""The explorer's service under load: how long a prediction takes, and whether memory stays.

A service over made-up ComplEx tables runs in a process of its own; some clients ask it one
question after the other, all at the same time, over connections that stay open.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import torch
from measure import machine

from allneg.graph import Graph
from allneg.graph.known import KnownAnswers
from allneg.graph.vocabulary import Vocabulary
from allneg.models import ComplEx
from allneg.recipe import Recipe
from allneg.run import Run
from allneg.scoring import Shard, Tables
from allneg.serving.app import serve
from allneg.serving.guard import LOOPBACK
from allneg.serving.listen import listening
from allneg.serving.opened import Opened
from allneg.serving.predictor import Predictor, by_columns
from allneg.serving.workers import Workers


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
    said = json.dumps(measured(size, options.toy), indent=2)
    if options.out:
        options.out.write_text(said + "\n")
    print(said)


def serve_made_up(size: Size) -> None:
    with tempfile.TemporaryDirectory() as folder, listening("127.0.0.1", 0) as listener:
        opened = _opened(size, Path(folder) / "run")
        print(listener.getsockname()[1], flush=True)
        serve({opened.id: opened}, Workers(), LOOPBACK, listener)


def measured(size: Size, toy: bool) -> dict[str, object]:
    command = [sys.executable, __file__, "--serve", *(["--toy"] if toy else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            port = int(child.stdout.readline())
            _ask(port, size, seconds=min(2.0, size.seconds))  # warms caches
            alone = _ask(port, replace(size, clients=1), size.seconds / 4)
            together = _ask(port, size, size.seconds)
            before = _resident(child.pid)
            _ask(port, size, requests=size.requests)
            grown = _resident(child.pid) - before
        finally:
            child.terminate()
    return {
        "service": "predict",
        **machine(torch.device("cpu")),
        **asdict(size),
        "alone": _summary(alone),
        "together": _summary(together),
        "resident_mib": round(before / 2**20, 1),
        "grown_mib": round(grown / 2**20, 1),
    }


def _ask(
    port: int, size: Size, seconds: float | None = None, requests: int | None = None
) -> list[float]:
    """Seconds that each answer took, from all clients."""
    took: list[float] = []
    end = time.perf_counter() + (seconds or 1e9)
    share = (requests or 10**9) // size.clients

    def client(seed: int) -> None:
        draw, connection = random.Random(seed), http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(share):
            entity, relation = draw.randrange(size.entities), draw.randrange(size.relations)
            side = draw.choice(("head", "tail"))
            query = urlencode({side: f"entity {entity}", "relation": f"relation {relation}"})
            began = time.perf_counter()
            connection.request("GET", "/v1/predict?" + query)
            answer = connection.getresponse()
            body = answer.read()
            took.append(time.perf_counter() - began)
            assert answer.status == 200, body
            if time.perf_counter() > end:
                return

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(size.clients)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return took


def _summary(took: list[float]) -> dict[str, float]:
    points = statistics.quantiles(took, n=100)
    return {
        "answers": len(took),
        "p50_ms": round(points[49] * 1e3, 2),
        "p99_ms": round(points[98] * 1e3, 2),
        "most_ms": round(max(took) * 1e3, 2),
    }


def _resident(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _opened(size: Size, folder: Path) -> Opened:
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
    tables = Tables.start(model, size.relations, Shard.whole(size.entities), True, seed=0)
    known = {
        split: KnownAnswers.of([graph.split(split)], size.entities, size.relations)
        for split in ("train", "valid")
    }
    predictor = Predictor(model, by_columns(tables), graph, known)
    return Opened.of("made-up", Run.create(folder, Recipe(), graph), predictor, {})


if __name__ == "__main__":
    main()
