"""The JSON and the exit codes of all commands except `data` and `predict`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.errors import Interrupted
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.about import PACKAGED
from allneg.training import fit

Command = Callable[..., Any]  # runs `allneg` with these arguments

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


def test_quiet_training_prints_nothing_on_stderr(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    done = allneg("train", tiny_folder, *QUICK, "--out", tmp_path / "run", "-q")
    assert (done.code, done.err) == (0, "")
    assert "MRR" in done.out


def test_the_default_folder_of_a_run_is_under_runs(
    allneg: Command, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = allneg("train", tiny_folder, *QUICK, "--json")
    assert Path(done.json["run"]).parent == Path("runs")
    assert Run.open(done.json["run"]).finished


def test_flags_override_settings(allneg: Command) -> None:
    arguments = ("countries", "--set", "training.seed=3", "--seed", "4", "--device", "cpu")
    done = allneg("train", *arguments, "--print-recipe")
    assert done.code == 0
    recipe = Recipe.from_tables(tomllib.loads(done.out))
    assert (recipe.training.seed, recipe.hardware.device) == (4, "cpu")
    shown = allneg("train", *arguments, "--print-recipe", "--json").json
    assert shown == {"schema_version": 1, "recipe": recipe.to_tables()}


def test_the_json_of_a_run_with_nothing_to_rank_has_the_reason(
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
    assert "already finished" in again.err
    assert again.json == done.json
    assert (tmp_path / "run" / "status.json").stat() == before


def test_evaluate_json_has_its_documented_fields(allneg: Command, toy_run: Run) -> None:
    shown = allneg("evaluate", toy_run.folder, "--json").json
    assert {*METRICS, "by_side", "by_relation", "protocol", "schema_version"} <= shown.keys()
    assert shown["hits"].keys() == {"1", "3", "10"}
    assert shown["by_side"].keys() == {"head", "tail"}
    assert all(shown["by_side"][side].keys() == METRICS for side in shown["by_side"])
    assert shown["by_relation"].keys() == {"capital_of", "in"}
    assert all(metrics.keys() >= METRICS for metrics in shown["by_relation"].values())
    assert shown["count"] == 6
    assert shown["mrr"] == toy_run.report.mrr
    assert list(shown["baselines"]) == ["frequency", "rules", "combined"]
    assert shown["baselines"] == toy_run.report.to_json()["baselines"]
    for table in shown["baselines"].values():
        assert table.keys() == {*METRICS, "by_side", "by_relation"}
        assert table["by_relation"].keys() == shown["by_relation"].keys()
    assert shown["protocol"]["name"] == "allneg"
    assert shown["protocol"]["split"] == "test"


def test_a_report_shows_baselines_and_both_sides_of_each_relation(
    allneg: Command, toy_copy: Run
) -> None:
    report = toy_copy.report
    lines = allneg("evaluate", toy_copy.folder).out.splitlines()
    for name, table in report.baselines.items():
        (line,) = [line for line in lines if f"baseline: {name}" in line]
        assert f"{table['mrr']:.4f}" in line
    behind = 0
    for side in ("tail", "head"):
        (line,) = [line for line in lines if "capital_of" in line and f"? {side}" in line]
        assert f"{report.by_relation['capital_of'][side]['mrr']:.4f}" in line
        assert f"{report.best_baseline('capital_of', side):.4f}" in line
        for relation, table in report.by_relation.items():
            best = report.best_baseline(relation, side)
            behind += best is not None and best >= table[side]["mrr"]
    assert f"a baseline is as good or better in {behind} of 4 rows by relation" in lines
    # The report of an earlier version.
    path = toy_copy.folder / "report.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "baselines": {}}))
    earlier = allneg("resume", toy_copy.folder).out
    assert "baseline:" not in earlier
    assert "baseline ┃" not in earlier


@pytest.mark.parametrize("name", ["allneg", "kbc", "libkge", "pykeen"])
def test_evaluate_uses_the_given_protocol_and_split(
    allneg: Command, toy_run: Run, name: str
) -> None:
    arguments = (toy_run.folder, "--split", "valid", "--protocol", name)
    shown = allneg("evaluate", *arguments, "--json").json
    assert (shown["protocol"]["name"], shown["protocol"]["split"]) == (name, "valid")
    assert shown["count"] == 4
    assert f"protocol {name}: " in allneg("evaluate", *arguments).out


def test_the_report_table_has_every_part(allneg: Command, toy_run: Run) -> None:
    done = allneg("evaluate", toy_run.folder)
    assert done.code == 0
    for part in ("tiny, test: complex", "? tail", "? head", "capital_of", "Hits@10", "12 candid"):
        assert part in done.out


def test_info_prints_data_recipe_and_progress(allneg: Command, toy_run: Run) -> None:
    shown = allneg("info", toy_run.folder, "--json").json
    assert shown["schema_version"] == 1
    assert shown["status"]["state"] == "finished"
    assert shown["data"] == {
        "name": "tiny", "entities": 12, "relations": 3, "train": 20, "valid": 2, "test": 3,
    }  # fmt: skip
    assert Recipe.from_tables(shown["recipe"]) == toy_run.recipe
    assert shown["epochs"] == len(toy_run.metrics())
    assert (shown["split"], shown["mrr"]) == ("test", toy_run.report.mrr)
    assert {"python", "torch"} <= shown["environment"].keys()
    table = allneg("info", toy_run.folder)
    assert table.code == 0
    rows = [line.split("│")[1:3] for line in table.out.splitlines() if line.startswith("│")]
    assert [[key.strip(), value.strip()] for key, value in rows][:3] == [
        ["state", "finished"],
        ["model", "complex"],
        ["data", "tiny"],
    ]
    assert 'name = "complex"' in table.out


def test_resuming_a_finished_run_prints_its_report(allneg: Command, toy_copy: Run) -> None:
    done = allneg("resume", toy_copy.folder, "--json")
    assert done.code == 0
    assert done.json["mrr"] == toy_copy.report.mrr


def test_resume_restores_the_status_of_a_finished_run(allneg: Command, toy_copy: Run) -> None:
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
    "arguments, code, shown",
    [
        (["train"], 2, "Missing argument"),
        (["tran"], 2, "No such command"),
        (["train", "countries", "--epochs", "3"], 2, "It is a setting: --set training.epochs=…"),
        (["train", "countries", "--set", "training.epoch=3"], 2, "mean training.epochs?"),
        (["train", "countries", "--set", "epochs=3"], 2, "write part.field=value"),
        (["train", "countries", "--model", "complx"], 2, "did you mean complex?"),
        (
            ["train", "countries", "--recipe", "absent.toml"],
            2,
            "absent.toml: there is no such file or shipped recipe",
        ),
        (
            ["train", "countries", "--device", "cuda:99", "--out", "new"],
            2,
            "cuda:99 is not available",
        ),
        (["train", "countries", "--seed", "-1"], 2, "training.seed must be at least 0"),
        (["train", "countris"], 3, "close names: 'countries'"),
        (["train", "no/such/folder"], 3, "no such file or folder"),
        (["audit", PACKAGED["countries-demo"], "--out", "new.tsv"], 3, "a run, not a graph"),
        (["evaluate", "no/such/run"], 4, "there is no such folder"),
        (["resume", "no/such/run"], 4, "there is no such folder"),
        (["info", "countries"], 4, "close names: 'countries-demo'; `allneg train"),
        (["info", "no/such/run"], 4, "there is no such folder"),
        (["predict", "no/such/run", "--head", "a", "--relation", "b"], 4, "no such folder"),
        (["predict", "no/such/run", "--head", "a"], 2, "give two of --head, --relation"),
        (["evaluate", "no/such/run", "--split", "tset"], 2, "'tset' is not one of"),
        (["evaluate", "no/such/run", "--protocol", "mine"], 2, "'mine' is not one of"),
    ],
)
def test_an_error_is_one_message_with_its_exit_code(
    allneg: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    shown: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = allneg(*arguments, *([] if "--json" in arguments or len(arguments) < 2 else ["--json"]))
    assert done.code == code
    assert shown in done.err
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
def test_an_unwritable_folder_has_exit_code_6(allneg: Command, tiny_folder: Path) -> None:
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


def test_info_prints_the_best_epoch_of_a_diverged_run(allneg: Command, tmp_path: Path) -> None:
    wild = (
        "optimizer.name=sgd",
        "optimizer.schedule=step",
        "optimizer.every=2",
        "optimizer.decay=1e30",
        "evaluation.every=2",
        "training.epochs=10",
        "model.dim=4",
    )
    flags = [word for setting in wild for word in ("--set", setting)]
    assert allneg("train", "countries", "--out", tmp_path / "run", *flags).code == 5
    shown = allneg("info", tmp_path / "run", "--json").json
    assert shown["mrr"] is None
    assert shown["best_epoch"] == 2
    table = " ".join(allneg("info", tmp_path / "run").out.split())
    assert f"best valid MRR, epoch 2 │ {shown['valid_mrr']:.4f}" in table
    assert "is not finite" in table


def test_info_labels_the_mrr_with_its_split(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(tiny_folder, tmp_path / "data")
    next(data.glob("test.*")).unlink()
    allneg("train", data, *QUICK, "--out", tmp_path / "run", "-q")
    assert allneg("info", tmp_path / "run", "--json").json["split"] == "valid"
    assert "valid MRR" in allneg("info", tmp_path / "run").out


def test_training_without_a_report_prints_the_folder(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(next(tiny_folder.glob("train.*")), data)
    done = allneg("train", data, *QUICK, "--out", tmp_path / "run", "-q")
    assert done.err.endswith(f"so there is no report\nrun: {tmp_path / 'run'}\n")


def test_missing_weights_have_exit_code_4(allneg: Command, toy_copy: Run) -> None:
    shutil.rmtree(toy_copy.folder / "checkpoints")
    (toy_copy.folder / "checkpoints").mkdir()
    done = allneg("evaluate", toy_copy.folder)
    assert (done.code, done.out) == (4, "")
    assert "its weights are missing; copy them from a backup" in done.err
    done = allneg("verify", toy_copy.folder)
    assert done.code == 4


@pytest.mark.parametrize("file", ["report.json", "status.json"])
def test_verify_finds_a_missing_file(allneg: Command, toy_copy: Run, file: str) -> None:
    (toy_copy.folder / file).unlink()
    done = allneg("verify", toy_copy.folder, "--json")
    assert done.code == 4
    assert f"{file}: missing" in done.out


def test_a_run_that_diverged_before_any_checkpoint_cannot_be_evaluated(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    wild = ("--set", "optimizer.name=sgd", "--set", "optimizer.learning_rate=1e30")
    assert allneg("train", tiny_folder, *QUICK, *wild, "--out", tmp_path / "run", "-q").code == 5
    done = allneg("evaluate", tmp_path / "run")
    assert done.code == 4
    assert "diverged before any weights were saved; train again with a lower" in done.err
    assert "not finished" not in done.err


def test_every_command_notes_that_a_run_is_unfinished(
    allneg: Command, toy_copy: Run, toy_run: Run
) -> None:
    (toy_copy.folder / "report.json").unlink()
    toy_copy.set_status("interrupted")
    shown = f"{toy_copy.folder} is not finished (interrupted): these are its best weights so far\n"
    assert allneg("evaluate", toy_copy.folder).err == shown
    assert allneg("compare", toy_copy.folder, toy_run.folder).err == shown
    asked = ("--head", "France", "--relation", "borders")
    assert allneg("predict", toy_copy.folder, *asked).err == shown


def test_tables_that_do_not_fit_are_refused_before_a_folder_is_made(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    large = ("--set", "model.dim=99999999999")
    done = allneg("train", tiny_folder, *QUICK, *large, "--out", tmp_path / "run", "-q")
    assert done.code == 6
    assert "GiB, but cpu has " in done.err
    assert "lower model.dim" in done.err
    assert not (tmp_path / "run").exists()


def test_a_file_at_out_is_refused(allneg: Command, tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    done = allneg("train", tiny_folder, *QUICK, "--out", tmp_path / "run", "-q")
    assert (done.code, done.err) == (
        2,
        f"allneg: {tmp_path / 'run'}: exists and is not a folder; choose another --out\n",
    )


@pytest.mark.battery(84)
@pytest.mark.parametrize("command", ["verify", "export"])
def test_a_folder_that_does_not_exist_is_named(
    allneg: Command, tmp_path: Path, command: str
) -> None:
    more = ("--out", tmp_path / "out") if command == "export" else ()
    done = allneg(command, tmp_path / "nowhere", *more)
    assert (done.code, done.out) == (4, "")
    assert "nowhere: not a run (there is no such folder)" in done.err


@pytest.mark.battery(85)
def test_info_counts_the_steps_of_an_epoch_that_was_interrupted(
    allneg: Command, made: Callable[..., Run]
) -> None:
    run = made()
    with pytest.raises(Interrupted):
        fit(run, stopped_by=lambda: signal.SIGINT)
    saved = run.last()
    assert saved is not None
    shown = allneg("info", run.folder, "--json").json
    assert (shown["epochs"], shown["step"]) == (0, 1)
    assert shown["seconds"] == saved.state.seconds > 0
    assert "0 and 1 step" in allneg("info", run.folder).out
    fit(run)
    shown = allneg("info", run.folder, "--json").json
    assert (shown["epochs"], shown["step"]) == (6, 0)


def test_a_folder_that_was_stopped_before_it_was_a_run_is_to_be_deleted(
    allneg: Command, toy_copy: Run
) -> None:
    (toy_copy.folder / "run.json").unlink()
    done = allneg("resume", toy_copy.folder)
    assert done.code == 4
    assert "delete it" not in done.err  # a trained run, whose run.json is lost
    (toy_copy.folder / "metrics.jsonl").unlink()
    done = allneg("resume", toy_copy.folder)
    assert "it was stopped while it was made: delete it and run the command again" in done.err


def test_a_file_is_no_run(allneg: Command, tmp_path: Path) -> None:
    file = tmp_path / "facts.tsv"
    file.touch()
    done = allneg("info", file)
    assert (done.code, done.err) == (4, f"allneg: {file}: a file, not the folder of a run\n")


def test_unreadable_runs_and_files_are_explained(
    allneg: Command, toy_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    file = tmp_path / "questions.jsonl"
    file.touch(mode=0o000)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)  # root may read any file
        done = allneg("evaluate", toy_run.folder, "--queries", file)
        assert (done.code, f"{file}: cannot be read (Permission denied)" in done.err) == (3, True)
    monkeypatch.setattr(os, "access", lambda path, mode: path != toy_run.folder)
    done = allneg("info", toy_run.folder)
    assert (done.code, "cannot be read (Permission denied)" in done.err) == (4, True)
