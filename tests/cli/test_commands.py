"""What scripts rely on: the JSON and the exit code of every command but `data` and `predict`."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.recipe import Recipe
from allneg.runs import Run

Command = Callable[..., Any]  # arguments of `allneg` to how it ended

QUICK = (
    "--device", "cpu", "--set", "model.dim=4", "--set", "training.epochs=2",
    "--set", "hardware.threads=1",
)  # fmt: skip
METRICS = {"mrr", "mr", "hits", "count"}


def test_train_prints_the_report_of_the_run(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = allneg("train", tiny_folder, "--model", "transe", *QUICK, "--out", out, "--json")
    assert done.code == 0
    run = Run.open(out)
    assert done.json == {"schema_version": 1, "run": str(out), **run.report.to_json()}
    assert run.recipe.model.name == "transe"
    assert "valid MRR" in done.err


def test_quiet_training_says_nothing_on_stderr(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    done = allneg("train", tiny_folder, *QUICK, "--out", tmp_path / "run", "-q")
    assert (done.code, done.err) == (0, "")
    assert "MRR" in done.out


def test_a_run_without_a_place_is_put_under_runs(
    allneg: Command, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = allneg("train", tiny_folder, *QUICK, "--json")
    assert Path(done.json["run"]).parent == Path("runs")
    assert Run.open(done.json["run"]).finished


def test_flags_count_above_settings(allneg: Command) -> None:
    arguments = ("countries", "--set", "training.seed=3", "--seed", "4", "--device", "cpu")
    done = allneg("train", *arguments, "--print-recipe")
    assert done.code == 0
    recipe = Recipe.from_tables(tomllib.loads(done.out))
    assert (recipe.training.seed, recipe.hardware.device) == (4, "cpu")
    said = allneg("train", *arguments, "--print-recipe", "--json").json
    assert said == {"schema_version": 1, "recipe": recipe.to_tables()}


def test_a_run_with_nothing_to_rank_says_so_in_json(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    for split in ("valid", "test"):
        (tiny_folder / f"{split}.tsv").unlink()
    done = allneg("train", tiny_folder, *QUICK, "--out", tmp_path / "run", "--json")
    assert done.code == 0
    assert done.json["mrr"] is None
    assert "no valid or test" in done.json["reason"]
    before = (tmp_path / "run" / "status.json").stat()
    again = allneg("resume", tmp_path / "run", "--json")
    assert "finished already" in again.err
    assert again.json == done.json
    assert (tmp_path / "run" / "status.json").stat() == before


def test_evaluate_has_the_fields_that_scripts_rely_on(allneg: Command, toy_run: Run) -> None:
    said = allneg("evaluate", toy_run.folder, "--json").json
    assert {*METRICS, "by_side", "by_relation", "protocol", "schema_version"} <= said.keys()
    assert said["hits"].keys() == {"1", "3", "10"}
    assert said["by_side"].keys() == {"head", "tail"}
    assert all(said["by_side"][side].keys() == METRICS for side in said["by_side"])
    assert said["by_relation"].keys() == {"capital_of", "in"}
    assert all(each.keys() >= METRICS for each in said["by_relation"].values())
    assert said["count"] == 6
    assert said["mrr"] == toy_run.report.mrr
    assert said["protocol"]["name"] == "allneg"
    assert said["protocol"]["split"] == "test"


@pytest.mark.parametrize("name", ["allneg", "kbc", "libkge", "pykeen"])
def test_evaluate_ranks_by_the_protocol_and_split_asked_for(
    allneg: Command, toy_run: Run, name: str
) -> None:
    arguments = (toy_run.folder, "--split", "valid", "--protocol", name)
    said = allneg("evaluate", *arguments, "--json").json
    assert (said["protocol"]["name"], said["protocol"]["split"]) == (name, "valid")
    assert said["count"] == 4
    assert f"protocol {name}: " in allneg("evaluate", *arguments).out


def test_the_table_of_a_report_names_every_part(allneg: Command, toy_run: Run) -> None:
    done = allneg("evaluate", toy_run.folder)
    assert done.code == 0
    for part in ("tiny, test: complex", "? tail", "? head", "capital_of", "Hits@10", "12 candid"):
        assert part in done.out


def test_info_says_what_a_run_is(allneg: Command, toy_run: Run) -> None:
    said = allneg("info", toy_run.folder, "--json").json
    assert said["schema_version"] == 1
    assert said["status"]["state"] == "finished"
    assert said["data"] == {
        "name": "tiny", "entities": 12, "relations": 3, "train": 20, "valid": 2, "test": 3,
    }  # fmt: skip
    assert Recipe.from_tables(said["recipe"]) == toy_run.recipe
    assert said["epochs"] == len(toy_run.metrics())
    assert (said["split"], said["mrr"]) == ("test", toy_run.report.mrr)
    assert {"python", "torch"} <= said["environment"].keys()
    table = allneg("info", toy_run.folder)
    assert table.code == 0
    assert "finished" in table.out
    assert 'name = "complex"' in table.out


def test_resuming_a_finished_run_prints_its_report(allneg: Command, toy_copy: Run) -> None:
    done = allneg("resume", toy_copy.folder, "--json")
    assert done.code == 0
    assert done.json["mrr"] == toy_copy.report.mrr


def test_resume_says_anew_that_a_run_is_finished(allneg: Command, toy_copy: Run) -> None:
    (toy_copy.folder / "status.json").unlink()
    done = allneg("resume", toy_copy.folder, "--json")
    assert done.code == 0
    assert done.json["mrr"] == toy_copy.report.mrr
    assert toy_copy.status["state"] == "finished"


def test_resume_trains_a_run_to_its_end(allneg: Command, toy_copy: Run) -> None:
    before = toy_copy.report.to_json()
    (toy_copy.folder / "report.json").unlink()
    done = allneg("resume", toy_copy.folder, "--json")
    assert done.code == 0
    assert {key: done.json[key] for key in before} == before


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["train"], 2, "Missing argument"),
        (["tran"], 2, "No such command"),
        (["train", "countries", "--epochs", "3"], 2, "No such option"),
        (["train", "countries", "--set", "training.epoch=3"], 2, "mean training.epochs?"),
        (["train", "countries", "--set", "epochs=3"], 2, "write part.field=value"),
        (["train", "countries", "--model", "complx"], 2, "must be one of complex"),
        (["train", "countries", "--recipe", "absent.toml"], 2, "absent.toml: there is no such"),
        (["train", "countries", "--device", "cuda:99", "--out", "new"], 2, "no cuda:99 here"),
        (["train", "countries", "--seed", "-1"], 2, "training.seed must not be negative"),
        (["train", "countris"], 3, "close names: 'countries'"),
        (["train", "no/such/folder"], 3, "no such file or folder"),
        (["evaluate", "no/such/run"], 4, "not a run"),
        (["resume", "no/such/run"], 4, "not a run"),
        (["info", "no/such/run"], 4, "not a run"),
        (["predict", "no/such/run", "--head", "a", "--relation", "b"], 4, "not a run"),
        (["predict", "no/such/run", "--head", "a"], 2, "say --relation"),
        (["evaluate", "no/such/run", "--split", "tset"], 2, "'tset' is not one of"),
        (["evaluate", "no/such/run", "--protocol", "mine"], 2, "'mine' is not one of"),
    ],
)
def test_a_mistake_is_said_in_a_line_and_has_its_exit_code(
    allneg: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = allneg(*arguments, *([] if "--json" in arguments or len(arguments) < 2 else ["--json"]))
    assert done.code == code
    assert said in done.err
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.battery(26)
def test_a_damaged_checkpoint_has_exit_code_4(allneg: Command, toy_copy: Run) -> None:
    (weights,) = toy_copy.folder.glob("checkpoints/*/tables.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    for command in (["evaluate"], ["predict", "--head", "France", "--relation", "borders"]):
        done = allneg(command[0], toy_copy.folder, *command[1:])
        assert done.code == 4
        assert "tables.safetensors" in done.err


@pytest.mark.battery(30)
def test_a_diverged_training_has_exit_code_5(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    wild = ("optimizer.name=sgd", "optimizer.learning_rate=1e30", "model.scale=1")
    flags = [part for setting in wild for part in ("--set", setting)]
    done = allneg("train", tiny_folder, *QUICK, *flags, "--out", tmp_path / "run", "--json")
    assert done.code == 5
    assert "has diverged" in done.err
    assert done.out == ""


@pytest.mark.battery(28)
def test_a_place_that_cannot_be_written_has_exit_code_6(allneg: Command, tiny_folder: Path) -> None:
    done = allneg("train", tiny_folder, *QUICK, "--out", tiny_folder / "train.tsv" / "run")
    assert done.code == 6
    assert "cannot be written" in done.err


@pytest.mark.battery(35)
def test_a_run_in_use_is_not_resumed(allneg: Command, toy_copy: Run) -> None:
    (toy_copy.folder / "report.json").unlink()
    with toy_copy.locked():
        done = allneg("resume", toy_copy.folder)
    assert done.code == 2
    assert "is being trained by process" in done.err


def test_info_says_how_far_a_run_came_that_has_diverged(allneg: Command, tmp_path: Path) -> None:
    wild = (
        "optimizer.name=sgd",
        "optimizer.schedule=step",
        "optimizer.every=2",
        "optimizer.decay=1e30",
        "evaluation.every=2",
        "training.epochs=10",
        "model.dim=4",
    )
    flags = [word for each in wild for word in ("--set", each)]
    assert allneg("train", "countries", "--out", tmp_path / "run", *flags).code == 5
    said = allneg("info", tmp_path / "run", "--json").json
    assert said["mrr"] is None
    assert said["best_epoch"] == 2
    table = " ".join(allneg("info", tmp_path / "run").out.split())
    assert f"best valid MRR, epoch 2 │ {said['valid_mrr']:.4f}" in table
    assert "is not finite" in table


def test_info_does_not_call_valids_mrr_tests(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(tiny_folder, tmp_path / "data")
    next(data.glob("test.*")).unlink()
    allneg("train", data, *QUICK, "--out", tmp_path / "run", "-q")
    assert allneg("info", tmp_path / "run", "--json").json["split"] == "valid"
    assert "valid MRR" in allneg("info", tmp_path / "run").out


def test_a_run_without_a_report_is_named(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(next(tiny_folder.glob("train.*")), data)
    done = allneg("train", data, *QUICK, "--out", tmp_path / "run", "-q")
    assert done.err.endswith(f"so there is no report\nrun: {tmp_path / 'run'}\n")


def test_weights_that_are_gone_are_missed(allneg: Command, toy_copy: Run) -> None:
    shutil.rmtree(toy_copy.folder / "checkpoints")
    (toy_copy.folder / "checkpoints").mkdir()
    done = allneg("evaluate", toy_copy.folder)
    assert (done.code, done.out) == (4, "")
    assert "its weights are gone; take them from a copy" in done.err
    done = allneg("verify", toy_copy.folder)
    assert done.code == 4


@pytest.mark.parametrize("file", ["report.json", "status.json"])
def test_a_finished_run_that_lost_a_file_is_not_whole(
    allneg: Command, toy_copy: Run, file: str
) -> None:
    (toy_copy.folder / file).unlink()
    done = allneg("verify", toy_copy.folder, "--json")
    assert done.code == 4
    assert f"{file}: missing" in done.out


def test_who_diverged_at_once_has_no_weights_and_should_train_anew(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    wild = ("--set", "optimizer.name=sgd", "--set", "optimizer.learning_rate=1e30")
    assert allneg("train", tiny_folder, *QUICK, *wild, "--out", tmp_path / "run", "-q").code == 5
    done = allneg("evaluate", tmp_path / "run")
    assert done.code == 4
    assert "diverged before any weights were saved; train again with a lower" in done.err
    assert "not finished" not in done.err


def test_an_unfinished_run_is_called_so_wherever_it_is_asked(
    allneg: Command, toy_copy: Run, toy_run: Run
) -> None:
    (toy_copy.folder / "report.json").unlink()
    toy_copy.set_status("interrupted")
    said = f"{toy_copy.folder} is not finished (interrupted): these are its best weights so far\n"
    assert allneg("evaluate", toy_copy.folder).err == said
    assert allneg("compare", toy_copy.folder, toy_run.folder).err == said
    asked = ("--head", "France", "--relation", "borders")
    assert allneg("predict", toy_copy.folder, *asked).err == said


def test_tables_that_fit_nowhere_are_refused_before_there_is_a_folder(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    large = ("--set", "model.dim=99999999999")
    done = allneg("train", tiny_folder, *QUICK, *large, "--out", tmp_path / "run", "-q")
    assert done.code == 6
    assert "rows alone take 8,940.7 GiB, and cpu has " in done.err
    assert not (tmp_path / "run").exists()


def test_a_file_in_the_place_of_a_run_is_called_one(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("mine")
    done = allneg("train", tiny_folder, *QUICK, "--out", tmp_path / "run", "-q")
    assert (done.code, done.err) == (
        2,
        f"allneg: {tmp_path / 'run'}: exists and is not a folder; choose another --out\n",
    )
