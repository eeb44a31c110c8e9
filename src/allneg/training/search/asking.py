"""What one process does for a space with ranges; any number of them do it together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from allneg.training.search.ranges import Ranged, asking
from allneg.training.search.standing import write_results
from allneg.training.search.tpe import Told, suggested
from allneg.training.search.trial import Place
from allneg.training.search.work import SECONDS_A_LOOK, Work, checked


def search_ranges(ranged: Ranged, out: Path, *, stopped_by: Callable[[], int] = lambda: 0) -> None:
    """Ask for trials and try them until there are enough, here or elsewhere; as `search`.

    What a killed process leaves is taken up before anything new is asked for.
    """
    corners = ranged.corners
    some = replace(corners, trials=(*corners.trials, *ranged.space(out).trials))
    graph = checked(some, out)
    while True:
        space = ranged.space(out)
        work = Work(space, out, False, graph, stopped_by)
        left = [trial for trial in space.trials if not work.done(trial)]
        if _ask(ranged, out):
            continue
        if not left and ranged.space(out).trials == space.trials:
            break  # nobody has asked for more while the last ones were tried
        work.heed()
        time.sleep(SECONDS_A_LOOK)
    write_results(space, out)


def _ask(ranged: Ranged, out: Path) -> bool:
    """Ask for one trial more, unless there are enough."""
    with asking(out):
        asked = ranged.asked(out)
        if len(asked) >= ranged.count:
            return False
        told = []
        for settings in asked:
            ended = Place(out, ranged.trial(settings)).result()
            told.append(Told(settings, None if ended is None else ended.valid_mrr or 0.0))
        settings = suggested(ranged.axes, told)
        ranged.trial(settings)  # or nobody could go on with what is written
        ranged.ask(out, settings)
        return True
