"""`allneg complete` and `allneg score`: new facts of a whole graph, verdicts on given ones."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli import options
from allneg.cli.output import echo, json_document, table
from allneg.errors import DataError, Interrupted, counted
from allneg.terminal import note

if TYPE_CHECKING:
    from allneg.predict.complete import Completion

_SAVE_SECONDS = 60.0  # between two saves of a search
_LINE_SECONDS = 10.0  # between two lines of progress without a terminal
_SHOWN = 40  # facts in a printed table


@click.command()
@options.run
@click.option(
    "--relation", "relations", multiple=True, metavar="NAME", help="Only these. May be repeated."
)
@options.within
@options.top("facts", 10_000)
@click.option(
    "--min-probability",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Leave out less probable facts.",
)
@click.option(
    "--exclude",
    type=options.PATH,
    help="A file of facts that are not listed, such as rejected ones.",
)
@click.option(
    "--out", type=options.PATH, required=True, help="A .tsv, .csv, .jsonl or .parquet file."
)
@options.device
@options.as_json
@options.quiet
def complete_command(
    run: Path,
    relations: tuple[str, ...],
    within: str | None,
    top: int,
    min_probability: float,
    exclude: Path | None,
    out: Path,
    device: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the most probable new facts of the whole graph to a file, best first.

    Every head, relation and tail is scored; facts of any split are left out. The probability is
    high if both directions agree. Columns: head, relation, tail, probability, score. Run the same
    command again to continue after an interruption.
    """
    from allneg.cli.reports import open_predictor, stop_signal
    from allneg.evaluation.within import Within
    from allneg.predict.agreement import notes_on_few
    from allneg.predict.complete import Completion
    from allneg.predict.fact_files import check_new_file, fact_ids, write_rows
    from allneg.predict.new_facts import NewFact
    from allneg.runs import Run, checkpoint, files

    check_new_file(out)
    predictor, opened = open_predictor(run, device), Run.open(run)
    graph = predictor.graph
    allowed = Within.parse(within, graph, predictor.tables.device) if within else None
    ids = sorted({graph.vocabulary.relation(name) for name in relations})
    left_out = None if exclude is None else fact_ids(graph, exclude)
    search = Completion(
        predictor, ids or range(graph.n_relations), top, min_probability, allowed, exclude=left_out
    )
    for line in notes_on_few(valid=len(graph.valid)):
        note(line)
    weights = checkpoint.last_folder(opened.folder / "checkpoints").name
    facts = None if left_out is None else hashlib.sha256(left_out.tobytes()).hexdigest()
    options_of = [opened.id, weights, ids, top, min_probability, within, facts]
    identity, partial = json.dumps(options_of), out.with_name(out.name + ".partial")
    if search.restore(partial, identity):
        note(f"{partial}: continued after {search.done:,} of {search.total:,} questions")
    with files.write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    saved, began = time.monotonic(), time.monotonic()
    with stop_signal() as stopped_by, _progress(search, quiet) as show:

        def on_block(search: Completion) -> None:
            nonlocal saved
            show()
            if time.monotonic() - saved >= _SAVE_SECONDS:
                search.save(partial, identity)
                saved = time.monotonic()

        if not search.run(on_block, stopped_by):
            search.save(partial, identity)
            raise Interrupted("stopped and saved; the same command continues it", stopped_by())
    write_rows(out, NewFact, search.facts())
    partial.unlink(missing_ok=True)
    seconds = time.monotonic() - began
    if as_json:
        numbers = {"facts": len(search.found), "questions": search.total, "seconds": seconds}
        json_document({"run": str(run), "out": str(out), **numbers, "skipped": search.skipped})
        return
    words = f"{counted(len(search.found), 'new fact')} of {counted(search.total, 'question')}"
    skipped = f"{search.skipped:,} of them not scored, " if search.skipped else ""
    echo(f"{words}, {skipped}in {seconds:.1f} s")
    echo(str(out))


@contextlib.contextmanager
def _progress(search: Completion, quiet: bool) -> Iterator[Callable[[], None]]:
    """A function that shows the progress of a step of a search and the time left in it."""
    if quiet:
        yield lambda: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)

            def update() -> None:
                step, done, total = search.progress
                if (words := f"step {step} of 3") != bar.tasks[0].description:
                    bar.reset(task, description=words)
                bar.update(task, completed=done, total=total)

            yield update
    else:
        last = began = time.monotonic()
        step = first = 0

        def line() -> None:
            nonlocal last, began, step, first
            now, (current, done, total) = time.monotonic(), search.progress
            if current != step:
                step, began, first = current, now, done
            elif now - last >= _LINE_SECONDS:
                last, left = now, (total - done) * (now - began) / (done - first)
                questions = f"{done:,} of {total:,} questions"
                note(f"step {step} of 3: {questions}; about {left:.0f} s left in this step")

        yield line


@click.command()
@options.run
@click.argument("file", type=options.PATH)
@click.option("--negatives", type=options.PATH, help="False facts, also used to fit probabilities.")
@options.device
@options.as_json
def score_command(
    run: Path, file: Path, negatives: Path | None, device: str, as_json: bool
) -> None:
    """Score the facts in FILE and decide which are true.

    A line has head, relation and tail, separated by tabs (in .csv: by commas), and may have a
    label: 1, 0, true or false. With labels, it also prints the accuracy of the verdicts. All other
    formats of triples are read, too, and the files of `allneg complete` and `allneg audit`.
    """
    from allneg.cli.reports import open_predictor
    from allneg.predict.classify import classify
    from allneg.predict.fact_files import ids_of, read_facts

    facts = read_facts(file)
    false = None if negatives is None else read_facts(negatives)
    if false is not None and any(false.labels or ()):
        raise DataError(f"{negatives}: a fact is labelled true; --negatives are false facts")
    predictor = open_predictor(run, device)
    for given in (facts, false):
        if given is not None:
            ids_of(predictor.graph, given.rows, given.locations)
    found = classify(predictor, facts.rows, facts.labels, None if false is None else false.rows)
    for line in found.notes:
        note(line)
    if as_json:
        json_document({"run": str(run), **found.to_json()})
        return
    words = {True: "true", False: "false", None: "-"}
    rows = [
        (f.head, f.relation, f.tail, f.score, f.probability, f"{f.tail_rank:g}",
         f"{f.head_rank:g}", words[f.verdict], f.known or "new")
        for f in found.triples
    ]  # fmt: skip
    columns = ("head", "relation", "tail", "score#", "probability#", "? tail#", "? head#")
    table(file.name, (*columns, "verdict", "known"), rows, most=_SHOWN)
    for name, value in found.metrics.items():
        echo(f"{name} {'-' if value is None else f'{value:.4f}'}")
    echo(found.protocol)
