"""`allneg ask`: answers to multi-hop questions; and `allneg evaluate --queries`."""

from pathlib import Path
from typing import Any

import click

from allneg.cli import options
from allneg.cli.output import echo, json_document, table


@click.command()
@options.run
@click.argument("question")
@options.top("answers", 10)
@options.search
@options.device
@options.as_json
def ask_command(run: Path, question: str, top: int, device: str, as_json: bool, **how: Any) -> None:
    """Answer a QUESTION such as '?x : borders(France, ?y), speaks(?y, ?x)'.

    `,` means and, `;` means or, ~r(a, b) means r(b, a), and `not` may precede an atom with an
    entity. Quote names with spaces. With --facts, the facts of all splits count as certain.
    """
    from allneg.cli.reports import open_predictor
    from allneg.predict.ask import SCORES

    answers = open_predictor(run, device).ask(question, top, **how)
    if as_json:
        found = [answer.to_json() for answer in answers]
        json_document({"run": str(run), "question": question, "answers": found})
        return
    rows = [
        (i, a.entity, a.probability, "; ".join(map(str, a.steps))) for i, a in enumerate(answers, 1)
    ]
    kind = SCORES[answers[0].scores] if answers else "probability"
    table(question, ("#", "answer", f"{kind}#", "because"), rows)


def evaluate_sets(
    run: Path, file: Path, split: str, device: str, as_json: bool, **how: Any
) -> None:
    """Print the metrics of the hard answers to the questions in a file, by shape."""
    from allneg.cli.reports import cells, open_predictor
    from allneg.evaluation.report import by_heading
    from allneg.graph.graph import SPLITS
    from allneg.predict.ask import Search
    from allneg.predict.query_sets import evaluate_queries, read_queries

    model = open_predictor(run, device)
    how["facts"] = SPLITS[: SPLITS.index(split)] if how["facts"] else ()
    found = evaluate_queries(Search(model, **how), read_queries(file, model.graph.vocabulary))
    mean = sum(metrics["mrr"] for metrics in found.values()) / len(found)
    if as_json:
        json_document({"run": str(run), "queries": str(file), "mrr": mean, "shapes": found})
        return
    rows = [(shape, *cells(metrics), metrics["questions"]) for shape, metrics in found.items()]
    columns = [f"{name}#" for name in by_heading(next(iter(found.values())))]
    table(file.name, ("shape", *columns, "hard answers#", "questions#"), rows)
    echo(f"mean MRR of the shapes {mean:.4f}; easy answers are filtered out")
