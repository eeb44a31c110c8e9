"""Sets of questions are read strictly, and ranked as by hand."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import numpy as np
import pytest

from allneg.errors import DataError
from allneg.predict.ask import Search
from allneg.predict.predictor import Predictor
from allneg.predict.query_sets import evaluate_queries, read_queries

LINES = [
    {"shape": "1p", "question": "?x : in(?x, Europe)", "easy": ["France", "Spain"],
     "hard": ["Portugal", "Sicily"]},
    {"shape": "1p", "question": "?x : in(Rome, ?x)", "easy": [], "hard": ["Italy"]},
    {"shape": "2p", "question": "?x : in(Rome, ?y), in(?y, ?x)", "easy": [], "hard": ["Europe"]},
    {"shape": "2p", "question": "?x : in(Paris, ?y), in(?y, ?x)", "easy": ["Europe"], "hard": []},
]  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def test_hard_answers_are_ranked_without_other_answers(predictor: Predictor, file: Path) -> None:
    found = evaluate_queries(Search(predictor), read_queries(file, predictor.graph.vocabulary))
    means: dict[str, list[float]] = {"1p": [], "2p": []}
    for line in LINES[:3]:
        answers = predictor.ask(str(line["question"]), k=12)
        p = {answer.entity: answer.probability for answer in answers}
        others = [p[name] for name in p if name not in (*line["easy"], *line["hard"])]
        ranks = [
            1 + sum(q > p[name] for q in others) + sum(q == p[name] for q in others) / 2
            for name in line["hard"]
        ]
        means[str(line["shape"])].append(float(np.mean([1 / rank for rank in ranks])))
    assert {s: m["mrr"] for s, m in found.items()} == pytest.approx(
        {shape: float(np.mean(values)) for shape, values in means.items()}
    )
    assert [(m["count"], m["questions"]) for m in found.values()] == [(3, 2), (1, 1)]


@pytest.mark.parametrize(
    "line, message",
    [
        (b"{", "questions.jsonl:2: expected a JSON object with shape, question, and lists"),
        (b"[]", "questions.jsonl:2: expected a JSON object"),
        (b'{"shape": "1p"}', "questions.jsonl:2: expected a JSON object"),
        (json.dumps({**LINES[0], "hard": "Sicily"}).encode(), "questions.jsonl:2: expected a JSON"),
        (json.dumps({**LINES[0], "shape": None}).encode(), "questions.jsonl:2: expected a JSON"),
        (b"\xff", "questions.jsonl:2: expected a JSON object"),
        (
            json.dumps({**LINES[0], "hard": ["Sicily", "Spain"]}).encode(),
            "questions.jsonl:2: an answer appears twice",
        ),
        (
            json.dumps({**LINES[0], "hard": ["Portugul"]}).encode(),
            "questions.jsonl:2: no entity is",
        ),
        (
            json.dumps({**LINES[0], "question": "?x"}).encode(),
            "questions.jsonl:2: character 3: exp",
        ),
    ],
)
def test_a_bad_line_is_named(
    predictor: Predictor, tmp_path: Path, line: bytes, message: str
) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(json.dumps(LINES[0]).encode() + b"\n" + line + b"\n")
    with pytest.raises(DataError) as error:
        read_queries(path, predictor.graph.vocabulary)
    assert str(error.value).startswith(message)


def test_blank_lines_and_a_byte_order_mark_are_skipped(
    predictor: Predictor, tmp_path: Path
) -> None:
    path, names = tmp_path / "questions.jsonl", predictor.graph.vocabulary
    path.write_bytes(codecs.BOM_UTF8 + json.dumps(LINES[0]).encode() + b"\r\n\n")
    assert len(read_queries(path, names)) == 1
    path.write_bytes(b"\n{\n")
    with pytest.raises(DataError, match=r"questions\.jsonl:2"):
        read_queries(path, names)


def test_a_missing_or_empty_file_is_refused(predictor: Predictor, tmp_path: Path) -> None:
    names = predictor.graph.vocabulary
    with pytest.raises(DataError, match="cannot be read"):
        read_queries(tmp_path / "none", names)
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="no hard answers"):
        read_queries(tmp_path / "empty", names)
