"""What a new user meets: typos, killed runs, read-only folders and explanations."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg import hardware
from allneg.cli.train import UNSET
from allneg.graph import read_graph
from allneg.hardware import find_device
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training.defaults import default_recipe
from processes import start_command, wait_until

Command = Callable[..., Any]  # runs `allneg` with these arguments
ROOT = Path(__file__).parents[2]


def test_info_shows_that_a_run_was_killed(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = start_command(
        "train", tiny_folder, "--out", run, "--quiet", "--set", "training.epochs=1000000",
        "--set", "evaluation.patience=1000000", "--device", "cpu",
    )  # fmt: skip
    try:
        wait_until((run / "status.json").exists, process)
        assert allneg("info", run, "--json").json["status"]["state"] == "running"
    finally:
        process.kill()
        process.join(20)
    assert allneg("info", run, "--json").json["status"]["state"] == "cut off"
    shown = " ".join(allneg("info", run).out.replace("│", " ").split())
    assert "was cut off; `allneg resume" in shown


def test_reading_the_state_of_a_killed_run_does_not_change_it(toy_copy: Run) -> None:
    toy_copy.set_status("running")
    assert toy_copy.live_status["state"] == "cut off"
    assert toy_copy.status["state"] == "running"
    with toy_copy.locked():
        assert Run.open(toy_copy.folder).live_status["state"] == "running"
    toy_copy.set_status("finished")
    assert toy_copy.live_status == {"state": "finished"}


@pytest.fixture
def recipe(tiny_folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    made = Recipe.from_tables({"data": {"name": str(tiny_folder)}, "hardware": {"device": "cpu"}})
    file.write_text(made.to_toml())
    return file


def test_a_plan_is_compared_with_the_available_memory(
    allneg: Command, recipe: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert allneg("plan", recipe).out.splitlines()[-1].endswith("MiB: fits")
    shown = allneg("plan", recipe, "--json").json
    assert shown["fits"]
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(hardware, "_CGROUP_LIMIT", limit)
    limit.write_text("1000\n")
    assert "cpu has 0.0 MiB: does not fit; lower model.dim" in allneg("plan", recipe).out
    limit.write_text(f"{sum(shown['kept'].values()) + 1}\n")
    assert "does not fit; lower training.micro_batch" in allneg("plan", recipe).out
    assert not allneg("plan", recipe, "--json").json["fits"]
    limit.write_text("max\n")
    assert allneg("plan", recipe, "--json").json["available"] == shown["available"]


def test_an_unknown_name_in_a_file_of_queries_is_reported_with_its_line(
    allneg: Command, toy_run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "asked.tsv"
    file.write_text("France\tin\t?\n?\tin\tEurop\n")
    done = allneg("predict", toy_run.folder, "--questions", file)
    assert done.code == 3
    assert {line.split("\t")[0] for line in done.out.splitlines()} == {"France"}
    assert done.err.startswith("asked.tsv:2: no entity is called 'Europ'; close names: 'Europe'\n")
    file.write_text("France\tinn\t?\n")
    assert "asked.tsv:1: no relation is called 'inn'" in allneg(
        "predict", toy_run.folder, "--questions", file
    ).err  # fmt: skip


def test_a_tiny_model_needs_some_memory(allneg: Command, tiny_folder: Path, tmp_path: Path) -> None:
    tiny = ("--set", "training.epochs=1", "--set", "model.dim=2", "--set", "training.batch_size=2")
    done = allneg("train", tiny_folder, *tiny, "--device", "cpu", "--out", tmp_path / "run")
    assert "20 triples: 1 MiB, at most 1 epoch" in done.err


def test_check_reports_what_training_does_with_duplicates(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    with (tiny_folder / "train.tsv").open("a") as file:
        file.write("France\tborders\tSpain\n")
    checked = allneg("data", "check", tiny_folder)
    shown = "1 duplicate triple in train is removed"
    assert shown in checked.err
    kept = allneg("data", "check", tiny_folder, "--set", "data.keep_duplicates=true")
    assert "1 duplicate triple in train is kept" in kept.err
    trained = allneg("train", tiny_folder, "--out", tmp_path / "run", "--set", "training.epochs=1",
                     "--set", "model.dim=2", "--device", "cpu")  # fmt: skip
    assert shown in trained.err


@pytest.mark.parametrize("kind", ["a run", "below a file"])
def test_out_is_checked_before_data_are_read(allneg: Command, toy_copy: Run, kind: str) -> None:
    out = toy_copy.folder if kind == "a run" else toy_copy.folder / "run.json" / "below"
    done = allneg("train", "no-such-data", "--out", out)
    assert done.code == (2 if kind == "a run" else 6)
    assert str(out) in done.err
    assert "no-such-data" not in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_out_is_reported_before_data_are_read(allneg: Command, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = allneg("train", "no-such-data", "--out", tmp_path / "run")
    tmp_path.chmod(0o700)
    assert done.code == 6
    assert "cannot be written" in done.err


def test_choices_ignore_case_and_typos_get_a_suggestion(allneg: Command, toy_run: Run) -> None:
    done = allneg("train", "countries", "--model", "ComplEx", "--set", "loss.name=Softmax",
                  "--print-recipe")  # fmt: skip
    assert tomllib.loads(done.out)["model"]["name"] == "complex"
    assert tomllib.loads(done.out)["loss"]["name"] == "softmax"
    typo = allneg("train", "countries", "--model", "RotateE", "--print-recipe")
    assert typo.code == 2
    assert "not 'RotateE'; did you mean rotate?" in typo.err
    assert allneg("evaluate", toy_run.folder, "--protocol", "KBC", "--split", "Test").code == 0
    command = allneg("Trian")
    assert command.code == 2
    assert "No such command 'Trian'; close names: 'train'" in command.err


def test_a_report_says_how_weights_were_selected(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    quick = ("--set", "training.epochs=1", "--set", "model.dim=2", "--device", "cpu", "--quiet")
    word = "weights selected by MRR on valid, filtered by train + valid"
    done = allneg("train", tiny_folder, "--out", tmp_path / "one", *quick)
    assert f"{word} + test\n" in done.out
    assert done.err == ""
    seen = ("--set", "evaluation.filter=seen")
    done = allneg("train", tiny_folder, "--out", tmp_path / "two", *quick, *seen)
    assert f"{word}; its MRR is not comparable with that of test\n" in done.out
    assert allneg("evaluate", tmp_path / "two").out == done.out
    for name, splits in (("one", 3), ("two", 2)):
        shown = allneg("evaluate", tmp_path / name, "--split", "valid", "--json")
        assert len(json.loads(shown.out)["protocol"]["filter"]) == splits
    alone = tmp_path / "train-only"
    alone.mkdir()
    shutil.copy(tiny_folder / "train.tsv", alone)
    shutil.copy(tiny_folder / "test.tsv", alone)
    assert word not in allneg("train", alone, "--out", tmp_path / "three", *quick).out


def test_a_printed_recipe_lists_unset_settings(allneg: Command) -> None:
    printed = allneg("train", "countries", "--print-recipe").out
    lines = printed.splitlines()
    assert "# micro_batch = …  unset: the whole batch at once" in lines
    training = lines[lines.index("[training]") : lines.index("[evaluation]")]
    assert any(line.startswith("# micro_batch") for line in training)
    graph = read_graph("countries")
    expected = default_recipe("complex", graph, find_device("auto"))
    assert Recipe.from_tables(tomllib.loads(printed)) == expected
    chosen = allneg("train", "countries", "--set", "training.micro_batch=7", "--print-recipe").out
    assert "# micro_batch" not in chosen
    assert "micro_batch = 7" in chosen


def test_every_unset_setting_has_an_explanation() -> None:
    recipe = Recipe()
    unset = {
        (part.name, field.name)
        for part in dataclasses.fields(recipe)
        for field in dataclasses.fields(getattr(recipe, part.name))
        if getattr(getattr(recipe, part.name), field.name) is None
    }
    assert unset == set(UNSET)
