"""`allneg search`."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli import options
from allneg.cli.output import echo, json_document, table
from allneg.cli.workers import Worker, environments, wait_for_trials
from allneg.errors import UsageError, counted
from allneg.terminal import note

if TYPE_CHECKING:
    from allneg.tuning import Search


@click.command()
@click.argument("space", metavar="SPACE")
@click.option("--out", type=options.PATH, required=True, help="The folder of the search.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, help="Number of processes.")
@click.option("--trials", type=click.IntRange(1), help="Number of trials, if there are ranges.")
@click.option("--halving", is_flag=True, help="Stop bad trials early.")
@click.option("--status", "only_status", is_flag=True, help="Print the status and exit.")
@options.settings
@options.as_json
@options.quiet
@options.parent
def search_command(
    space: str,
    out: Path,
    workers: int,
    trials: int | None,
    halving: bool,
    only_status: bool,
    settings: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    parent: int | None,
) -> None:
    """Run a trial for every combination of the settings in [search] of SPACE.

    SPACE is a file, or a shipped space such as search/paper-grid.

    If a setting has a range, Optuna suggests the trials, and --trials gives their number. Every
    trial runs once. Run the same command again to continue an interrupted search, or to share the
    trials of a running one, also from another machine with access to the folder. Trials are
    ordered by valid MRR; a search never ranks test.
    """
    from allneg.cli.reports import stop_signal
    from allneg.recipes import find_recipe
    from allneg.tuning import Search, read_space
    from allneg.tuning.progress import search_lines
    from allneg.tuning.study import write_plot

    search = Search(read_space(find_recipe(space), settings), out, trials, halving)
    if only_status:
        _print(search, as_json)
        return
    with stop_signal(parent) as stopped_by:
        if parent is not None:
            search.run(stopped_by)
            return
        on_poll: Callable[[], None] = (lambda: None) if quiet else search_lines(search)
        if workers == 1:
            search.run(stopped_by, on_poll)
        else:
            search.check()  # an error is reported once, not by every worker
            devices = {trial.recipe.hardware.device for trial in search.space.trials}
            started = [
                Worker.start(sys.argv[1:], environment)
                for environment in environments(workers, devices)
            ]
            wait_for_trials(started, stopped_by, search.n_left, on_poll)
        on_poll()
    try:
        write_plot(search.space, search.statuses(), out / "search.svg")
    except UsageError as missing:
        note(str(missing))
    _print(search, as_json)
    search.check_success()


def _print(search: Search, as_json: bool) -> None:
    from allneg.tuning.space import format_value

    if as_json:
        json_document({**search.results(), "search": str(search.out)})
        return
    statuses, names = search.statuses(), list(search.space.axes)
    counts = Counter(status.state for status in statuses)  # statuses are sorted by state
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    title = f"{counted(len(statuses), 'trial')}: {states}"
    columns = (*(f"{name}#" for name in names), "valid MRR#", "best epoch#", "state", "trial")
    rows = []
    for at in statuses:
        values = [format_value(at.trial.settings[name]) for name in names]
        rows.append((*values, at.valid_mrr, at.best_epoch, at.state, at.trial.id))
    table(title, columns, rows, most=10)
    if (repeated := len(search.suggested()) - len(statuses)) > 0:
        print(f"{counted(repeated, 'suggestion')} of Optuna repeated an earlier one")
    if large := [status for status in statuses if status.state == "too large"]:
        folder = shlex.quote(str(search.out / "trials" / large[0].trial.id))
        echo(f"{large[0].reason}\nTo run this trial again, remove {folder} first.")
    if statuses and statuses[0].state == "finished":
        best = shlex.quote(str(search.out / "trials" / statuses[0].trial.id))
        echo(f"best: {best}; `allneg evaluate {best}` ranks test, which no trial has used")
