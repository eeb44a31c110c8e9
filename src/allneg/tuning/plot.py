"""A plot of the trials of a tuning."""

import io
from collections.abc import Sequence
from pathlib import Path

from allneg.errors import extra
from allneg.runs.files import write_parts
from allneg.tuning.halving import Progress
from allneg.tuning.progress import describe


def plot_curves(title: str, trials: Sequence[Progress], path: Path) -> None:
    """Write a PNG of valid MRR by epoch: a line per trial, a color per model, the best in bold."""
    with extra("plots", path.name):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    models = list(dict.fromkeys(at.model for at in trials))
    best = max(trials, key=lambda at: at.status.valid_mrr or 0.0)
    for at in trials:
        ranked = [
            (entry["epoch"], entry["valid"]["mrr"]) for entry in at.metrics if "valid" in entry
        ]
        axes.plot(
            *zip(*ranked, strict=True) if ranked else ((), ()),
            color=f"C{models.index(at.model)}",
            linewidth=2.5 if at is best else 0.8,
            marker=".",
            label=f"best: {describe(at.status)}" if at is best else None,
        )
    for number, model in enumerate(models):
        axes.plot([], [], color=f"C{number}", label=model)
    axes.set(title=title, xlabel="epoch", ylabel="valid MRR")
    figure.legend(loc="outside lower center")
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=120)
    write_parts(path, [png.getvalue()])
