"""Commands on a run: evaluate, compare and predict with its best weights; its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from allneg.cli import options
from allneg.cli.output import echo, json_document, table
from allneg.errors import DataError, RunError, counted
from allneg.exports.formats import FORMATS
from allneg.terminal import clean, note

if TYPE_CHECKING:
    from allneg.graph.graph import Graph, Vocabulary
    from allneg.predict.questions import Question
    from allneg.predict.results import Prediction, RelationPrediction
    from allneg.runs import Run


@click.command()
@options.any_run
@options.split
@click.option(
    "--protocol",
    type=click.Choice(["allneg", "kbc", "libkge", "pykeen"], case_sensitive=False),
    default="allneg",
    show_default=True,
    help="Rules for ties, filters and unseen entities.",
)
@options.within
@click.option("--relations", is_flag=True, help="Rank relations: which holds, (head, ?, tail)?")
@click.option("--queries", type=options.PATH, help="Rank the answers to questions in a file.")
@options.search
@options.device
@options.as_json
def evaluate_command(
    run: Path,
    split: str,
    protocol: str,
    within: str | None,
    relations: bool,
    queries: Path | None,
    device: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Rank a split with the best weights of RUN and print the report.

    --beam, --norm, --scores and --facts are for --queries; the facts are those of the splits
    before --split.
    """
    kinds = (protocol != "allneg", relations, within is not None, queries is not None)
    if sum(kinds) > 1:
        raise click.UsageError("--protocol, --within, --relations and --queries exclude each other")
    source = click.get_current_context().get_parameter_source
    if queries is None and any(source(name) == ParameterSource.COMMANDLINE for name in how):
        raise click.UsageError("--beam, --norm, --scores and --facts need --queries")
    if queries is not None:
        from allneg.cli.ask import evaluate_sets

        evaluate_sets(run, queries, split, device, as_json, **how)
        return
    from allneg.cli.reports import note_if_unfinished, print_report
    from allneg.runs import Run
    from allneg.runs.ranking import evaluate

    opened = Run.open(run)
    if relations:
        _evaluate_relations(opened, split, device, as_json)
        return
    report = evaluate(opened, split, protocol, device or "auto", within)
    note_if_unfinished(opened)
    print_report(report, opened, as_json)


@click.command()
@click.argument("one", type=options.PATH, metavar="RUN")
@click.argument("other", type=options.PATH, metavar="RUN")
@options.split
@options.device
@options.as_json
def compare_command(one: Path, other: Path, split: str, device: str | None, as_json: bool) -> None:
    """Test whether one RUN ranks better than the other.

    Both answer the same queries. The interval is a bootstrap over triples, and p is from a
    permutation test that flips signs; both use 10,000 samples.
    """
    from allneg.cli.reports import note_if_unfinished
    from allneg.runs import Run
    from allneg.runs.ranking import compare

    runs = Run.open(one), Run.open(other)
    found = compare(*runs, split, device or "auto")
    for run in runs:
        note_if_unfinished(run)
    if as_json:
        json_document({"runs": [str(one), str(other)], **found.to_json()})
        return
    for letter, folder, mrr in zip("AB", (one, other), found.mrr, strict=True):
        echo(f"{letter}: {folder}, {found.split} MRR {mrr:.4f}")
    whole = found.difference
    print(f"{whole.in_words('A', 'B')} ({counted(whole.triples, 'triple')}, both sides)")
    rows = []
    for relation, at in sorted(found.by_relation.items(), key=lambda item: -item[1].triples):
        interval = f"{at.low:+.4f} to {at.high:+.4f}"
        adjusted = found.adjusted[relation]
        rows.append((relation, at.triples, f"{at.mean:+.4f}", interval, at.p, adjusted))
    columns = ("relation", "triples#", "A - B#", "95 %", "p#", "adjusted p#")
    table("by relation", columns, rows, most=20)
    print("adjusted p: corrected for the number of relations (Benjamini and Hochberg)")


def _evaluate_relations(run: Run, split: str, device: str | None, as_json: bool) -> None:
    from allneg.cli.reports import cells, note_if_unfinished
    from allneg.evaluation import evaluate_relations
    from allneg.evaluation.report import by_heading
    from allneg.hardware import device_errors, find_device

    chosen = find_device(device or "auto")
    with device_errors(chosen):
        tables = run.tables().to(chosen)
        note_if_unfinished(run)
        block = run.recipe.evaluation.block
        found = evaluate_relations(run.model, tables, run.graph, split, block)
    if as_json:
        json_document({"run": str(run.folder), **found})
        return
    by_relation = sorted(found["by_relation"].items(), key=lambda item: -item[1]["count"])
    rows = [("all", *cells(found)), *((name, *cells(metrics)) for name, metrics in by_relation)]
    columns = ["", *(f"{name}#" for name in by_heading(found)), "queries#"]
    table(f"{run.graph.name}, {split}: {run.recipe.model.name}", columns, rows, most=40)
    rules = found["protocol"]
    echo(f"protocol {rules['name']}: {rules['in_words']}; {found['candidates']:,} candidates")


