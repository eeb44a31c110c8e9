"""`allneg ask`: answers to questions of several hops; and the evaluation of sets of questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from allneg.cli import options
from allneg.cli.output import echo, json_document, note, table


@click.command()
@options.run
@click.argument("question")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True)
@options.search
@options.device
@options.as_json
def ask_command(
    run: Path, question: str, top: int, facts: bool, device: str | None, as_json: bool, **how: Any
) -> None:
    """Answer a QUESTION such as '?x : borders(France, ?y), speaks(?y, ?x)'.

    `,` is and, `;` is or, `~r(a, b)` is r(b, a), `not` excludes. Names with spaces are quoted.
    """
    from allneg.cli.reports import note_if_unfinished
    from allneg.predict.predictor import Predictor
    from allneg.runs import Run

    predictor = Predictor.load(run, device or "auto")
    note_if_unfinished(Run.open(run))
    how = {name: value for name, value in how.items() if value is not None}
    answers = predictor.ask(question, top, facts=facts, **how)
    if as_json:
        found = [answer.to_json() for answer in answers]
        json_document({"run": str(run), "question": question, "answers": found})
        return
    rows = [
        (i, answer.entity, answer.probability, "\n".join(map(str, answer.steps)))
        for i, answer in enumerate(answers, 1)
    ]
    table(question, ("#", "answer", "probability#", "because"), rows)
    if not answers:
        note("no answers: every entity is excluded")


def evaluate_sets(
    run: Path, file: Path, split: str, device: str | None, as_json: bool, facts: bool, **how: Any
) -> None:
    """Rank the hard answers to the questions in a file, and print the metrics of each shape."""
    from allneg.cli.reports import cells, note_if_unfinished
    from allneg.evaluation.report import by_heading
    from allneg.graph.graph import SPLITS
    from allneg.predict.ask import Search
    from allneg.predict.predictor import Predictor
    from allneg.predict.query_sets import evaluate_queries, read_queries
    from allneg.runs import Run

    predictor = Predictor.load(run, device or "auto")
    note_if_unfinished(Run.open(run))
    how = {name: value for name, value in how.items() if value is not None}
    if facts:
        how["facts"] = SPLITS[: SPLITS.index(split)]
    found = evaluate_queries(Search(predictor, **how), read_queries(file, predictor.graph))
    mean = sum(metrics["mrr"] for metrics in found.values()) / len(found)
    if as_json:
        json_document({"run": str(run), "queries": str(file), "mrr": mean, "shapes": found})
        return
    rows = [(shape, *cells(metrics), metrics["questions"]) for shape, metrics in found.items()]
    columns = [f"{name}#" for name in by_heading(next(iter(found.values())))]
    table(file.name, ("shape", *columns, "hard answers#", "questions#"), rows)
    echo(f"mean MRR of the shapes {mean:.4f}; easy answers are filtered out")
