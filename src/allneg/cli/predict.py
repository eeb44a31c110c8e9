"""Commands that answer by name: predict, neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli import options
from allneg.cli.output import json_document, table
from allneg.errors import DataError, counted
from allneg.terminal import clean, note

if TYPE_CHECKING:
    from allneg.graph.graph import Graph, Vocabulary
    from allneg.predict.query_files import NamedQuery
    from allneg.predict.results import Prediction, RelationPrediction

_SHOWN = 10  # bad lines of a file


@click.command()
@options.any_run
@click.option("--head", metavar="NAME", help="Head of a query (head, relation, ?).")
@click.option("--tail", metavar="NAME", help="Tail of a query (?, relation, tail).")
@click.option("--relation", metavar="NAME", help="Relation; without it, the answers are relations.")
@click.option(
    "--queries",
    "--questions",
    "file",
    type=options.PATH,
    help="A file of queries with the columns or keys head, relation, tail and ? for one of them: "
    ".csv, .json, .jsonl, .parquet, or lines separated by tabs.",
)
@options.top("answers", 10)
@click.option("--new", is_flag=True, help="Leave out known facts.")
@options.within
@options.device
@options.as_json
def predict_command(
    run: Path,
    head: str | None,
    tail: str | None,
    relation: str | None,
    file: Path | None,
    top: int,
    new: bool,
    within: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Answer queries by name with the best weights of RUN.

    Give two of --head, --relation and --tail to get answers for the third. Bad lines of a file are
    counted, the first ten are shown, and the others are answered; the exit code is then 3.
    """
    from allneg.cli.reports import open_predictor
    from allneg.evaluation import Within
    from allneg.predict.query_files import PARTS, read_query_file

    if (file is None) == ((head, relation, tail) == (None, None, None)):
        raise click.UsageError("give two of --head, --relation and --tail, or --queries")
    if file is None and (head, relation, tail).count(None) != 1:
        raise click.UsageError("give two of --head, --relation and --tail; the third is asked for")
    asked = [] if file is None else read_query_file(file)
    predictor = open_predictor(run, device)
    questions = [(head, relation, tail)]
    if file is not None:
        questions = list(_good(asked, predictor.graph.vocabulary))
    graph, device_used = predictor.graph, predictor.tables.device
    allowed = None if within is None else Within.parse(within, graph, device_used)
    answers = predictor.predict(questions, top, new, allowed) if questions else []
    if as_json and questions:
        answered = [
            {**dict(zip(PARTS, question, strict=True)), "answers": [a.to_json() for a in found]}
            for question, found in zip(questions, answers, strict=True)
        ]
        json_document({"run": str(run), **(answered[0] if file is None else {"queries": answered})})
    elif file is None:
        _print_table(questions[0], answers[0], graph)
    else:
        for question, found in zip(questions, answers, strict=True):
            for a in found:
                names = [clean(a.answer if name is None else name) for name in question]
                print(*names, f"{a.score:.6g}", f"{a.share:.6g}", a.known or "new", sep="\t")
    if file is not None and (n_bad := len(asked) - len(questions)):
        raise DataError(f"{file}: {n_bad:,} of {counted(len(asked), 'query')} not answered")


def _good(asked: list[tuple[str, NamedQuery | str]], names: Vocabulary) -> Iterator[NamedQuery]:
    """The questions that can be answered; what is wrong with the first others is printed."""
    n_bad = 0
    for where, question in asked:
        if not isinstance(question, str) and _is_known(question, names):
            yield question
            continue
        n_bad += 1
        if n_bad <= _SHOWN:  # for many, the search for close names takes minutes
            note(f"{where}: {_mistake(question, names)}")
    if n_bad > _SHOWN:
        note(f"and {n_bad - _SHOWN:,} more")


def _is_known(question: NamedQuery, names: Vocabulary) -> bool:
    head, relation, tail = question
    has_entities = {head, tail} - {None} <= names.entity_ids.keys()
    return has_entities and {relation} - {None} <= names.relation_ids.keys()


def _mistake(question: NamedQuery | str, names: Vocabulary) -> object:
    """What is wrong with a question that cannot be answered."""
    if isinstance(question, str):
        return question
    head, relation, tail = question
    try:
        for entity in filter(None, (head, tail)):
            names.entity(entity)
        return names.relation(str(relation))
    except DataError as unknown:
        return unknown


def _print_table(
    question: NamedQuery, answers: Sequence[Prediction | RelationPrediction], graph: Graph
) -> None:
    rows = [
        (i, graph.shown(a.answer), a.score, a.share, a.calibrated, _known(a.known))
        for i, a in enumerate(answers, 1)
    ]
    columns = ("#", "answer", "score#", "softmax share#", "calibrated#", "known")
    title = " — ".join("?" if name is None else graph.shown(name) for name in question)
    table(title, columns, rows)
    if not answers:
        kind = "relations" if question[1] is None else "entities"
        note(f"no answers: all {kind} are left out")


def _known(split: str | None) -> str:
    return f"known ({split})" if split else "new"


@click.command()
@options.any_run
@click.argument("name")
@options.top("entities", 10)
@options.device
@options.as_json
def neighbours_command(run: Path, name: str, top: int, device: str, as_json: bool) -> None:
    """Print the entities whose vectors are most similar to that of NAME, by cosine similarity."""
    from allneg.predict.predictor import Predictor

    found = Predictor.load(run, device).neighbours(name, top)
    if as_json:
        neighbours = [neighbour.to_json() for neighbour in found]
        json_document({"run": str(run), "entity": name, "neighbours": neighbours})
        return
    rows = [(i, at.entity, at.similarity) for i, at in enumerate(found, 1)]
    table(f"neighbours of {name}", ("#", "entity", "similarity#"), rows)
