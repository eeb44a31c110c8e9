"""`allneg complete` and `allneg score`: new facts of a whole graph, verdicts on given ones."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli import options
from allneg.cli.output import echo, json_document, table
from allneg.errors import DataError, Interrupted, counted, printable
from allneg.terminal import note

if TYPE_CHECKING:
    from allneg.predict.complete import Completion

_SAVE_SECONDS = 60.0  # between two saves of a search
_LINE_SECONDS = 10.0  # between two lines of progress without a terminal
_LABELS = {"1": True, "true": True, "0": False, "false": False}
_SHOWN = 40  # facts in a printed table


@click.command()
@options.run
@click.option(
    "--relation", "relations", multiple=True, metavar="NAME", help="Only these. May be repeated."
)
@options.within
@click.option(
    "--top", type=click.IntRange(1), default=10_000, show_default=True, help="Number of facts."
)
@click.option(
    "--min-probability",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Leave out less probable facts.",
)
@click.option("--out", type=options.PATH, required=True, help="A .tsv, .jsonl or .parquet file.")
@options.device
@options.as_json
@options.quiet
def complete_command(
    run: Path,
    relations: tuple[str, ...],
    within: str | None,
    top: int,
    min_probability: float,
    out: Path,
    device: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the most probable new facts of the whole graph to a file, best first.

    Every head, relation and tail is scored; facts of any split are left out. The probability is
    high if both directions agree. Columns: head, relation, tail, probability, score. Run the same
    command again to continue after an interruption.
    """
    from allneg.cli.reports import note_if_unfinished, stop_signal
    from allneg.evaluation.within import Within
    from allneg.predict.complete import Completion, NewFact
    from allneg.predict.fact_files import check_new_file, write_rows
    from allneg.predict.predictor import Predictor
    from allneg.runs import Run, checkpoint

    check_new_file(out)
    opened = Run.open(run)
    predictor = Predictor.load(run, device or "auto")
    note_if_unfinished(opened)
    graph = predictor.graph
    allowed = Within.parse(within, graph, predictor.tables.device) if within else None
    ids = sorted({graph.vocabulary.relation(name) for name in relations})
    search = Completion(predictor, ids or range(graph.n_relations), top, min_probability, allowed)
    weights = checkpoint.last_folder(opened.folder / "checkpoints").name
    options_of = [opened.id, weights, ids, top, min_probability, within]
    identity, partial = json.dumps(options_of), out.with_name(out.name + ".partial")
    if search.restore(partial, identity):
        note(f"{partial}: continued after {search.done:,} of {search.total:,} questions")
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
    """A function that shows the progress of a search and the time left."""
    if quiet:
        yield lambda: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("questions", total=search.total)
            yield lambda: bar.update(
                task, completed=search.n_asked, total=search.total + search.n_again
            )
    else:
        began = last = time.monotonic()
        first = search.n_asked

        def line() -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _LINE_SECONDS:
                last, total = now, search.total + search.n_again
                left = (total - search.n_asked) * (now - began) / (search.n_asked - first)
                note(f"{search.n_asked:,} of {total:,} questions; about {left:.0f} s left")

        yield line


@click.command()
@options.run
@click.argument("file", type=options.PATH)
@click.option("--negatives", type=options.PATH, help="False facts, also used to fit probabilities.")
@options.device
@options.as_json
def score_command(
    run: Path, file: Path, negatives: Path | None, device: str | None, as_json: bool
) -> None:
    """Score the facts in FILE and decide which are true.

    A line has head, relation and tail, separated by tabs (in .csv: by commas), and may have a
    label: 1, 0, true or false. With labels, it also prints the accuracy of the verdicts.
    """
    from allneg.cli.reports import open_predictor
    from allneg.predict.classify import classify, ids_of

    facts, labels = _read_facts(file)
    false, marks = _read_facts(negatives) if negatives is not None else (None, None)
    if marks is not None and any(marks):
        raise DataError(f"{negatives}: a fact is labelled true; --negatives are false facts")
    predictor = open_predictor(run, device)
    for path, given in ((file, facts), (negatives, false or [])):
        try:
            ids_of(predictor.graph, given)
        except DataError as unknown:
            raise DataError(f"{path}: {unknown}") from None
    found = classify(predictor, facts, labels, false)
    if as_json:
        json_document({"run": str(run), **found.to_json()})
        return
    words = {True: "true", False: "false", None: "-"}
    rows = [
        (*(f.head, f.relation, f.tail), f.score, f.probability, f"{f.tail_rank:g}",
         f"{f.head_rank:g}", words[f.verdict], f.known or "new")
        for f in found.triples
    ]  # fmt: skip
    columns = ("head", "relation", "tail", "score#", "probability#", "? tail#", "? head#")
    table(file.name, (*columns, "verdict", "known"), rows, most=_SHOWN)
    for name, value in found.metrics.items():
        echo(f"{name} {'-' if value is None else f'{value:.4f}'}")
    echo(found.protocol)


def _read_facts(path: Path) -> tuple[list[tuple[str, str, str]], list[bool] | None]:
    """The facts in a file, and their labels if it has four columns."""
    from allneg.graph.blocks import USUAL_NAMES
    from allneg.graph.lines import split_line
    from allneg.predict.questions import read_errors, read_text

    with read_errors(path):
        text = read_text(path)
    separator, name = (",", "commas") if path.suffix.lower() == ".csv" else ("\t", "tabs")
    facts: list[tuple[str, str, str]] = []
    labels: list[bool] = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        fields, _ = split_line(line.removesuffix("\r"), separator)
        letters = [USUAL_NAMES.get(field.strip().lower()) for field in fields[:3]]
        if number == 1 and letters == ["h", "r", "t"]:
            continue  # the names of columns
        is_like_first = not facts or (len(fields) == 4) == bool(labels)
        if len(fields) not in (3, 4) or "" in fields[:3] or not is_like_first:
            raise DataError(
                f"{path.name}:{number}: expected head, relation, tail, and in all lines or none a "
                f"label, separated by {name}; found {printable(line)}"
            )
        facts.append((fields[0], fields[1], fields[2]))
        if len(fields) == 4:
            if (label := fields[3].lower()) not in _LABELS:
                raise DataError(
                    f"{path.name}:{number}: the label is {printable(fields[3])}; "
                    "write 1, 0, true or false"
                )
            labels.append(_LABELS[label])
    if not facts:
        raise DataError(f"{path.name}: no facts after the names of columns")
    return facts, labels or None
