"""Draw docs/figures/scaling from benchmarks/results/*-scaling.json (needs matplotlib).

python benchmarks/figures.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

HERE = Path(__file__).parent
FIGURES = HERE.parent / "docs" / "figures"
AXES = {"b": "queries per batch, B", "n": "entities, N", "w": "numbers per row, W"}
COLOURS = {"tf32": "#0b5fa5", "bf16": "#c2410c", "float32": "#3f6212"}


def main() -> None:
    report = json.loads((HERE / "results" / "h200-scaling.json").read_text())
    FIGURES.mkdir(exist_ok=True)
    plt.rcParams["svg.hashsalt"] = "allneg"  # the same file from the same numbers
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    for panel, (axis, title) in zip(panels, AXES.items(), strict=True):
        for precision in dict.fromkeys(row["precision"] for row in report["rows"]):
            rows = [
                row
                for row in report["rows"]
                if row["axis"] == axis and row["precision"] == precision
            ]
            sizes, colour = [row[axis] for row in rows], COLOURS[precision]
            took, floor = ([row[name] for row in rows] for name in ("milliseconds", "floor"))
            panel.plot(sizes, took, "o-", color=colour, label=f"{precision}: training step")
            panel.plot(
                sizes, floor, "--", color=colour, label=f"{precision}: matrix products alone"
            )
        panel.set(xscale="log", yscale="log", xlabel=title)
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, which="major", alpha=0.3)
    panels[0].set_ylabel("milliseconds per step")
    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle(
        f"ComplEx-N3 on one {report['machine']}; otherwise B = 1,000, N = 14,541, W = 2,000"
    )
    for kind in ("svg", "png"):
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(FIGURES / f"scaling.{kind}", metadata=metadata, dpi=120)


if __name__ == "__main__":
    main()
