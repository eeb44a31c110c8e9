"""Figure 1: test MRR by the number of negatives."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from allneg.errors import ResourceError
from allneg.runs.files import write_parts, write_text
from reproduction.published import FLAT_FROM, TITLES, Ours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = ("#1f5fa8", "#c8551b", "#3b8a3e", "#8b4a9c", "#8a6d1f")  # one per dataset
_DPI = 160


def draw(curves: Mapping[str, Sequence[Ours]], folder: Path) -> list[Path]:
    """Write figure1.svg and figure1.png: one panel per dataset, the paper's at the top.

    The same results and the same matplotlib give the same bytes. Without curves, an older figure
    is deleted, because it does not belong to these results.
    """
    paths = [folder / "figure1.svg", folder / "figure1.png"]
    if not curves:
        for path in paths:
            path.unlink(missing_ok=True)
        return []
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ResourceError("figure1 needs matplotlib: pip install matplotlib") from None
    with matplotlib.rc_context({"svg.hashsalt": "allneg", "svg.fonttype": "none", "font.size": 10}):
        first, *others = curves
        figure = Figure(figsize=(7.2, 5.8 if others else 3.6), layout="constrained")
        heights = [3, 2] if others else [1]
        grid = figure.add_gridspec(len(heights), max(1, len(others)), height_ratios=heights)
        panels = {first: grid[0, :], **{data: grid[1, i] for i, data in enumerate(others)}}
        for color, (data, points) in zip(_COLORS[: len(curves)], curves.items(), strict=True):
            axes = figure.add_subplot(panels[data], title=TITLES.get(data, data))
            if data in (first, *others[:1]):
                axes.set_ylabel("filtered test MRR")
            _curve(axes, sorted(map(_point, points)), color)
            axes.axvline(FLAT_FROM, color="#888888", linestyle=":", linewidth=1)
        figure.suptitle("ComplEx by number of negatives")
        figure.supxlabel(
            "negatives, shared by a batch (last point: all entities)\n"
            "bars: minimum and maximum over seeds; dotted: flat from here according to the paper",
            fontsize="medium",
        )
        text, image = io.StringIO(), io.BytesIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        figure.savefig(image, format="png", dpi=_DPI, metadata={"Software": None})
    write_text(paths[0], text.getvalue())
    write_parts(paths[1], [image.getvalue()])
    return paths


def _point(ours: Ours) -> tuple[int, float, float, float]:
    """Negatives, and the mean, minimum and maximum MRR over seeds."""
    mrrs, sampled = ours.values("mrr"), ours.recipe.loss.n_negatives if ours.recipe else None
    return sampled or ours.values("candidates")[0], fmean(mrrs), min(mrrs), max(mrrs)


def _curve(axes: Axes, points: Sequence[tuple[int, float, float, float]], color: str) -> None:
    x, mean, _, _ = zip(*points, strict=True)
    axes.plot(x, mean, color=color, marker="o", markersize=4)
    for at, m, low, high in points:
        if low < high:  # one seed has no spread
            axes.errorbar(at, m, ([m - low], [high - m]), color=color, capsize=3)
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
