"""`allneg tune` on graphs: what it finds within its minutes.

python benchmarks/bench_tune.py GRAPH… --minutes 20 --work DIR --out benchmarks/results/NAME.json

A GRAPH is anything that `allneg tune` takes. A tuning that was interrupted continues in DIR.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import machine, write_rows

from allneg.hardware import find_device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    device = find_device("cpu" if "hardware.device=cpu" in args.settings else "auto")
    rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    write_rows({"tune": "test MRR", **machine(device)}, _rows(args), args.out, rows)


def _rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for graph in args.graphs:
        name = Path(graph).name
        command = ["tune", graph, "--minutes", str(args.minutes), "--out", str(args.work / name)]
        for setting in args.settings:
            command += ["--set", setting]
        subprocess.run([sys.executable, "-m", "allneg", *command], check=True)
        yield row(name, json.loads((args.work / name / "results.json").read_text()), args.note)


def row(graph: str, results: dict[str, Any], note: str) -> dict[str, Any]:
    """The row of a tuning, from its results.json."""
    trial_keys = ("settings", "state", "valid_mrr", "epochs", "seconds")
    return {
        "graph": graph,
        "minutes": results["minutes"],
        "seconds": results["seconds"],
        "note": note,
        "mrr": results["best"]["test"]["mrr"],
        "members": results["best"]["members"],
        "valid_mrr": results["best"]["valid_mrr"],
        "trials": [{key: trial[key] for key in trial_keys} for trial in results["trials"]],
    }


if __name__ == "__main__":
    main()
