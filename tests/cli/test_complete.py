"""The commands `complete` and `score`, and `--within` of others."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.auditing.audit import SuspiciousFact
from allneg.predict import complete as module
from allneg.predict.complete import Completion
from allneg.predict.fact_files import write_rows
from allneg.predict.predictor import load
from allneg.runs import Run

Command = Callable[..., Any]  # runs `allneg` with these arguments


def test_new_facts_are_written_best_first(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    out = tmp_path / "new.tsv"
    done = allneg("complete", toy_run.folder, "--top", "7", "--out", out)
    assert done.code == 0
    assert done.out.startswith("7 new facts of 36 questions, in ")
    rows = [line.split("\t") for line in out.read_text().splitlines()]
    predictor = load(toy_run.folder, "cpu")
    search = Completion(predictor, range(3), 7)
    search.run()
    assert [tuple(row[:3]) for row in rows] == [
        (fact.head, fact.relation, fact.tail) for fact in search.facts()
    ]
    numbers = [float(row[3]) for row in rows]
    assert numbers == sorted(numbers, reverse=True)
    assert not list(tmp_path.glob("*.partial"))


def test_options_restrict_the_facts(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    out = tmp_path / "new.jsonl"
    options = ("--relation", "in", "--within", "seen", "--min-probability", "0.001")
    done = allneg("complete", toy_run.folder, *options, "--out", out, "--json")
    facts = [json.loads(line) for line in out.read_text().splitlines()]
    assert done.json["facts"] == len(facts) > 0
    assert done.json["questions"] == 12
    assert {fact["relation"] for fact in facts} == {"in"}
    tails = {"France", "Spain", "Portugal", "Italy", "Europe", "Earth"}
    assert {fact["tail"] for fact in facts} <= tails
    assert all(fact["probability"] >= 0.001 for fact in facts)


@pytest.mark.parametrize("suffix", ["tsv", "jsonl", "parquet", "nt"])
def test_excluded_facts_are_not_listed(
    allneg: Command, toy_run: Run, tmp_path: Path, suffix: str
) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    first, second, file = tmp_path / "a.tsv", tmp_path / "b.tsv", tmp_path / f"rejected.{suffix}"
    allneg("complete", toy_run.folder, "--top", "9", "--out", first)
    if suffix == "nt":
        file.write_text("<Paris> <in> <Europe> .\n<Mars> <in> <Europe> .\n")
        done = allneg("complete", toy_run.folder, "--exclude", file, "--out", second)
        assert done.code == 3
        assert "rejected.nt: fact 2: no entity is called 'Mars'" in done.err
        return
    allneg("complete", toy_run.folder, "--top", "4", "--out", file)
    done = allneg("complete", toy_run.folder, "--top", "5", "--exclude", file, "--out", second)
    assert done.code == 0
    rows = [[line.split("\t")[:3] for line in path.open()] for path in (first, second)]
    assert rows[1] == rows[0][4:]


def test_other_exclusions_are_another_search(
    allneg: Command, toy_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "rejected.tsv", tmp_path / "new.tsv"
    file.write_text("Earth\tborders\tRome\n")
    command = ("complete", toy_run.folder, "--exclude", file, "--out", out)
    ask = Completion._ask

    def interrupted(search: Completion, *arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        ask(search, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Completion, "_ask", interrupted)
        patch.setitem(module._BLOCK, "cpu", 60)
        assert allneg(*command).code == 130
    file.write_text("Earth\tborders\tParis\n")
    assert "from a search with another run or other options" in allneg(*command).err


def test_progress_is_that_of_three_steps(
    allneg: Command, toy_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module._BLOCK, "cpu", 12)  # one question at a time
    monkeypatch.setattr("allneg.cli.complete._LINE_SECONDS", 0.0)
    monkeypatch.setattr(module, "_BEST", 1)
    done = allneg("complete", toy_run.folder, "--top", "30", "--out", tmp_path / "new.tsv")
    shown = re.findall(r"step (\d) of 3: (\d+) of (\d+) questions; about \d+ s left in", done.err)
    steps = {step: [] for step in "123"}
    for step, count, total in shown:
        steps[step].append((int(count), int(total)))
    assert [step for step, *_ in shown] == sorted(step for step, *_ in shown)
    for step, total in (("1", 36), ("2", 36), ("3", steps["3"][0][1])):
        assert steps[step] == [(count, total) for count in range(2, total + 1)]
    assert 2 <= steps["3"][0][1] < 36
    quiet = allneg("complete", toy_run.folder, "--out", tmp_path / "other.tsv", "--quiet")
    assert "step" not in quiet.err


def test_a_few_facts_of_valid_are_said_to_be_few(
    allneg: Command, toy_run: Run, facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "valid: 2 facts; probabilities that are fitted to fewer than 100 say little"
    commands = {
        "complete": ("complete", toy_run.folder, "--out"),
        "score": ("score", toy_run.folder, facts),
    }
    assert words in allneg(*commands["complete"], tmp_path / "a.tsv").err
    done = allneg(*commands["score"], "--json")
    assert words in done.err
    assert words in done.json["notes"][0]
    monkeypatch.setattr("allneg.predict.agreement._ENOUGH", 2)
    assert "say little" not in allneg(*commands["complete"], tmp_path / "b.tsv").err
    assert "say little" not in allneg(*commands["score"]).err
    file = tmp_path / "false.tsv"
    file.write_text("Earth\tborders\tRome\n")
    done = allneg(*commands["score"], "--negatives", file)
    assert "negatives: 1 fact; probabilities that are fitted to fewer than 2 say little" in done.err


def test_an_interrupted_search_is_continued(
    allneg: Command, toy_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = tmp_path / "whole.tsv", tmp_path / "new.tsv"
    allneg("complete", toy_run.folder, "--top", "9", "--out", whole)
    monkeypatch.setitem(module._BLOCK, "cpu", 60)  # five questions at a time
    ask, calls = Completion._ask, 0

    def interrupted(search: Completion, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            signal.raise_signal(signal.SIGINT)
        ask(search, *arguments)

    monkeypatch.setattr(Completion, "_ask", interrupted)
    command = ("complete", toy_run.folder, "--top", "9", "--out", out)
    done = allneg(*command)
    assert (done.code, out.exists()) == (130, False)
    assert "stopped and saved; the same command continues it" in done.err
    assert (tmp_path / "new.tsv.partial").exists()
    refused = allneg(*command[:2], "--top", "8", "--out", out)
    assert refused.code == 2
    assert "from a search with another run or other options" in refused.err
    done = allneg(*command)
    assert done.code == 0
    assert "continued after 15 of 36 questions" in done.err
    names = [[line.split("\t")[:3] for line in path.open()] for path in (whole, out)]
    assert names[0] == names[1]
    assert not (tmp_path / "new.tsv.partial").exists()


@pytest.mark.parametrize(
    "options, code, message",
    [
        (["--out", "new.xlsx"], 2, "write a .tsv, .csv, .jsonl or .parquet file"),
        (["--out", "new.tsv", "--relation", "inn"], 3, "no relation is called 'inn'"),
        (["--out", "new.tsv", "--within", "nothing"], 3, "write seen, type=RELATION:OBJECT"),
        (["--out", "new.tsv", "--min-probability", "1"], 2, "--min-probability"),
        (["--out", "new.tsv", "--exclude", "nothing"], 3, "nothing: cannot be read"),
        (["--out", "new.tsv", "--exclude", "."], 3, "give one file of facts"),
        (["--out", "new.tsv", "--exclude", "taken.tsv"], 3, "taken.tsv:1: expected head"),
        (["--out", "new.tsv", *["--within", "seen"] * 2], 2, "give --within once; found 'seen'"),
        (["--out", "taken.tsv"], 2, "already exists; choose another --out"),
    ],
)
def test_wrong_options_are_explained(
    allneg: Command, toy_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    options: list[str], code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("taken.tsv").write_text("mine")
    done = allneg("complete", toy_run.folder, *options)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["taken.tsv"]


@pytest.mark.parametrize("command", ["complete", "audit"])
def test_the_folder_of_out_is_made_and_csv_is_read_again(
    allneg: Command, toy_run: Run, tiny_folder: Path, tmp_path: Path, command: str
) -> None:
    out, quick = tmp_path / "new" / "folder" / "facts.csv", ("--set", "training.epochs=1")
    given = (toy_run.folder,) if command == "complete" else (tiny_folder, "--folds", "2", *quick)
    assert allneg(command, *given, "--top", "5", "--out", out).code == 0
    assert out.read_text().startswith("head,relation,tail,probability,")
    assert len(allneg("score", toy_run.folder, out, "--json").json["triples"]) == 5
    again = tmp_path / "again.tsv"
    assert allneg("complete", toy_run.folder, "--exclude", out, "--out", again).code == 0


FACTS = "Paris\tin\tEurope\t1\r\nRome\tcapital_of\tItaly\tTrue\nEarth\tborders\tParis\tfalse\n"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.tsv"
    path.write_bytes(FACTS.encode())
    return path


def test_given_facts_are_scored(allneg: Command, toy_run: Run, facts: Path) -> None:
    shown = allneg("score", toy_run.folder, facts, "--json").json
    assert {"accuracy", "f1", "auc", "ece", "protocol", "triples"} <= shown.keys()
    assert shown["triples"][0].keys() == {
        "head", "relation", "tail", "score", "probability", "tail_rank", "head_rank", "verdict",
        "known",
    }  # fmt: skip
    assert [fact["known"] for fact in shown["triples"]] == ["train", "test", None]
    done = allneg("score", toy_run.folder, facts)
    assert "triple classification: a threshold per relation" in done.out
    assert f"accuracy {shown['accuracy']:.4f}" in done.out
    assert "capital_of" in done.out


def test_known_false_facts_can_be_given(
    allneg: Command, toy_run: Run, facts: Path, tmp_path: Path
) -> None:
    false = tmp_path / "false.tsv"
    false.write_text("Earth\tborders\tRome\nEarth\tcapital_of\tRome\t\n".replace("\t\n", "\n"))
    shown = allneg("score", toy_run.folder, facts, "--negatives", false, "--json").json
    assert "2 false facts given" in shown["protocol"]
    false.write_text("Earth\tborders\tRom\n")
    done = allneg("score", toy_run.folder, facts, "--negatives", false)
    assert done.code == 3
    assert "false.tsv:1: no entity is called 'Rom'" in done.err
    done = allneg("score", toy_run.folder, facts, "--negatives", facts)
    assert done.code == 3
    assert "a fact is labelled true; --negatives are false facts" in done.err


def test_negatives_that_are_known_facts_are_counted(
    allneg: Command, toy_run: Run, facts: Path, tmp_path: Path
) -> None:
    file = tmp_path / "false.tsv"
    file.write_text("Paris\tin\tEurope\nEarth\tborders\tRome\nRome\tcapital_of\tItaly\n")
    words = "negatives that are known facts: 2 of 3 (train 1, test 1); they are used as false ones"
    assert words in allneg("score", toy_run.folder, facts, "--negatives", file).err
    file.write_text("Earth\tborders\tRome\n")
    assert "known facts" not in allneg("score", toy_run.folder, facts, "--negatives", file).err


@pytest.mark.parametrize("suffix", ["tsv", "jsonl", "parquet"])
def test_the_facts_of_complete_and_audit_can_be_scored(
    allneg: Command, toy_run: Run, tmp_path: Path, suffix: str
) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    file = tmp_path / f"new.{suffix}"
    allneg("complete", toy_run.folder, "--top", "40", "--out", file)
    found = allneg("score", toy_run.folder, file, "--json").json
    assert "accuracy" not in found
    rates = [fact["probability"] for fact in found["triples"]]
    assert len(rates) == 40
    assert rates == pytest.approx(sorted(rates, reverse=True))
    facts = [
        SuspiciousFact(fact["head"], fact["relation"], fact["tail"], 1e-5, 3.0, 1.5, "a, b", "")
        for fact in found["triples"]
    ]
    audited = tmp_path / f"suspicious.{suffix}"
    write_rows(audited, SuspiciousFact, facts)
    assert allneg("score", toy_run.folder, audited, "--json").json == found


def test_a_file_of_facts_may_be_compressed(
    allneg: Command, toy_run: Run, facts: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "facts.tsv.gz"
    packed.write_bytes(gzip.compress(facts.read_bytes()))
    plain = allneg("score", toy_run.folder, facts, "--json").json
    assert allneg("score", toy_run.folder, packed, "--json").json == plain


def test_blank_lines_of_facts_are_skipped(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    file = tmp_path / "facts.tsv"
    file.write_bytes(b"\nhead\trelation\ttail\nFrance\tborders\tSpain\r\n\r\nParis\tin\tFrance\n\n")
    assert len(allneg("score", toy_run.folder, file, "--json").json["triples"]) == 2
    file.write_text("\n")
    assert "facts.tsv: no facts in it" in allneg("score", toy_run.folder, file).err


def test_a_folder_that_cannot_be_written_is_refused_before_the_search(
    allneg: Command, toy_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write
    monkeypatch.delattr(Completion, "run")
    done = allneg("complete", toy_run.folder, "--out", tmp_path / "new.tsv")
    assert done.code == 6
    assert "new.tsv: cannot be written (Permission denied)" in done.err


def test_without_labels_there_is_no_accuracy(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    (tmp_path / "facts").write_text("Paris\tin\tEurope")
    shown = allneg("score", toy_run.folder, tmp_path / "facts", "--json").json
    assert "accuracy" not in shown
    assert len(shown["triples"]) == 1


def test_a_csv_of_facts_may_begin_with_names(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    file = tmp_path / "facts.csv"
    file.write_text('subject,predicate,object,label\n"Paris",in,Europe,1\nParis,in,Italy,0\n')
    found = allneg("score", toy_run.folder, file, "--json").json
    assert [fact["tail"] for fact in found["triples"]] == ["Europe", "Italy"]
    assert found["accuracy"] is not None
    file.write_text("tail,head,relation\nEurope,Paris,in\n")
    swapped = allneg("score", toy_run.folder, file, "--json").json["triples"]
    assert swapped == found["triples"][:1]
    for content, message in {"head,relation,tail\n": "no facts", "a\tb\tc\n": "by commas"}.items():
        file.write_text(content)
        done = allneg("score", toy_run.folder, file)
        assert done.code == 3
        assert message in done.err


@pytest.mark.parametrize(
    "content, message",
    [
        (b"Paris\tin\n", "facts:1: expected head, relation, tail"),
        (b"Paris\tin\tEurope\t1\nParis\tin\tFrance\n", "facts:2: expected"),
        (b"Paris\tin\tEurope\nParis\tin\tFrance\t0\n", "facts:2: expected"),
        (b"Paris\tin\tEurope\tmaybe\n", "the label is 'maybe'; write 1, 0, true or false"),
        (b"Paris\tin\tEurope\t1\t1\n", "facts:1: expected"),
        (b"Paris\tin\tEurope\t0.5\t1\nParis\tin\tFrance\n", "facts:2: expected"),
        (b"Paris\tin\tEurope\t0.5\t1\nParis\tinn\tFrance\t0.4\t1\n", "facts:2: no relation"),
        (
            b"Paris\tin\tEuropa\n",
            "facts:1: no entity is called 'Europa'; close names: 'Europe'",
        ),
        (b"\xff", "not UTF-8"),
        (b"", "facts: no facts in it"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_of_facts_is_bad_data(
    allneg: Command, toy_run: Run, tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "facts").write_bytes(content)
    done = allneg("score", toy_run.folder, tmp_path / "facts")
    assert (done.code, done.out) == (3, "")
    assert message in done.err


def test_answers_can_be_restricted(allneg: Command, toy_run: Run) -> None:
    query = ("predict", toy_run.folder, "--head", "France", "--relation", "borders", "--json")
    found = allneg(*query, "--within", "type=in:Europe").json["answers"]
    assert {answer["entity"] for answer in found} == {"France", "Spain", "Paris", "Madrid"}


def test_a_restricted_evaluation_is_named(allneg: Command, toy_run: Run) -> None:
    shown = allneg("evaluate", toy_run.folder, "--within", "seen", "--json").json
    assert shown["protocol"]["name"] == "within seen"
    assert shown["baselines"] == {}
    assert "protocol within seen: " in allneg("evaluate", toy_run.folder, "--within", "seen").out


def test_relations_can_be_ranked(allneg: Command, toy_run: Run) -> None:
    shown = allneg("evaluate", toy_run.folder, "--relations", "--json").json
    assert shown["protocol"]["name"] == "relations"
    assert (shown["count"], shown["candidates"]) == (3, 3)
    done = allneg("evaluate", toy_run.folder, "--relations")
    assert "protocol relations: filtered by train + valid + test" in done.out
    done = allneg("evaluate", toy_run.folder, "--relations", "--within", "seen")
    assert done.code == 2


def test_the_report_has_a_reliability_plot(allneg: Command, toy_run: Run) -> None:
    done = allneg("evaluate", toy_run.folder)
    assert "reliability on test" in done.out
    assert "of the score margin on 4 queries of valid" in done.out
