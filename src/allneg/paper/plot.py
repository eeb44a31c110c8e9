"""Figure 1: test MRR by the number of negatives.

matplotlib is imported where it is used: training needs none.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from allneg.errors import RecipeError
from allneg.paper.beside import Beside
from allneg.paper.cells import FLAT_FROM
from allneg.paper.numbers import TITLES
from allneg.runs import disk
from allneg.runs.files import full_disk_named, write_bytes, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#1f5fa8", "#c8551b", "#3b8a3e", "#8b4a9c", "#8a6d1f")  # a data set each
_PIXELS_AN_INCH = 160


def draw(curves: Mapping[str, Sequence[Beside]], folder: Path, quick: bool = False) -> list[Path]:
    """Write figure1.svg and figure1.png: the same bytes for the same results and matplotlib.

    A panel a data set, each with its own scale: the paper's at the top, the others below. Where
    there is nothing to draw, an older figure is taken away: it would not be of these results.
    """
    paths = [folder / "figure1.svg", folder / "figure1.png"]
    if not curves:
        for path in paths:
            with full_disk_named(path):
                disk.remove(path)
        return []
    drawn = {data: sorted(map(_point, points)) for data, points in curves.items()}
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise RecipeError("no figure1: it takes matplotlib, which is not installed") from None
    with matplotlib.rc_context({"svg.hashsalt": "allneg", "svg.fonttype": "none", "font.size": 10}):
        first, *others = drawn
        figure = Figure(figsize=(7.2, 5.8 if others else 3.6), layout="constrained")
        heights = [3, 2] if others else [1]
        grid = figure.add_gridspec(len(heights), max(1, len(others)), height_ratios=heights)
        places = {first: grid[0, :], **{data: grid[1, i] for i, data in enumerate(others)}}
        for colour, (data, points) in zip(_COLOURS[: len(drawn)], drawn.items(), strict=True):
            axes = figure.add_subplot(places[data], title=TITLES.get(data, data))
            if data in (first, *others[:1]):
                axes.set_ylabel("filtered test MRR")
            _curve(axes, points, colour)
            axes.axvline(FLAT_FROM, color="#888888", linestyle=":", linewidth=1)
        title = "ComplEx by the number of negatives"
        figure.suptitle(f"QUICK, of small data and sizes: {title}" if quick else title)
        figure.supxlabel(
            "negatives, shared by a batch (the last point: every entity)\n"
            "bars: least and most over seeds; dotted: flat from here, says the paper",
            fontsize="medium",
        )
        text, image = io.StringIO(), io.BytesIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        figure.savefig(image, format="png", dpi=_PIXELS_AN_INCH, metadata={"Software": None})
    write_text(paths[0], text.getvalue())
    write_bytes(paths[1], image.getvalue())
    return paths


def _point(our: Beside) -> tuple[int, float, float, float]:
    """Negatives, mean, least and most MRR of a point that was run."""
    return our.negatives, fmean(our.mrrs), min(our.mrrs), max(our.mrrs)


def _curve(axes: Axes, points: Sequence[tuple[int, float, float, float]], colour: str) -> None:
    x, mean, _, _ = zip(*points, strict=True)
    axes.plot(x, mean, color=colour, marker="o", markersize=4)
    for at, m, low, high in points:
        if low < high:  # one seed has no spread
            axes.errorbar(at, m, ([m - low], [high - m]), color=colour, capsize=3)
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
