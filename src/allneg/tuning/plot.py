"""The plot of a search: one axis per setting, one line per trial. It needs matplotlib."""

from __future__ import annotations

import io
from pathlib import Path

from filelock import FileLock

from allneg.errors import UsageError
from allneg.runs.files import write_text
from allneg.tuning.search import Search
from allneg.tuning.study import parallel_coordinates


def write_plot(search: Search, path: Path) -> None:
    """Write an SVG into the folder of a search. Equal results give equal bytes."""
    try:
        import matplotlib
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise UsageError(f"no {path.name}: matplotlib is not installed") from None
    statuses = search.statuses()
    finished = [status for status in statuses if status.state == "finished"]
    data = Path(search.space.recipe.data.name).name
    title = f"{search.space.name} on {data}: {len(finished)} of {len(statuses)} trials finished"
    if finished:
        title += f"\nbest: {finished[0].trial}"
    options = {"backend": "agg", "svg.hashsalt": "allneg", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(options):
        axes, picture = parallel_coordinates(search.space, finished), io.StringIO()
        axes.set_title(title, loc="left", y=1.03)
        axes.figure.set_size_inches(2.2 * len(search.space.axes) + 4, 4.6)
        axes.figure.savefig(picture, format="svg", metadata={"Date": None}, bbox_inches="tight")
        pyplot.close(axes.figure)
    with FileLock(search.out / "locks" / "results.lock"):
        write_text(path, picture.getvalue())
