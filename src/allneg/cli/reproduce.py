"""`allneg reproduce`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allneg.cli.options import a_number, json_option, quiet_option
from allneg.cli.output import SCHEMA_VERSION, json_document, note, table
from allneg.errors import AllnegError, Interrupted, RecipeError, error_for_exit_code

if TYPE_CHECKING:
    from allneg.paper import Number, Results
    from allneg.paper.tasks import Task

_PARTS = ("table1", "table2", "figure1", "norms", "beyond")
_SEEDS = 1 << 63
_QUICK = "QUICK: small data, small sizes. These are not the paper's numbers, nor ours."


def _words(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",")) if text else ()


def _seeds(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    words = _words(ctx, option, text)
    if not all(word.isdecimal() and int(word) < _SEEDS for word in words):
        raise click.BadParameter(f"write whole numbers below {_SEEDS}, such as 0,1,2")
    return tuple(dict.fromkeys(map(int, words))) or None


def _path(name: str, default: str, what: str) -> Callable[[Any], Any]:
    kind = click.Path(path_type=Path)
    return click.option(name, type=kind, default=default, show_default=True, help=what)


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(_PARTS), metavar="[PART]...")
@click.option("--datasets", callback=_words, metavar="A,B", help="Only on these data sets.")
@click.option("--rows", callback=_words, metavar="A,B", help="Only these rows.")
@click.option("--seeds", callback=_seeds, metavar="0,1,2", help="0; of figure1 0,1,2.")
@click.option("--quick", is_flag=True, help="Small sizes, minutes on a CPU, kept apart.")
@click.option("--parallel", type=click.IntRange(1, 64), default=1, help="Trainings at once.")
@click.option(
    "--limit-seconds",
    type=click.FloatRange(0, max=1e9),
    callback=a_number,
    help="Save and stop after so long.",
)
@click.option("--status", "only_status", is_flag=True, help="Say how it stands, and stop.")
@_path("--recipes", "recipes", "The folder of recipes.")
@_path("--results", "results", "The folder of result files.")
@_path("--docs", "docs", "The folder of the pages that are written.")
@_path("--runs", "runs/reproduce", "The folder of runs.")
@click.option("--drop-runs", is_flag=True, help="Delete a run once its result is written.")
@click.option("--bundle", type=click.Path(path_type=Path), help="All these results in one file.")
@click.option("--take", type=click.Path(path_type=Path), help="First take a bundle's results.")
@json_option
@quiet_option
def command(
    parts: tuple[str, ...],
    datasets: tuple[str, ...],
    rows: tuple[str, ...],
    seeds: tuple[int, ...] | None,
    quick: bool,
    parallel: int,
    limit_seconds: float | None,
    only_status: bool,
    recipes: Path,
    results: Path,
    docs: Path,
    runs: Path,
    drop_runs: bool,
    bundle: Path | None,
    take: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train what the paper's tables and figure need, and set ours beside its numbers.

    PART is table1, table2, figure1, norms or beyond, or several; without one, only the pages are
    written anew. What is done is skipped, and what was cut off goes on.
    """
    from allneg.paper import NUMBERS, Results
    from allneg.paper.numbers import chosen
    from allneg.paper.pages import write_pages
    from allneg.paper.tasks import tasks

    if only_status and (take or bundle):
        raise RecipeError("--status changes nothing; leave out --bundle and --take")
    if quick and (take or bundle):
        raise RecipeError("--quick makes no results to --bundle or to --take")
    if quick and (_is_given("results") or _is_given("docs")):
        raise RecipeError(
            f"--quick keeps results and pages in {runs}-quick; leave out --results, --docs"
        )
    if _is_given("results") and not _is_given("docs") and not only_status:
        raise RecipeError("--results: say --docs too, or its pages would replace those of others")
    trains = seeds or parallel > 1 or limit_seconds is not None or drop_runs
    narrows = datasets or rows or quick or (trains and not only_status)
    if not parts and narrows:
        raise RecipeError(f"say what to reproduce: {', '.join(_PARTS)}")
    if not any(each.recipe_file(recipes).exists() for each in NUMBERS):
        raise RecipeError(f"{recipes}: has none of the recipes; call from a checkout, or --recipes")
    if quick:
        runs = runs.with_name(f"{runs.name}-quick")
        results, docs = runs / "results", runs / "docs"
    work = _Work(Results(results, quick), drop_runs, quiet)
    # Without a part nothing is trained, and all that is there is meant.
    numbers = chosen(NUMBERS, parts or _PARTS, datasets, rows)
    asked = tasks(numbers, seeds, recipes, runs, quick) if parts or only_status else []
    if not only_status:
        for folder in (results, docs):
            _check_writable(folder)
    if take is not None:
        for line in work.results.take(take, NUMBERS, recipes):
            note(line)
    try:
        if parts and not only_status:
            work.train(asked, numbers, parallel, limit_seconds, bundle)
    finally:
        # Also after a signal: what is done is done.
        written = [] if only_status else write_pages(docs, work.results, NUMBERS, recipes, note)
        if bundle is not None:
            work.results.bundle(numbers, bundle)
            written.append(bundle)
        if written and not quiet:
            note(f"written from {results}: {', '.join(map(str, written))}")
    if asked or as_json:
        _print(work.results, numbers, asked, as_json)
    if work.failed:
        for name, problem in work.failed.items():
            note(f"{name}: {problem}")
        codes = {problem.exit_code for problem in work.failed.values()}
        said = f"{len(work.failed)} of {len(asked)} could not be trained"
        raise error_for_exit_code(codes.pop() if len(codes) == 1 else AllnegError.exit_code, said)


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.DEFAULT


