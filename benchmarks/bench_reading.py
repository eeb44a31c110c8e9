"""20 million triples of text and of Parquet to ids: seconds and peak memory; and PyKEEN's reader.

python benchmarks/bench_reading.py --out FILE.json [--pykeen PYTHON]

PYTHON is the interpreter of an environment in which PyKEEN is installed. Each reading runs in a
process of its own, so that its peak is its own. All of them read the same made-up graph.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from bench_large import TOY
from large_graph import Size, write
from measure import machine, write_rows

ALLNEG = """
import json, sys, time
from allneg.graph import read_graph
from allneg.recipe import Data

began, cpu_began = time.perf_counter(), time.process_time()
graph = read_graph(sys.argv[1], Data(store="disk"))
counts = graph.n_entities, len(graph.train)
"""
PYKEEN = """
import json, sys, time
from pykeen.triples import TriplesFactory

began, cpu_began = time.perf_counter(), time.process_time()
factory = TriplesFactory.from_path(sys.argv[1] + "/train.tsv")
counts = factory.num_entities, factory.num_triples
"""
REPORT = """
print(json.dumps({
    "seconds": round(time.perf_counter() - began, 2),
    "cpu_seconds": round(time.process_time() - cpu_began, 2),
    "peak_bytes": 1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]),
    "entities": counts[0],
    "triples": counts[1],
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--pykeen", help="a Python with PyKEEN")
    parser.add_argument("--data", type=Path, help="a folder with the graph, or for it")
    parser.add_argument("--toy", action="store_true", help="a tiny size, in a few seconds")
    args = parser.parse_args()
    size = TOY if args.toy else Size()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.data or Path(temporary)
        texts, tables = folder / "text", folder / "parquet"
        if not tables.exists():
            write(texts, size)
            _write_parquet(texts, tables)
        os.environ["ALLNEG_HOME"] = str(Path(temporary) / "home")
        report: dict[str, Any] = {"reading": asdict(size), **machine(torch.device("cpu"))}
        report["text_bytes"] = sum(path.stat().st_size for path in texts.iterdir())
        ways = (
            ("allneg, text", sys.executable, ALLNEG, texts),
            ("allneg, Parquet", sys.executable, ALLNEG, tables),
            ("allneg, later: mapped from the cache", sys.executable, ALLNEG, texts),
            *[("PyKEEN, text", args.pykeen, PYKEEN, texts)] * bool(args.pykeen),
        )
        rows = (
            {"what": what, **_child(python, code, source)} for what, python, code, source in ways
        )
        write_rows(report, rows, args.out)


def _write_parquet(texts: Path, tables: Path) -> None:
    from pyarrow import csv, parquet, string

    names = ("head", "relation", "tail")
    tables.mkdir()
    for path in texts.iterdir():
        table = csv.read_csv(
            path,
            csv.ReadOptions(column_names=names),
            csv.ParseOptions(delimiter="\t", quote_char=False),
            csv.ConvertOptions(column_types=dict.fromkeys(names, string())),
        )
        parquet.write_table(table, tables / f"{path.stem}.parquet")


def _child(python: str, code: str, folder: Path) -> Any:
    """What a reading in another process reports."""
    done = subprocess.run(
        [python, "-c", code + REPORT, str(folder)], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
