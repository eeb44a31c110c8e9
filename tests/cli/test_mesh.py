"""Commands for several processes, run in one: train, resume, plan and export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from allneg.runs import Run

Command = Callable[..., Any]
SIZE = ("--entities", 4_594_485, "--relations", 822, "--triples", 20_614_279)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text('[data]\nname = "nowhere"\n[model]\ndim = 128\n[training]\nbatch_size = 2000\n')
    return path


def test_a_mesh_must_have_as_many_processes_as_there_are(
    allneg: Command, tiny_folder: Path, tmp_path: Path
) -> None:
    done = allneg("train", tiny_folder, "--mesh", "rows=3", "--out", tmp_path / "run")
    assert done.code == 2
    assert "needs 3 processes, but 1 started; start them with `torchrun" in done.err
    assert not (tmp_path / "run").exists()


def test_a_training_that_torchrun_may_restart_needs_out(
    allneg: Command, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    done = allneg("train", tiny_folder, "--device", "cpu")
    assert done.code == 2
    assert "give --out" in done.err


def test_a_restart_continues_only_its_own_run(
    allneg: Command, toy_copy: Run, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    done = allneg("train", tiny_folder, "--device", "cpu", "--out", toy_copy.folder)
    assert done.code == 2
    assert "already exists" in done.err


def test_one_process_can_resume_a_run_of_several(allneg: Command, toy_copy: Run) -> None:
    """The mesh of the recipe counts where there are as many; one process is a mesh of its own."""
    (toy_copy.folder / "report.json").unlink()
    text = (toy_copy.folder / "recipe.toml").read_text()
    (toy_copy.folder / "recipe.toml").write_text(text + 'mesh = "rows=4"\n')
    assert Run.open(toy_copy.folder).recipe.hardware.mesh == "rows=4"
    assert allneg("resume", toy_copy.folder, "--mesh", "rows=2").code == 2
    done = allneg("resume", toy_copy.folder)
    assert done.code == 0
    assert "the recipe's mesh is rows=4; training uses rows=1,batch=1" in done.err
    assert Run.open(toy_copy.folder).finished


def test_plan_needs_no_data_if_sizes_are_given(allneg: Command, recipe: Path) -> None:
    plan = allneg("plan", recipe, *SIZE, "--mesh", "rows=8,batch=1", "--json").json
    alone = allneg("plan", recipe, *SIZE, "--on", "h200", "--json").json
    assert (plan["mesh"], alone["mesh"]) == ("rows=8,batch=1", "rows=1,batch=1")
    assert plan["device"] == "cuda"
    rows = 574_311 + -574_311 % 64
    assert plan["kept"]["tables"] == 4 * (rows * 256 + 2 * 822 * 256)
    assert alone["kept"]["tables"] > 7 * plan["kept"]["tables"]
    assert plan["peak"] < alone["peak"] <= plan["available"] == 141 * 10**9
    assert plan["fits"]


def test_plan_prints_the_memory_of_each_device_and_whether_it_fits(
    allneg: Command, recipe: Path
) -> None:
    shown = allneg("plan", recipe, *SIZE, "--mesh", "rows=2,batch=2")
    assert shown.code == 0
    assert "cuda, each of rows=2,batch=2" in " ".join(shown.out.split())
    assert "h200 has 134,468.1 MiB: fits" in shown.out
    large = allneg("plan", recipe, *SIZE, "--on", "a100", "--set", "model.dim=2000")
    assert "a100 has 76,293.9 MiB: does not fit; lower model.dim" in large.out


@pytest.mark.parametrize(
    "options, message",
    [
        (SIZE[:2], "give all of --entities, --relations and --triples"),
        ((*SIZE, "--on", "h20"), "no GPU is called 'h20'; use h200 or a100"),
        ((*SIZE[2:], "--entities", 9 * 10**400), "Invalid value for '--entities': 9000"),
        (("--relations", 10**15 + 1), "1000000000000001 is not in the range"),
        (("--triples", 10**15 + 1), "1000000000000001 is not in the range"),
        ((*SIZE, "--mesh", "rows=0"), "--mesh 'rows=0' is not a mesh; write rows=4,batch=2"),
    ],
)
def test_plan_refuses_wrong_sizes_devices_and_meshes(
    allneg: Command, recipe: Path, options: tuple[object, ...], message: str
) -> None:
    done = allneg("plan", recipe, *options)
    assert done.code == 2
    assert message in done.err


def test_export_writes_the_best_weights_of_any_run(
    allneg: Command, toy_run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "toy.safetensors"
    assert allneg("export", toy_run.folder, "--out", out).out.startswith(f"{out}\n")
    found, true = load_file(out), toy_run.tables().weights()
    assert all(tensor.equal(true[name]) for name, tensor in found.items())
    again = allneg("export", toy_run.folder, "--out", out, "--json")
    assert again.code == 2
    assert "already exists" in again.err


@pytest.mark.battery(86)
@pytest.mark.parametrize("name", ["emb.npz", "emb.pt"])
def test_export_refuses_formats_that_it_does_not_write(
    allneg: Command, toy_run: Run, tmp_path: Path, name: str
) -> None:
    done = allneg("export", toy_run.folder, "--out", tmp_path / name)
    assert done.code == 2
    assert "is not a format of export; use .npy, .parquet, .csv" in done.err
    assert not (tmp_path / name).exists()
    assert allneg("export", toy_run.folder, "--out", tmp_path / "version-0.5").code == 0


@pytest.mark.battery(80)
@pytest.mark.parametrize("command", ["train", "resume"])
def test_a_wrong_mesh_is_named_by_its_option(allneg: Command, tmp_path: Path, command: str) -> None:
    done = allneg(command, tmp_path, "--mesh", 4)
    assert (done.code, done.err) == (2, "allneg: --mesh '4' is not a mesh; write rows=4,batch=2\n")
