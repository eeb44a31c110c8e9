"""A plot of the trials of a tuning."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allneg.errors import extra
from allneg.runs.files import write_parts
from allneg.tuning.halving import Progress
from allneg.tuning.progress import describe

_MARKERS = "os^vD*Xp<>"


def plot_curves(title: str, trials: Sequence[Progress], path: Path) -> None:
    """Write a PNG of valid MRR by epoch: a line per trial, the best in bold.

    The lines of a model have the same color and marker.
    """
    with extra("plots", path.name):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    models = dict.fromkeys(at.model for at in trials)
    styles: dict[str, Any] = {
        model: {"color": f"C{i}", "marker": _MARKERS[i % len(_MARKERS)], "markersize": 4}
        for i, model in enumerate(models)
    }
    best = max(trials, key=lambda at: at.status.valid_mrr or 0.0)
    for at in trials:
        ranked = [
            (entry["epoch"], entry["valid"]["mrr"]) for entry in at.metrics if "valid" in entry
        ]
        axes.plot(
            *zip(*ranked, strict=True) if ranked else ((), ()),
            **styles[at.model],
            linewidth=2.5 if at is best else 0.8,
            label=f"best: {describe(at.status)}" if at is best else None,
        )
    ranked_models = {at.model for at in trials if at.status.valid_mrr is not None}
    for model, style in styles.items():
        axes.plot(
            [], [], **style, label=model if model in ranked_models else f"{model}: not ranked"
        )
    axes.set(title=title, xlabel="epoch", ylabel="valid MRR")
    axes.locator_params(axis="x", integer=True)
    figure.legend(loc="outside lower center")
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=120)
    write_parts(path, [png.getvalue()])
