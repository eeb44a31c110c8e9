from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from allneg.errors import UsageError
from allneg.graph import Graph
from allneg.graph.graph import Vocabulary
from allneg.predict.predictor import load
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training import fit

Command = Callable[..., Any]  # arguments of `allneg` to how it ended


def test_a_query_is_answered_by_a_list(allneg: Command, toy_run: Run) -> None:
    query = ("predict", toy_run.folder, "--head", "France", "--relation", "borders")
    data = allneg(*query, "--top", "3", "--json").json
    expected_keys = {"entity", "score", "share", "known", "calibrated"}
    assert [item.keys() for item in data["answers"]] == [expected_keys] * 3
    expected = load(toy_run.folder, "cpu").tails("France", "borders", 3)
    assert data == {
        "schema_version": 1,
        "run": str(toy_run.folder),
        "head": "France",
        "relation": "borders",
        "tail": None,
        "answers": [item.to_json() for item in expected],
    }


def test_the_other_side_and_new_facts_can_be_asked_for(allneg: Command, toy_run: Run) -> None:
    query = ("predict", toy_run.folder, "--tail", "Europe", "--relation", "in", "--top", "99")
    asked = (*query, "--json"), (*query, "--new", "--json")
    everything, new = (allneg(*command).json["answers"] for command in asked)
    assert len(everything) == 12
    assert new == [item for item in everything if item["known"] is None]


def test_a_table_marks_what_is_known(allneg: Command, toy_run: Run) -> None:
    done = allneg("predict", toy_run.folder, "--tail", "Europe", "--relation", "in", "--top", "12")
    assert done.code == 0
    assert "? — in — Europe" in done.out
    rows = {line.split()[3]: line for line in done.out.splitlines() if line.startswith("│")}
    assert "known (train)" in rows["France"]
    assert "known (valid)" in rows["Italy"]
    assert "known (test)" in rows["Sicily"]
    assert " new " in rows["Rome"]


def test_a_typo_is_answered_by_near_names(allneg: Command, toy_run: Run) -> None:
    done = allneg("predict", toy_run.folder, "--head", "Frence", "--relation", "borders", "--json")
    assert (done.code, done.out) == (3, "")
    assert done.err == "allneg: no entity is called 'Frence'; close names: 'France'\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--head", "France", "--tail", "Spain", "--relation", "borders"],
        ["--relation", "borders"],
        ["--head", "France"],
        ["--queries", "file", "--head", "France"],
        ["--head", "France", "--relation", "borders", "--top", "0"],
        ["--head", "France", "--relation", "borders", "--top", "x"],
    ],
)
def test_an_incomplete_query_is_a_usage_error(
    allneg: Command, toy_run: Run, arguments: list[str]
) -> None:
    done = allneg("predict", toy_run.folder, *arguments)
    assert (done.code, done.out) == (2, "")


