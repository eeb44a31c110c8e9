"""Seconds from the start of a process to a test MRR: this library, and kbc's loop.

python benchmarks/speedrun.py --out FILE.json

Everything counts: imports, reading, compiling, training, ranking of valid and test, saving. The
epoch is the one with the best validation MRR. A run of this library is `allneg train` with a recipe
of benchmarks/speedrun/; `--set` changes its settings. kbc's loop (loops.py) has the sizes of KBC.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from loops import KbcLoop, Task
from measure import benchmark_parser, machine, write_rows

from allneg.graph import read_graph

HERE = Path(__file__).parent
GOALS = {"fb15k-237": 0.36, "wn18rr": 0.48}
# dim, batch, weight of N3, epochs, and epochs between two rankings of valid
KBC = {"fb15k-237": (1000, 1000, 0.05, 20, 10), "wn18rr": (1000, 250, 0.1, 20, 10)}
TOY = (4, 5000, 0.01, 1, 1)


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--data", default=",".join(GOALS), help="names, with commas between")
    parser.add_argument("--seeds", type=int, default=1, help="runs of this library")
    parser.add_argument("--recipe", help="instead of that of the data")
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipe")
    parser.add_argument("--no-kbc", action="store_true", help="without kbc's loop")
    parser.add_argument("--kbc", metavar="DATA", help="only kbc's loop, in this process")
    args = parser.parse_args()
    if args.kbc:
        print(json.dumps(kbc(args.kbc, torch.device(args.device))))
        return
    about = {"speedrun": GOALS, **machine(torch.device(args.device))}
    write_rows(about, rows(args), args.out)


def rows(args: argparse.Namespace) -> Any:
    for data in args.data.split(","):
        for seed in range(args.seeds):
            yield {"data": data, "way": "allneg", "seed": seed, **ours(data, seed, args)}
        if not args.no_kbc:
            command = [__file__, "--kbc", data, "--device", args.device]
            seconds, result = timed(command)
            yield {"data": data, "way": "kbc's loop", "seconds": seconds, **result}


def ours(data: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    recipe = args.recipe or HERE / "speedrun" / f"{data}.toml"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = ["-m", "allneg", "train", data, "--json", "--quiet", "--device", args.device]
        command += ["--recipe", str(recipe), "--seed", str(seed), "--out", str(run)]
        command += [word for setting in args.set for word in ("--set", setting)]
        seconds, result = timed(command)
        epochs = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return {
            "seconds": seconds,
            "training_seconds": round(epochs[-1]["seconds"], 2),
            "mrr": result["mrr"],
            "valid_mrr": max(epoch["valid"]["mrr"] for epoch in epochs if "valid" in epoch),
            "epochs": len(epochs),
            "recipe": (run / "recipe.toml").read_text(),
        }


def timed(command: list[str]) -> tuple[float, dict[str, Any]]:
    """Seconds that a Python program takes, and the JSON it prints."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE)
    return round(time.perf_counter() - began, 2), json.loads(done.stdout)


def kbc(data: str, device: torch.device) -> dict[str, Any]:
    """Train and rank by kbc's loop, and keep the epoch with the best validation MRR."""
    dim, batch, weight, epochs, every = KBC.get(data, TOY)
    loop = KbcLoop(Task(read_graph(data), dim, batch, device, weight))
    best, weights = -1.0, {}
    tables = {"entities": loop.entities, "relations": loop.relations}
    for epoch in range(1, epochs + 1):
        loop.steps(10**9)
        if epoch % every == 0 and (mrr := loop.rank("valid")) > best:
            best = mrr
            weights = {name: copy.deepcopy(table.state_dict()) for name, table in tables.items()}
    for name, table in tables.items():
        table.load_state_dict(weights[name])
    return {"mrr": loop.rank(), "valid_mrr": best, "epochs": epochs, "dim": dim, "batch": batch}


if __name__ == "__main__":
    main()
