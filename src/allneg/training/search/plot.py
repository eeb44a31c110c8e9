"""A picture of a search: one axis a setting, one line a trial, and valid MRR at the end.

matplotlib is imported where it is used: a search needs none.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from allneg.errors import RecipeError
from allneg.runs.files import write_text
from allneg.training.search.space import Space, shown
from allneg.training.search.standing import Standing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY, _INK = "#b9b9b9", "#222222"
_MOST_TICKS = 8  # of an axis
_BELOW = -0.12  # where the lines of failed trials end


def draw(space: Space, found: Sequence[Standing], path: Path) -> None:
    """Write the picture into a search's folder as SVG: the same bytes for the same results."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise RecipeError(f"no {path.name}: it takes matplotlib, which is not installed") from None
    with matplotlib.rc_context({"svg.hashsalt": "allneg", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(2.2 * len(space.names) + 2.2, 4.2), layout="constrained")
        _picture(figure, space, found)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    with FileLock(path.parent / "locks" / "results.lock"):
        write_text(path, picture.getvalue())


def _picture(figure: Figure, space: Space, found: Sequence[Standing]) -> None:
    axes, last = figure.add_subplot(), len(space.names)
    values = {name: _ordered(each.trial.settings[name] for each in found) for name in space.names}
    drawn = [each for each in found if each.state == "finished" or each.reason is not None]
    mrrs = [each.valid_mrr for each in drawn if each.valid_mrr is not None]
    low, high = (min(mrrs), max(mrrs)) if mrrs else (0.0, 1.0)
    for i, each in reversed(list(enumerate(drawn))):  # the best on top
        # A little apart, or trials that share values would hide each other.
        apart = 0.04 * (i / max(1, len(drawn) - 1) - 0.5)
        heights = [_height(values[name], each.trial.settings[name]) + apart for name in values]
        share = None
        if each.valid_mrr is not None:
            share = (each.valid_mrr - low) / (high - low) if high > low else 1.0
        _line(axes, heights, share, is_best=i == 0 and share is not None)
    for i, name in enumerate(space.names):
        some = _few(values[name])
        ticks = [(_height(values[name], value), shown(value)) for value in some]
        whole = len(some) == len(values[name])
        _axis(axes, i, name if whole else f"{name}\nin order, not to scale", ticks)
    steps = range(5) if high > low else [4]
    ticks = [(i / 4, f"{low + (high - low) * i / 4:.4f}") for i in steps]
    if failed := sorted({each.state for each in drawn} - {"finished"}):
        ticks.append((_BELOW, " or ".join(failed)))
    _axis(axes, last, "valid MRR", ticks)
    axes.set(xlim=(-0.5, last + 0.6), ylim=(_BELOW - 0.04, 1.14))
    axes.set_title(_title(space, found), loc="left")
    axes.axis("off")


def _line(axes: Axes, heights: list[float], share: float | None, is_best: bool) -> None:
    """One trial; without a share of the MRR it has failed."""
    from matplotlib import colormaps

    axes.plot(
        range(len(heights) + 1),
        [*heights, _BELOW if share is None else share],
        color=_GREY if share is None else colormaps["viridis_r"](0.1 + 0.9 * share),
        linestyle="-" if share is not None else "--",
        linewidth=2.6 if is_best else 1.0,
        alpha=1.0 if is_best else 0.7,
    )


def _axis(axes: Axes, x: int, name: str, ticks: Sequence[tuple[float, str]]) -> None:
    axes.plot([x, x], [min(0.0, ticks[-1][0]), 1], color=_INK, linewidth=1)
    axes.annotate(name, (x, 1.06), ha="center", va="bottom", weight="bold", color=_INK)
    # Readable over the lines.
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.75, "linewidth": 0}
    for height, text in ticks:
        axes.plot([x - 0.02, x + 0.02], [height, height], color=_INK, linewidth=1)
        axes.annotate(
            text,
            (x, height),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=_INK,
            bbox=box,
        )


def _title(space: Space, found: Sequence[Standing]) -> str:
    finished = [each for each in found if each.state == "finished"]
    data = Path(space.recipe.data.name).name
    said = f"{space.name} on {data}: {len(finished)} of {len(found)} trials finished"
    return f"{said}\nbest: {finished[0].trial.in_words()}" if finished else said


def _ordered(values: Iterable[Any]) -> list[Any]:
    """Each value once; numbers by size."""
    once = list(dict.fromkeys(values))
    numbers = all(isinstance(value, int | float) for value in once)
    return sorted(once) if numbers else sorted(once, key=str)


def _few(values: list[Any]) -> list[Any]:
    """All of them or, of a range's many, some with even steps between them."""
    if len(values) <= _MOST_TICKS:
        return values
    last = len(values) - 1
    return [values[round(i * last / (_MOST_TICKS - 1))] for i in range(_MOST_TICKS)]


def _height(values: list[Any], value: Any) -> float:
    """Where a value stands on its axis: equal steps, as grids are seldom linear."""
    return values.index(value) / (len(values) - 1) if len(values) > 1 else 0.5