def test_a_file_of_queries_is_answered_in_its_order(
    allneg: Command, toy_run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "queries.tsv"
    file.write_bytes("\ufeffFrance\tborders\t?\r\n?\tin\tEurope\nRome\tcapital_of\t?".encode())
    command = ("predict", toy_run.folder, "--queries", file, "--top", "2")
    document = allneg(*command, "--json").json
    old_name = (*command[:2], "--questions", *command[3:], "--json")
    assert allneg(*old_name).json == document
    assert (document["schema_version"], document["run"]) == (1, str(toy_run.folder))
    data = document["queries"]
    assert [(item["head"], item["relation"], item["tail"]) for item in data] == [
        ("France", "borders", None),
        (None, "in", "Europe"),
        ("Rome", "capital_of", None),
    ]
    predictor = load(toy_run.folder, "cpu")
    heads = predictor.heads("Europe", "in", 2)
    assert [item["entity"] for item in data[1]["answers"]] == [item.entity for item in heads]
    lines = [line.split("\t") for line in allneg(*command).out.splitlines()]
    assert [len(line) for line in lines] == [6] * 6
    assert [line[0] for line in lines[2:4]] == [item.entity for item in heads]
    assert {line[2] for line in lines[2:4]} == {"Europe"}


@pytest.mark.parametrize(
    "content, message",
    [
        (b"France\tborders\n", "queries:1: expected head, relation and tail"),
        (b"\n", "queries: no queries"),
        (b"?\tborders\t?\n", "queries:1: expected"),
        (b"France\tborders\tSpain\n", "queries:1: expected"),
        (b"\x1b[2J\n", r"found '\x1b[2J'"),
        (b"\xff\n", "not UTF-8 (byte 0)"),
        (b"Frence\tborders\t?\n", "queries:1: no entity is called 'Frence'; close names: 'France'"),
        (b"", "queries: no queries; write head, relation, tail per line"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_of_queries_is_bad_data(
    allneg: Command, toy_run: Run, tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "queries").write_bytes(content)
    done = allneg("predict", toy_run.folder, "--queries", tmp_path / "queries", "--json")
    assert (done.code, done.out) == (3, "")
    assert message in done.err
    assert "\x1b" not in done.err


@pytest.fixture(scope="module")
def rude_run(tmp_path_factory: pytest.TempPathFactory, quick: Callable[..., Recipe]) -> Run:
    """A run whose names contain control characters and markup."""
    names = ("\x1b[2Jwipe", "[red]red[/red]", "bell\x07", "two\u2028lines", "rtl\u202e", "\x9b31m")
    triples = np.array([[0, 0, 1], [1, 0, 2], [2, 0, 3], [3, 0, 4], [4, 0, 5]])
    graph = Graph("\x1b[31mname", Vocabulary(names, ("\x1b]0;title\x07",)), triples, triples[:1],
                  triples[1:2])  # fmt: skip
    run = Run.create(tmp_path_factory.mktemp("rude") / "run", quick(), graph)
    fit(run)
    return run


@pytest.mark.battery(7)
def test_names_cannot_write_to_the_terminal(allneg: Command, rude_run: Run, tmp_path: Path) -> None:
    relation = rude_run.graph.vocabulary.relations[0]
    queries = tmp_path / "queries"
    queries.write_text(f"\x1b[2Jwipe\t{relation}\t?\ntwo\u2028lines\t{relation}\t?\n")
    for arguments in (
        ("predict", "--head", "\x1b[2Jwipe", "--relation", relation),
        ("predict", "--head", "[red]red[/red]", "--relation", relation),
        ("predict", "--queries", queries),
        ("predict", "--head", "\x1b[2Jwip", "--relation", relation),
        ("evaluate",),
        ("info",),
    ):
        done = allneg(arguments[0], rude_run.folder, *arguments[1:])
        assert done.code == (3 if "\x1b[2Jwip" in arguments else 0), done.err
        shown = done.out + done.err
        assert all(c.isprintable() or c in "\n\t" for c in shown), arguments
        if done.code == 0 and arguments[0] == "predict":
            assert r"\x1b[2Jwipe" in shown
            assert "[red]red[/red]" in shown


def test_json_keeps_names_as_they_are(allneg: Command, rude_run: Run) -> None:
    names = rude_run.graph.vocabulary
    query = ("--head", names.entities[0], "--relation", names.relations[0], "--top", "9")
    data = allneg("predict", rude_run.folder, *query, "--json").json
    assert {item["entity"] for item in data["answers"]} == set(names.entities)


def test_relations_between_two_entities_are_answers(allneg: Command, toy_run: Run) -> None:
    query = ("predict", toy_run.folder, "--head", "Italy", "--tail", "France")
    found = load(toy_run.folder, "cpu").relations("Italy", "France", k=2)
    assert allneg(*query, "--top", "2", "--json").json["answers"] == [
        item.to_json() for item in found
    ]
    shown = allneg(*query).out
    assert "Italy — ? — France" in shown
    assert "softmax share" in shown
    assert "probability" not in shown


QUESTIONS = [("France", "borders", None), (None, "in", "Europe"), ("Rome", None, "Italy")]


def tables(sep: str) -> str:
    rows = [("tail", "head", "relation"), *((t or "", h or "?", r or "") for h, r, t in QUESTIONS)]
    return "".join(f"{sep.join(row)}\n" for row in rows)


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "jsonl", "parquet"])
def test_files_of_questions_have_headers_or_keys(
    allneg: Command, toy_run: Run, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / f"questions.{kind}"
    objects = [dict(zip(("subject", "predicate", "object"), q, strict=True)) for q in QUESTIONS]
    if kind == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(objects), file)
    else:
        lines = "".join(json.dumps(item) + "\n" for item in objects)
        texts = {"csv": tables(","), "tsv": tables("\t"), "jsonl": lines}
        file.write_text(texts.get(kind, json.dumps(objects)))
    data = allneg("predict", toy_run.folder, "--queries", file, "--top", "2", "--json").json[
        "queries"
    ]
    assert [
        tuple(item[part] for part in ("head", "relation", "tail")) for item in data
    ] == QUESTIONS
    answers = load(toy_run.folder, "cpu").predict(QUESTIONS, k=2)
    assert [item["answers"] for item in data] == [[a.to_json() for a in of] for of in answers]
    lines = allneg("predict", toy_run.folder, "--queries", file, "--top", "1").out.splitlines()
    assert [line.split("\t")[:3] for line in lines] == [
        [of[0].answer if name is None else name for name in question]
        for question, of in zip(QUESTIONS, answers, strict=True)
    ]


def test_a_bad_line_is_reported_and_the_others_are_answered(
    allneg: Command, toy_run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "questions.csv"
    lines = (
        "head,relation,tail",
        "France,borders,?",
        "Frence,in,?",
        '"x,in',
        "Rome,in,",
        "Rome,in,Italy",
    )
    file.write_text("\n".join(lines))
    done = allneg("predict", toy_run.folder, "--queries", file, "--top", "1", "--json")
    assert done.code == 3
    assert [item["head"] for item in done.json["queries"]] == ["France", "Rome"]
    errors = done.err.splitlines()
    assert errors[0].startswith("questions.csv:3: no entity is called 'Frence'; close names")
    assert errors[1].startswith("questions.csv:4: the quotes do not match")
    assert errors[2].startswith("questions.csv:6: expected head, relation and tail, with ?")
    assert errors[3] == f"allneg: {file}: 3 of 5 queries not answered"


def test_of_many_bad_lines_the_first_are_reported(
    allneg: Command, toy_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    monkeypatch.setattr("allneg.graph.graph.close_names", lambda name, _: searched.append(name))
    file = tmp_path / "questions.tsv"
    bad = [f"Frence\tin{i}\t?\nFrance\tin{i}\t?\nFrance\n" for i in range(500)]
    file.write_text("".join(bad) + "France\tborders\t?\n")
    done = allneg("predict", toy_run.folder, "--queries", file, "--top", "1")
    assert (done.code, len(done.out.splitlines())) == (3, 1)
    errors = done.err.splitlines()
    assert errors[1].startswith("questions.tsv:2: no relation is called 'in0'")
    assert errors[9].startswith("questions.tsv:10: no entity is called 'Frence'")
    assert errors[10:] == [
        "and 1,490 more",
        f"allneg: {file}: 1,500 of 1,501 queries not answered",
    ]
    assert len(searched) == 7


def test_blank_lines_of_queries_are_skipped(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_bytes(
        b"\r\nrelation\thead\ttail\nborders\tFrance\t?\n \nin\tFrence\t?\n\n"
    )
    (tmp_path / "q.jsonl").write_text('\n{"head": "France", "relation": "borders"}\n\n')
    done = allneg("predict", toy_run.folder, "--queries", tmp_path / "q.tsv", "--top", "1")
    assert "q.tsv:5: no entity is called 'Frence'" in done.err
    assert "1 of 2 queries not answered" in done.err
    again = allneg("predict", toy_run.folder, "--queries", tmp_path / "q.jsonl", "--top", "1")
    assert (again.code, again.out) == (0, done.out)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("q.json", "[", "not JSON"),
        ("q.json", '["x"]', "q.json:1: expected head"),
        ("q.json", '[{"head": "France", "relation": 3}]', "q.json:1: expected head"),
        ("q.jsonl", "{\n", "q.jsonl:1: not JSON"),
        ("q.parquet", "PAR1", "not Parquet"),
    ],
)
def test_a_file_that_is_not_of_its_format_is_bad_data(
    allneg: Command, toy_run: Run, tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    done = allneg("predict", toy_run.folder, "--queries", tmp_path / name)
    assert (done.code, done.out) == (3, "")
    assert message in done.err


def test_questions_in_python_need_one_unknown(toy_run: Run) -> None:
    predictor = load(toy_run.folder, "cpu")
    with pytest.raises(UsageError, match="question 1: one of head, relation and tail must be None"):
        predictor.predict([("France", "in", None), ("France", "in", "Europe")])
    assert predictor.predict([]) == []


def test_neighbours_are_printed_with_their_similarities(allneg: Command, toy_run: Run) -> None:
    found = load(toy_run.folder, "cpu").neighbours("Paris", k=3)
    data = allneg("neighbours", toy_run.folder, "Paris", "--top", "3", "--json").json
    assert data == {
        "schema_version": 1,
        "run": str(toy_run.folder),
        "entity": "Paris",
        "neighbours": [item.to_json() for item in found],
    }
    shown = allneg("neighbours", toy_run.folder, "Paris").out
    assert "similarity" in shown
    assert f"{found[0].entity}" in shown
    assert f"{found[0].similarity:.4f}" in shown
    assert allneg("neighbours", toy_run.folder, "Pariss").code == 3