def _check_writable(folder: Path) -> None:
    """Say before hours of training what could not be written after them."""
    from allneg.runs.files import full_disk_named, need_writable

    with full_disk_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        need_writable(folder)


@dataclass
class _Work:
    """A call of the command."""

    results: Results
    drop_runs: bool
    quiet: bool

    def __post_init__(self) -> None:
        self.failed: dict[str, AllnegError] = {}

    def train(
        self,
        asked: Sequence[Task],
        numbers: Sequence[Number],
        parallel: int,
        limit_seconds: float | None,
        bundle: Path | None,
    ) -> None:
        """Train what no result file has, and write the files."""
        from allneg.cli.parallel import ParallelProgress, ParallelTraining
        from allneg.cli.progress import stop_signal
        from allneg.paper.tasks import held

        left = [task for task in asked if not self._is_done(task)]
        if not self.quiet:
            note(f"{len(asked) - len(left)} of {len(asked)} are done")
        if not left:
            return
        shown = ParallelProgress(left)

        def ended(task: Task) -> None:
            task.collect(self.results)
            if self.drop_runs and all(task.folder != other.folder for other in trainings.waiting):
                task.drop()
            if bundle is not None:
                self.results.bundle(numbers, bundle)
            if not self.quiet:
                shown.finished(task, self.results.get(task.number), trainings)

        with held(left[0].runs), stop_signal() as stopped_by:
            trainings = ParallelTraining(
                left, parallel, stopped_by, ended, limit_seconds=limit_seconds
            )
            if not self.quiet:
                trainings.on_poll = shown.poll
            trainings.train()
        self.failed = trainings.failed
        if trainings.signal_number:
            raise Interrupted(
                "stopped and saved; the same command goes on", trainings.signal_number
            )
        if trainings.waiting:
            note(f"{len(trainings.waiting)} are left; the same command goes on")

    def _is_done(self, task: Task) -> bool:
        """Is there a result, its own or that of another number by the same recipe?"""
        from allneg.paper import NUMBERS

        if self.results.has(task.number, task.recipe, task.seed):
            return True
        entry = self.results.borrowed(task.number, task.recipe, task.seed, NUMBERS)
        if entry is not None:
            self.results.add(task.number, task.recipe, entry)
        return entry is not None


def _print(
    results: Results, numbers: Sequence[Number], asked: Sequence[Task], as_json: bool
) -> None:
    """The paper's cell, ours, the difference."""
    from allneg.paper.beside import beside

    rows = [beside(number, results.get(number)) for number in numbers]
    lacking: dict[str, list[Task]] = {number.name: [] for number in numbers}
    for task in asked:
        if not results.has(task.number, task.recipe, task.seed):
            lacking[task.number.name].append(task)
    if as_json:
        cells = [
            {**each.to_json(), "lacking": [_lacking(task) for task in lacking[each.number.name]]}
            for each in rows
        ]
        json_document({"schema_version": SCHEMA_VERSION, "quick": results.quick, "numbers": cells})
        return
    table(
        _QUICK if results.quick else "filtered test MRR, mean over seeds",
        ("number", "paper#", "ours#", "±#", "difference#", "Hits@1#", "Hits@10#", "seeds", "s#"),
        [
            (
                each.number.name,
                f"{each.number.paper.mrr:.2f}" if each.number.paper else None,
                each.mrr if each.mrr is not None else _why(each.number, lacking[each.number.name]),
                each.spread,
                f"{each.difference:+.3f}" if each.difference is not None else None,
                each.hits.get("1"),
                each.hits.get("10"),
                _seeds_shown(each.seeds, lacking[each.number.name]),
                f"{each.seconds:.0f}" if each.seconds is not None else None,
            )
            for each in rows
        ],
    )


def _seeds_shown(there: Sequence[int], lacking: Sequence[Task]) -> str:
    shown = ",".join(map(str, there))
    if not there or not lacking:
        return shown
    if any(task.seed in there for task in lacking):
        return f"{shown} (by an earlier recipe)"
    return f"{shown} (not {','.join(str(task.seed) for task in lacking)})"


def _lacking(task: Task) -> dict[str, object]:
    return {"seed": task.seed, "state": task.state}


def _why(number: Number, lacking: Sequence[Task]) -> str:
    """Why there is no number; of several seeds, the first that was begun says so."""
    from allneg.paper.numbers import NOT_HERE

    begun = [task.state for task in lacking if task.state != "new"]
    if not begun:
        return NOT_HERE.get(number.data, "not run yet")
    return "cut off" if begun[0] == "interrupted" else begun[0]
