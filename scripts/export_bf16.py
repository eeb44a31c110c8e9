"""Write small copies of runs, with bfloat16 weights; print their sizes and test MRRs.

python scripts/export_bf16.py RUN... --out FOLDER
"""

from __future__ import annotations

import argparse
from pathlib import Path

from allneg import Run
from allneg.runs.finished import export_bf16


def weight_bytes(run: Run) -> int:
    return sum(tensor.nbytes for tensor in run.tables().weights().values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="a folder for the new runs")
    parser.add_argument("--device", default="auto")
    chosen = parser.parse_args()
    for folder in chosen.runs:
        run = Run.open(folder)
        made = export_bf16(run, chosen.out / folder.name, chosen.device)
        size = sum(path.stat().st_size for path in made.folder.rglob("*") if path.is_file())
        print(
            f"{made.folder}: {size / 2**20:,.1f} MiB; weights {weight_bytes(run) / 2**21:,.1f} MiB "
            f"instead of {weight_bytes(run) / 2**20:,.1f}; {made.report.protocol['split']} MRR "
            f"{made.report.mrr:.5f} instead of {run.report.mrr:.5f}"
        )


if __name__ == "__main__":
    main()
