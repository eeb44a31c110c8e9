"""The command line from text files to a run, a report and answers by name."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from processes import start_command

SMALL = ("--device", "cpu", "--set", "hardware.threads=1", "--set", "model.dim=16")


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """Thirty nodes in a ring; for a third of the pairs, `after` is in valid or test only."""
    rng = random.Random(3)
    names = [f"node {number}" for number in range(30)]
    pairs = list(zip(names, names[1:] + names[:1], strict=True))
    rng.shuffle(pairs)
    splits: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for i, (one, other) in enumerate(pairs):
        split = "train" if i >= 10 else ("valid" if i < 5 else "test")
        splits["train"].append(f"{one}\tbefore\t{other}\n")
        splits[split].append(f"{other}\tafter\t{one}\n")
    folder = tmp_path / "ring"
    folder.mkdir()
    for split, lines in splits.items():
        (folder / f"{split}.tsv").write_text("".join(lines))
    return folder


def test_a_folder_of_text_becomes_a_run_that_answers_queries(
    ring: Path, tmp_path: Path, allneg: Callable[..., Any]
) -> None:
    run = tmp_path / "run"
    settings = ("--set", "training.epochs=60", "--set", "training.batch_size=20")
    out, err = tmp_path / "out", tmp_path / "err"
    command = ("train", ring, "--model", "complex", *SMALL, *settings, "--out", run)
    process = start_command(*command, out=out, err=err)
    process.join(120)
    assert process.exitcode == 0, err.read_text()
    assert "Hits@10" in out.read_text()
    assert "ring, test: complex" in out.read_text()
    assert "valid MRR" in err.read_text()

    report = allneg("evaluate", run, "--json").json
    assert report == {"schema_version": 1, "run": str(run), **json.loads(_text(run, "report.json"))}
    assert report["count"] == 10
    assert report["mrr"] > 0.5  # random scores give about 0.13

    query = _text(ring, "test.tsv").splitlines()[0].split("\t")
    found = allneg(
        "predict", run, "--head", query[0], "--relation", "after", "--top", 30, "--json"
    ).json["answers"]
    assert len(found) == 30
    assert {answer["entity"]: answer["known"] for answer in found}[query[2]] == "test"


def test_the_included_graph_is_trained_with_a_recipe(
    tmp_path: Path, allneg: Callable[..., Any]
) -> None:
    recipe, run = tmp_path / "few.toml", tmp_path / "run"
    recipe.write_text("[training]\nepochs = 3\nbatch_size = 1000\n[evaluation]\nevery = 3\n")
    report = allneg("train", "countries", "--recipe", recipe, *SMALL, "--out", run, "--json").json
    assert report["mrr"] > 0.1  # random scores give less than 0.01
    assert report["by_relation"]["borders"]["category"] == "n-n"

    queries = tmp_path / "questions.tsv"
    queries.write_text("France\tborders\t?\n?\tcapital_of\tNorway\n")
    france, norway = allneg(
        "predict", run, "--questions", queries, "--new", "--top", 3, "--json"
    ).json["queries"]
    assert (france["head"], norway["tail"]) == ("France", "Norway")
    for result in (france, norway):
        assert len(result["answers"]) == 3
        assert all(found["known"] is None for found in result["answers"])


@pytest.mark.battery(2)
def test_wrong_input_is_one_line_of_error_and_leaves_nothing(
    ring: Path, tmp_path: Path, allneg: Callable[..., Any]
) -> None:
    with (ring / "valid.tsv").open("a") as file:
        file.write("node 1\tbefore\n")
    done = allneg("train", ring, *SMALL, "--out", tmp_path / "run", "--json")
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
    assert "valid.tsv:6: " in done.err
    assert not (tmp_path / "run").exists()


def _text(folder: Path, name: str) -> str:
    return (folder / name).read_text()