@click.command()
@options.any_run
@click.option("--head", metavar="NAME", help="Head of a query (head, relation, ?).")
@click.option("--tail", metavar="NAME", help="Tail of a query (?, relation, tail).")
@click.option("--relation", metavar="NAME", help="Relation; without it, relations are answers.")
@click.option(
    "--queries",
    "--questions",
    "file",
    type=options.PATH,
    help="A file of queries with the columns or keys head, relation, tail and ? for one of them: "
    ".csv, .json, .jsonl, .parquet, or lines with tabs.",
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True)
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
    device: str | None,
    as_json: bool,
) -> None:
    """Answer queries by name with the best weights of RUN.

    Give two of --head, --relation and --tail: the third one is asked for. A bad line of a file is
    reported and the others are answered; the exit code is then 3.
    """
    from allneg.cli.reports import open_predictor
    from allneg.evaluation import Within
    from allneg.predict.questions import PARTS, read_questions

    if (file is None) == ((head, relation, tail) == (None, None, None)):
        raise click.UsageError("give two of --head, --relation and --tail, or --queries")
    if file is None and (head, relation, tail).count(None) != 1:
        raise click.UsageError("give two of --head, --relation and --tail; the third is asked for")
    asked = [] if file is None else read_questions(file)
    predictor = open_predictor(run, device)
    questions = [(head, relation, tail)]
    if file is not None:
        questions = list(_good(asked, predictor.graph.vocabulary))
    graph, device_used = predictor.graph, predictor.tables.device
    allowed = None if within is None else Within.parse(within, graph, device_used)
    answers = predictor.predict(questions, top, new, allowed) if questions else []
    if as_json and questions:
        documents = [
            {**dict(zip(PARTS, question, strict=True)), "answers": [a.to_json() for a in found]}
            for question, found in zip(questions, answers, strict=True)
        ]
        json_document(documents[0]["answers"] if file is None else documents)
    elif file is None:
        _print_table(questions[0], answers[0], graph)
    else:
        for question, found in zip(questions, answers, strict=True):
            for a in found:
                names = [clean(a.answer if name is None else name) for name in question]
                print(*names, f"{a.score:.6g}", f"{a.share:.6g}", a.known or "new", sep="\t")
    if file is not None and (n_bad := len(asked) - len(questions)):
        raise DataError(f"{file}: {n_bad} of {counted(len(asked), 'query')} not answered")


def _good(asked: list[tuple[str, Question | str]], names: Vocabulary) -> Iterator[Question]:
    """The questions that can be answered; what is wrong with the others is printed."""
    for where, question in asked:
        if isinstance(question, str):
            note(f"{where}: {question}")
            continue
        head, relation, tail = question
        try:
            for entity in (head, tail):
                if entity is not None:
                    names.entity(entity)
            if relation is not None:
                names.relation(relation)
        except DataError as unknown:
            note(f"{where}: {unknown}")
        else:
            yield question


