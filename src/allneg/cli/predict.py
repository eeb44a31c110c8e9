"""`allneg predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allneg.cli.options import device_option, json_option, run_argument
from allneg.cli.output import clean, json_document, note, table
from allneg.errors import DataError, printable

if TYPE_CHECKING:
    from allneg.graph.queries import Side
    from allneg.serving.predictor import Predictor


@click.command()
@run_argument
@click.option("--head", metavar="NAME", help="Ask for tails: (head, relation, ?).")
@click.option("--tail", metavar="NAME", help="Ask for heads: (?, relation, tail).")
@click.option("--relation", metavar="NAME")
@click.option(
    "--questions",
    "file",
    type=click.Path(path_type=Path),
    help="A file of queries: head, relation, tail a line, tabs between, ? for what is asked.",
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True)
@click.option("--new", is_flag=True, help="Leave out the facts that are known.")
@device_option
@json_option
def command(
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
    """Answer a query by RUN: names in, names out."""
    asked = _asked(head, relation, tail, file)
    from allneg.cli.reports import note_if_unfinished
    from allneg.runs import Run
    from allneg.serving.predictor import Predictor

    predictor = Predictor.load(run, device or "auto")
    note_if_unfinished(Run.open(run))
    if file is None:
        _show_one(predictor, *asked[0], top, new, as_json)
    else:
        _check_names(predictor, asked, file)
        _show_many(predictor, asked, top, new, as_json)


def _asked(
    head: str | None, relation: str | None, tail: str | None, file: Path | None
) -> list[tuple[Side, str, str]]:
    """(side asked for, known entity, relation) of every query."""
    if file is not None:
        if head or tail or relation:
            raise click.UsageError("--queries stands alone: leave out --head, --tail, --relation")
        return _read(file)
    if relation is None or (head is None) == (tail is None):
        raise click.UsageError("say --relation and one of --head (asks for tails) or --tail")
    return [("tail", head, relation)] if head is not None else [("head", str(tail), relation)]


def _read(file: Path) -> list[tuple[Side, str, str]]:
    try:
        text = file.read_bytes().decode().removeprefix("\ufeff")
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 (byte {error.start:,})") from None
    asked: list[tuple[Side, str, str]] = []
    # Only a line feed ends a line: other characters that split lines may be part of a name.
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], 1):
        fields = line.removesuffix("\r").split("\t")
        if len(fields) != 3 or (fields[0] == "?") == (fields[2] == "?"):
            raise DataError(
                f"{file.name}:{number}: expected head, relation, tail with one ? for head or tail; "
                f"found {printable(line)}"
            )
        head, relation, tail = fields
        asked.append(("head", tail, relation) if head == "?" else ("tail", head, relation))
    if not asked:
        raise DataError(
            f"{file}: no queries in it; write head, relation, tail a line, tabs between"
        )
    return asked


def _check_names(predictor: Predictor, asked: list[tuple[Side, str, str]], file: Path) -> None:
    """Say of an unknown name in which line it is; every line is a query."""
    vocabulary = predictor.graph.vocabulary
    for number, (_, entity, relation) in enumerate(asked, 1):
        try:
            vocabulary.entity(entity), vocabulary.relation(relation)
        except DataError as unknown:
            raise DataError(f"{file.name}:{number}: {unknown}") from None


def _show_one(
    predictor: Predictor, side: Side, entity: str, relation: str, top: int, new: bool, as_json: bool
) -> None:
    found = predictor.answer([(entity, relation)], side, top, new)[0]
    if as_json:
        json_document([each.to_json() for each in found])
        return
    query = f"{entity} — {relation} — ?" if side == "tail" else f"? — {relation} — {entity}"
    rows = [
        (
            i,
            each.entity,
            each.score,
            each.probability,
            f"known ({each.known})" if each.known else "new",
        )
        for i, each in enumerate(found, 1)
    ]
    table(query, ("#", "answer", "score#", "probability#", "known"), rows)
    if not found:
        note("every entity is known as an answer")


def _show_many(
    predictor: Predictor, asked: list[tuple[Side, str, str]], top: int, new: bool, as_json: bool
) -> None:
    """All answers, in the order of the queries; each side is asked in one go."""
    answers: dict[int, Any] = {}
    sides: tuple[Side, Side] = ("tail", "head")
    for side in sides:
        places = [i for i, (each, _, _) in enumerate(asked) if each == side]
        pairs = [asked[i][1:] for i in places]
        answers |= dict(zip(places, predictor.answer(pairs, side, top, new), strict=True))
    if as_json:
        json_document(
            [
                {
                    "head": entity if side == "tail" else None,
                    "relation": relation,
                    "tail": entity if side == "head" else None,
                    "answers": [each.to_json() for each in answers[i]],
                }
                for i, (side, entity, relation) in enumerate(asked)
            ]
        )
        return
    for i, (side, entity, relation) in enumerate(asked):
        for each in answers[i]:
            head, tail = (entity, each.entity) if side == "tail" else (each.entity, entity)
            names = "\t".join(clean(name) for name in (head, relation, tail))
            mark = each.known or "new"
            print(f"{names}\t{each.score:.6g}\t{each.probability:.6g}\t{mark}")
