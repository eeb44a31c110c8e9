"""The whole way by the command line: text in, a run, a report, answers by name."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SMALL = ("--device", "cpu", "--set", "hardware.threads=1", "--set", "model.dim=16")


def allneg(*arguments: object, code: int = 0) -> tuple[str, str]:
    """What `allneg` prints on stdout and stderr when it leaves with `code`."""
    command = [sys.executable, "-m", "allneg", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def answer(*arguments: object) -> Any:
    return json.loads(allneg(*arguments, "--json")[0])


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """Thirty places in a ring; a third of the facts is told from one side only, and asked later."""
    chance = random.Random(3)
    names = [f"place {number}" for number in range(30)]
    pairs = list(zip(names, names[1:] + names[:1], strict=True))
    chance.shuffle(pairs)
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


def test_a_folder_of_text_becomes_answers_by_name(ring: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("--set", "training.epochs=60", "--set", "training.batch_size=20")
    shown, progress = allneg("train", ring, "--model", "complex", *SMALL, *settings, "--out", run)
    assert "Hits@10" in shown
    assert "ring, test: complex" in shown
    assert "valid MRR" in progress

    report = answer("evaluate", run)
    assert report == {"schema_version": 1, "run": str(run), **json.loads(_text(run, "report.json"))}
    assert report["count"] == 10
    assert report["mrr"] > 0.5  # by chance it would be some 0.13

    query = _text(ring, "test.tsv").splitlines()[0].split("\t")
    found = answer("predict", run, "--head", query[0], "--relation", "after", "--top", 30)
    assert len(found) == 30
    assert {each["entity"]: each["known"] for each in found}[query[2]] == "test"


def test_the_embedded_graph_is_learned_from_a_recipe(tmp_path: Path) -> None:
    recipe, run = tmp_path / "few.toml", tmp_path / "run"
    recipe.write_text("[training]\nepochs = 3\nbatch_size = 1000\n[evaluation]\nevery = 3\n")
    report = answer("train", "countries", "--recipe", recipe, *SMALL, "--out", run)
    assert report["mrr"] > 0.1  # by chance it would be less than 0.01
    assert report["by_relation"]["borders"]["category"] == "n-n"

    queries = tmp_path / "questions.tsv"
    queries.write_text("France\tborders\t?\n?\tcapital_of\tNorway\n")
    france, norway = answer("predict", run, "--questions", queries, "--new", "--top", 3)
    assert (france["head"], norway["tail"]) == ("France", "Norway")
    for each in (france, norway):
        assert len(each["answers"]) == 3
        assert all(found["known"] is None for found in each["answers"])


@pytest.mark.battery(2)
def test_wrong_input_is_said_in_a_line_and_leaves_nothing(ring: Path, tmp_path: Path) -> None:
    with (ring / "valid.tsv").open("a") as file:
        file.write("place 1\tbefore\n")
    printed, said = allneg("train", ring, *SMALL, "--out", tmp_path / "run", "--json", code=3)
    assert printed == ""
    assert "valid.tsv:6: " in said
    assert not (tmp_path / "run").exists()


def _text(folder: Path, name: str) -> str:
    return (folder / name).read_text()
