from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.predict.ask import Search
from allneg.predict.predictor import load
from allneg.predict.query_sets import evaluate_queries, read_queries
from allneg.runs import Run

Command = Callable[..., Any]  # arguments of `allneg` to how it ended
QUESTION = "?x : borders(France, ?y), in(?y, ?x)"
LINE = {"shape": "1p", "question": "?x : in(?x, Europe)", "easy": ["France"], "hard": ["Sicily"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(LINE) + "\n")
    return path


def test_json_has_the_answers_of_python(allneg: Command, toy_run: Run) -> None:
    how = ("--top", "3", "--facts", "--norm", "minimum", "--beam", "5", "--scores", "softmax")
    data = allneg("ask", toy_run.folder, QUESTION, "--device", "cpu", "--json", *how).json
    expected = load(toy_run.folder, "cpu").ask(
        QUESTION, 3, facts=True, norm="minimum", beam=5, scores="softmax"
    )
    assert data["question"] == QUESTION
    assert data["answers"] == [answer.to_json() for answer in expected]
    assert data["answers"][0]["steps"][0].keys() == {
        "head", "relation", "tail", "probability", "known", "negated", "scores"
    }  # fmt: skip


def test_a_table_shows_why(allneg: Command, toy_run: Run) -> None:
    done = allneg("ask", toy_run.folder, QUESTION, "--facts", "--top", "2")
    assert (done.code, done.err) == (0, "")
    assert QUESTION in done.out
    assert "France borders" in done.out
    assert "known from" in done.out


def test_softmax_shares_are_not_called_probabilities(allneg: Command, toy_run: Run) -> None:
    shares = allneg("ask", toy_run.folder, QUESTION, "--scores", "softmax").out
    assert ("softmax share" in shares, "probability" in shares) == (True, False)
    calibrated = allneg("ask", toy_run.folder, QUESTION).out
    assert ("softmax share" in calibrated, "probability" in calibrated) == (False, True)


@pytest.mark.parametrize(
    "question, code, first",
    [
        ("?x : borders(Frence, ?x)", 3, "allneg: character 14: no entity is called 'Frence'; cl"),
        ("?x : borders(France, ?x", 2, "allneg: character 24: expected ')'"),
    ],
)
def test_an_error_points_at_the_question(
    allneg: Command, toy_run: Run, question: str, code: int, first: str
) -> None:
    done = allneg("ask", toy_run.folder, question, "--json")
    assert (done.code, done.out) == (code, "")
    message, shown, mark = done.err.splitlines()
    assert message.startswith(first)
    assert shown == f"  {question}"
    assert mark.strip() == "^"


def test_wrong_options_and_runs_have_their_exit_codes(
    allneg: Command, toy_run: Run, tmp_path: Path
) -> None:
    assert allneg("ask", toy_run.folder, QUESTION, "--beam", "0").code == 2
    assert allneg("ask", toy_run.folder).code == 2
    assert allneg("ask", tmp_path, QUESTION).code == 4


def test_sets_of_questions_are_evaluated(allneg: Command, toy_run: Run, file: Path) -> None:
    evaluate = ("evaluate", toy_run.folder, "--queries", file, "--device", "cpu")
    data = allneg(*evaluate, "--facts", "--json").json
    assert data["shapes"]["1p"]["questions"] == 1
    assert 0 < data["mrr"] <= 1
    done = allneg(*evaluate)
    assert done.code == 0
    assert "mean MRR of the shapes" in done.out


def test_only_facts_before_the_split_are_certain_in_sets_of_questions(
    allneg: Command, toy_run: Run, tmp_path: Path
) -> None:
    model, path = load(toy_run.folder, "cpu"), tmp_path / "questions.jsonl"
    names = model.graph.vocabulary
    lines = [
        {"shape": split, "question": f'?x : {relation}("{head}", ?x)', "easy": [], "hard": [tail]}
        for split in ("valid", "test")
        for head, relation, tail in model.graph.facts(split)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked, evaluate = read_queries(path, names), ("evaluate", toy_run.folder, "--queries", path)
    splits, means = ("train", "valid", "test"), []
    for n, split in enumerate(splits[1:], 1):
        data = allneg(*evaluate, "--facts", "--split", split, "--device", "cpu", "--json").json
        expected = evaluate_queries(Search(model, facts=splits[:n]), asked)
        assert {s: m["mrr"] for s, m in data["shapes"].items()} == {
            s: pytest.approx(m["mrr"]) for s, m in expected.items()
        }
        assert data["mrr"] == pytest.approx(sum(m["mrr"] for m in expected.values()) / 2)
        means.append(data["mrr"])
    certain = evaluate_queries(Search(model, facts=splits), asked)
    assert means[0] < means[1] < sum(m["mrr"] for m in certain.values()) / 2


def test_options_that_do_not_go_together_are_refused(
    allneg: Command, toy_run: Run, file: Path
) -> None:
    assert allneg("evaluate", toy_run.folder, "--queries", file, "--relations").code == 2
    evaluate = ("evaluate", toy_run.folder, "--queries", file)
    done = allneg(*evaluate, "--facts", "--split", "train")
    assert (done.code, "no split comes before train" in done.err) == (2, True)
    done = allneg("evaluate", toy_run.folder, "--beam", "64")
    assert done.code == 2
    assert "need --queries" in done.err
