from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allneg.runs import Run
from allneg.serve.loaded_run import LoadedRun

Command = Callable[..., Any]  # runs `allneg` with these arguments


def test_all_commands_use_an_extended_run(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    facts, gone, out = tmp_path / "new.tsv", tmp_path / "gone.tsv", tmp_path / "grown"
    facts.write_text("Monaco\tborders\tFrance\nMonaco\tin\tEurope\n")
    gone.write_text("Sicily\tin\tItaly\n")
    given = (facts, "--remove", gone, "--out", out, "--set", "training.epochs=2")
    done = allneg("extend", toy_run.folder, *given)
    assert done.code == 0
    assert "1 fact removed\n1 new entity, 0 new relations and 2 new facts; 1 entity of" in done.err
    assert "is empty" not in done.err
    assert "tiny, test: complex" in done.out
    query = ("predict", out, "--head", "Monaco", "--relation", "in", "--json")
    assert len(allneg(*query).json["answers"]) == 10
    assert allneg("verify", out, "--rank").code == 0
    assert allneg("complete", out, "--top", "3", "--out", tmp_path / "more.tsv").code == 0
    assert allneg("export", out, "--out", tmp_path / "copy").code == 0
    again = ("extend", tmp_path / "copy", "--remove", facts, "--out", tmp_path / "less", "--json")
    assert allneg(*again).json["run"] == str(tmp_path / "less")
    parents = allneg("info", tmp_path / "less", "--json").json["parents"]
    assert [parent["name"] for parent in parents] == ["run", "copy"]
    shown = allneg("info", tmp_path / "less").out
    assert "parent 1" in shown
    assert "run (12 entities, 19 facts), extended with --touch new" in " ".join(shown.split())


def test_the_explorer_marks_new_entities(toy_run: Run, tmp_path: Path) -> None:
    out = tmp_path / "grown"
    toy_run.extend([("Monaco", "in", "Europe")], out=out, settings={"training.epochs": 1})
    found = LoadedRun.load(out, "grown", {}, "cpu").entities("", 20).entities
    assert [item.name for item in found if item.new] == ["Monaco"]


def test_an_extension_that_cannot_be_continued_says_so(
    allneg: Command, toy_run: Run, tmp_path: Path
) -> None:
    child = toy_run.extend([("Monaco", "in", "Europe")], out=tmp_path / "cut")
    for path in (child.folder / "checkpoints").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    child.set_status("running")
    shown = " ".join(allneg("info", child.folder).out.split())
    assert "stopped before its first checkpoint" in shown
    assert "`allneg resume" not in shown
    for state in ("running", "failed", "interrupted"):
        child.set_status(state)
        used = allneg("neighbours", child.folder, "France")
        assert "delete it and run `allneg extend` again" in used.err


def test_the_printed_recipe_of_a_start_is_that_of_its_training(
    allneg: Command, tiny_folder: Path, toy_run: Run, tmp_path: Path
) -> None:
    train = ("train", tiny_folder, "--from", toy_run.folder, "--json")
    shown = allneg(*train, "--print-recipe").json["recipe"]
    run = Run.open(allneg(*train, "--out", tmp_path / "run").json["run"])
    assert shown == run.recipe.to_tables()
    assert run.recipe.training.epochs < toy_run.recipe.training.epochs
    packaged = allneg("train", "countries", "--from", "countries-demo", "--print-recipe")
    assert packaged.code == 0


def test_wrong_input_is_explained(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    facts, out = tmp_path / "new.tsv", tmp_path / "out"
    facts.write_text("Monaco\tin\tEurope\n")
    nothing = allneg("extend", toy_run.folder)
    assert (nothing.code, "or --remove FILE" in nothing.err) == (2, True)
    missing = allneg("extend", toy_run.folder, tmp_path / "none.tsv", "--out", out)
    assert (missing.code, "no such file" in missing.err) == (3, True)
    taken = allneg("extend", toy_run.folder, facts, "--out", toy_run.folder)
    assert (taken.code, "already exists" in taken.err) == (2, True)
    other = allneg("extend", toy_run.folder, facts, "--out", out, "--set", "model.dim=5")
    assert (other.code, "model.dim is 5, but rows of" in other.err) == (2, True)
    wrong = allneg("train", facts, "--from", tmp_path / "none", "--out", out)
    assert (wrong.code, "there is no such folder" in wrong.err) == (4, True)
    assert not out.exists()