def _print_table(
    question: Question, answers: Sequence[Prediction | RelationPrediction], graph: Graph
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
@click.option("--top", type=click.IntRange(1), default=10, show_default=True)
@options.device
@options.as_json
def neighbours_command(run: Path, name: str, top: int, device: str | None, as_json: bool) -> None:
    """Print the entities whose vectors are most similar to that of NAME, by their cosine."""
    from allneg.predict.predictor import Predictor

    found = Predictor.load(run, device or "auto").neighbours(name, top)
    if as_json:
        json_document([neighbour.to_json() for neighbour in found])
        return
    rows = [(i, at.entity, at.similarity) for i, at in enumerate(found, 1)]
    table(f"neighbours of {name}", ("#", "entity", "cosine#"), rows)


@click.command()
@options.any_run
@options.as_json
def info_command(run: Path, as_json: bool) -> None:
    """Print the data, the recipe and the progress of RUN."""
    from allneg.runs import Run, checkpoint
    from allneg.runs.run import best_of

    opened = Run.open(run)
    graph, metrics, status = opened.graph, opened.metrics(), opened.live_status
    report = opened.report if opened.has_report else None
    split, mrr = (report.protocol["split"], report.mrr) if report else (None, None)
    valid_mrr, best_epoch = best_of(metrics)
    data = {"name": graph.name, "entities": graph.n_entities, "relations": graph.n_relations}
    data |= {split: len(graph.split(split)) for split in ("train", "valid", "test")}
    seconds, step = metrics[-1]["seconds"] if metrics else 0.0, 0
    checkpoints = opened.folder / "checkpoints"
    if status["state"] != "finished" and checkpoint.names(checkpoints):
        saved = checkpoint.last_state(checkpoints)
        seconds = max(seconds, saved.seconds)
        step = saved.step if saved.epoch == len(metrics) else 0
    if as_json:
        settings: dict[str, Any] = {"recipe": opened.recipe.to_tables()}
        members = [{"name": m.name, "recipe": m.recipe.to_tables()} for m in opened.members]
        settings |= {"members": members, "environment": opened.environment}
        settings |= {"parents": [parent.to_json() for parent in opened.parents]}
        progress = {
            "epochs": len(metrics),
            "step": step,
            "seconds": seconds,
            "split": split,
            "mrr": mrr,
        }
        progress |= {"valid_mrr": valid_mrr, "best_epoch": best_epoch}
        json_document({"run": str(run), "status": status, "data": data, **settings, **progress})
        return
    state = status["state"]
    if state == "cut off":
        state = f"was cut off; `allneg resume {run}` continues it"
    rows: list[tuple[str, object]] = [("state", state), *data.items()]
    rows += [(f"parent {i}", parent.in_words()) for i, parent in enumerate(opened.parents, 1)]
    more = f" and {counted(step, 'step')}" if step else ""
    rows += [("epochs", f"{len(metrics):,}{more}"), ("seconds", f"{seconds:.1f}")]
    if best_epoch is not None:
        rows.append((f"best valid MRR, epoch {best_epoch}", valid_mrr))
    if split != "valid":
        rows.append((f"{split or 'test'} MRR", mrr))
    if "reason" in status:
        rows.append(("reason", status["reason"]))
    table(str(run), ("", "value"), rows)
    for member in opened.members:
        echo(f"# member {member.name}\n{member.recipe.to_toml()}")
    if not opened.members:
        echo(opened.recipe.to_toml())


@click.command()
@options.any_run
@click.option("--rank", is_flag=True, help="Also rank again, and compare with the report.")
@options.as_json
def verify_command(run: Path, rank: bool, as_json: bool) -> None:
    """Check sizes, SHA-256, shapes, names and ids of all files of RUN.

    The exit code is 4 if a check fails.
    """
    from allneg.runs.verify import verify

    checks = verify(run, rank)
    failed = [check for check in checks if check.wrong is not None]
    if as_json:
        results = [vars(check) for check in checks]
        json_document({"run": str(run), "whole": not failed, "checks": results})
    else:
        rows = [(check.what, check.wrong or "ok") for check in checks]
        table(str(run), ("checked", "result"), rows)
    if failed:
        raise RunError(f"{run}: {len(failed)} of {len(checks)} checks failed")


@click.command()
@options.any_run
@click.option("--out", type=options.PATH, required=True, help="A new file or folder.")
@click.option(
    "--format",
    type=click.Choice(list(FORMATS)),
    help="Format of the vectors; without it, that of the suffix of --out.",
)
@options.as_json
def export_command(run: Path, out: Path, format: str | None, as_json: bool) -> None:
    """Write the vectors of RUN with their names and a description, or the whole run.

    --out NAME.npy, .parquet, .csv, .vec (word2vec) or .safetensors is the file of entity vectors;
    relation vectors, names and NAME.json are beside it. --format neo4j writes a folder for
    `neo4j-admin database import`. --out NAME, without format and suffix, is a copy of the run
    with its shards joined. Rows are copied in blocks, so the tables need not fit in memory.
    """
    from allneg.exports.export import export

    written = [str(path) for path in export(run, out, format)]
    if as_json:
        json_document({"run": str(run), "out": str(out), "files": written})
    else:
        echo("\n".join(written))


@click.command()
@options.run
@click.argument("repository", metavar="USER/NAME")
@click.option("--private", is_flag=True, help="Only its owner can see a new repository.")
@options.as_json
def push_command(run: Path, repository: str, private: bool, as_json: bool) -> None:
    """Upload RUN, with a model card, to a repository of the Hugging Face Hub.

    The upload has the triples, the weights, the report, and the command and versions of the
    training. `allneg.load("hf:USER/NAME")` loads it. Log in before, with `hf auth login`.
    """
    from allneg.hub import push

    address = push(run, repository, private)
    if as_json:
        json_document({"run": str(run), "repository": repository, "address": address})
    else:
        echo(address)
