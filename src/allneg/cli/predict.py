"""`allneg predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import device_option, json_option, run_argument
from allneg.cli.output import clean, json_document, note, table
from allneg.errors import DataError, printable

if TYPE_CHECKING:
    from allneg.graph.queries import Side
    from allneg.predict.predictor import Prediction

    Query = tuple[Side, str, str]  # side of the answer, known entity, relation


@click.command()
@run_argument
@click.option("--head", metavar="NAME", help="Query tails: (head, relation, ?).")
@click.option("--tail", metavar="NAME", help="Query heads: (?, relation, tail).")
@click.option("--relation", metavar="NAME")
@click.option(
    "--queries",
    "--questions",
    "file",
    type=click.Path(path_type=Path),
    help="A file of queries: head, relation, tail per line, separated by tabs, with ? for the "
    "head or the tail.",
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True)
@click.option("--new", is_flag=True, help="Leave out known facts.")
@device_option
@json_option
def predict_command(
    run: Path,
    head: str | None,
    tail: str | None,
    relation: str | None,
    file: Path | None,
    top: int,
    new: bool,
    device: str | None,
    as_json: bool,
) -> None:
    """Answer queries with RUN: names in, names out."""
    queries = _queries(head, relation, tail, file)
    from allneg.cli.reports import note_if_unfinished
    from allneg.predict.predictor import Predictor
    from allneg.runs import Run

    predictor = Predictor.load(run, device or "auto")
    note_if_unfinished(Run.open(run))
    if file is not None:
        for number, (_, entity, name) in enumerate(queries, 1):
            try:
                predictor.graph.vocabulary.entity(entity), predictor.graph.vocabulary.relation(name)
            except DataError as unknown:
                raise DataError(f"{file.name}:{number}: {unknown}") from None
    answers = [found.predictions for found in predictor.ask(queries, top, new)]
    if file is None and as_json:
        json_document([answer.to_json() for answer in answers[0]])
    elif file is None:
        _print_table(queries[0], answers[0])
    elif as_json:
        json_document([_to_json(*pair) for pair in zip(queries, answers, strict=True)])
    else:
        _print_lines(queries, answers)


def _queries(
    head: str | None, relation: str | None, tail: str | None, file: Path | None
) -> list[Query]:
    if file is not None:
        if head or tail or relation:
            raise click.UsageError("--queries excludes --head, --tail and --relation")
        return _read(file)
    if relation is None or (head is None) == (tail is None):
        raise click.UsageError("give --relation and one of --head (for tails) or --tail")
    return [("tail", head, relation)] if head is not None else [("head", str(tail), relation)]


def _read(file: Path) -> list[Query]:
    try:
        text = file.read_bytes().decode().removeprefix("\ufeff")
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 (byte {error.start:,})") from None
    if not text:
        raise DataError(f"{file}: no queries; write head, relation, tail per line, with tabs")
    queries: list[Query] = []
    # Only a line feed ends a line: a name may contain other characters that end lines.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        fields = line.removesuffix("\r").split("\t")
        if len(fields) != 3 or (fields[0] == "?") == (fields[2] == "?"):
            raise DataError(
                f"{file.name}:{number}: expected head, relation, tail with one ? for head or tail; "
                f"found {printable(line)}"
            )
        head, relation, tail = fields
        queries.append(("head", tail, relation) if head == "?" else ("tail", head, relation))
    return queries


def _to_json(query: Query, answers: list[Prediction]) -> dict[str, object]:
    side, entity, relation = query
    head, tail = (entity, None) if side == "tail" else (None, entity)
    rows = [answer.to_json() for answer in answers]
    return {"head": head, "relation": relation, "tail": tail, "answers": rows}


def _print_table(query: Query, answers: list[Prediction]) -> None:
    side, entity, relation = query
    title = f"{entity} — {relation} — ?" if side == "tail" else f"? — {relation} — {entity}"
    rows = [
        (i, a.entity, a.score, a.probability, f"known ({a.known})" if a.known else "new")
        for i, a in enumerate(answers, 1)
    ]
    table(title, ("#", "answer", "score#", "probability#", "known"), rows)
    if not answers:
        note("all entities are known answers")


def _print_lines(queries: list[Query], answers: list[list[Prediction]]) -> None:
    for (side, entity, relation), found in zip(queries, answers, strict=True):
        for a in found:
            head, tail = (entity, a.entity) if side == "tail" else (a.entity, entity)
            names = "\t".join(clean(name) for name in (head, relation, tail))
            print(f"{names}\t{a.score:.6g}\t{a.probability:.6g}\t{a.known or 'new'}")
