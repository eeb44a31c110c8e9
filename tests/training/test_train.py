from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import allneg
from allneg.errors import DataError, OutOfMemoryError, RecipeError, ResourceError, UsageError
from allneg.graph import Graph, read_graph
from allneg.kernels.engines import describe_engine
from allneg.recipe import Recipe
from allneg.runs import disk, new_folder
from allneg.scoring.distributed import Group, World
from allneg.training import Callbacks, planned, train

QUICK = ("model.dim=4", "training.epochs=2", "hardware.threads=1", "hardware.device=cpu")


def test_one_call_trains_and_another_answers(tiny_folder: Path, tmp_path: Path) -> None:
    run = allneg.train(tiny_folder, model="distmult", settings=QUICK, out=tmp_path / "run")
    assert run.recipe.model.name == "distmult"
    assert run.recipe.data.name == str(tiny_folder)
    assert 0 < run.report.mrr <= 1
    answers = allneg.load(run.folder, device="cpu").tails("France", "borders", k=5)
    assert len(answers) == 5


def test_arguments_count_above_settings_and_settings_above_the_recipe(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[model]\nname = 'simple'\ndim = 7\n[training]\nseed = 5\n[data]\nname = 'x'\n")
    plan = planned("tiny", model="rotate", recipe=file, settings=["model.dim=9"])
    assert (plan.data.name, plan.model.name, plan.model.dim) == ("tiny", "rotate", 9)
    assert plan.training.seed == 5
    assert planned("tiny", recipe=plan) == plan
    defaults = planned("countries", settings=["model.dim=9"])
    assert defaults == Recipe().with_settings(["model.dim=9"])


@pytest.mark.parametrize(
    ("setting", "switch", "value"),
    [
        ("loss.max_answers=9", "loss.grouped", "false"),
        ("optimizer.decay=0.5", "optimizer.schedule", '"none"'),
        ("optimizer.every=3", "optimizer.schedule", '"cosine"'),
        ("regularizer.weight=0.5", "regularizer.name", '"none"'),
    ],
)
def test_a_setting_that_has_no_effect_is_refused_where_a_user_gives_it(
    tmp_path: Path, setting: str, switch: str, value: str
) -> None:
    off, name = [f"{switch}={value}"], setting.partition("=")[0]
    plan = Recipe().with_settings(off)
    with pytest.raises(RecipeError, match=f"^recipe: {name} has no effect with {switch} {value}$"):
        planned("tiny", recipe=plan, settings=[setting])
    both = planned("tiny", recipe=plan, settings=[setting, *off])  # a saved recipe has both
    file = tmp_path / "recipe.toml"
    file.write_text(both.to_toml())
    assert planned("tiny", recipe=file) == both


def test_a_setting_without_effect_in_a_recipe_or_beside_defaults_is_refused(
    tiny_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[optimizer]\ndecay = 0.5\n")
    with pytest.raises(RecipeError, match=r"mine\.toml: optimizer\.decay has no effect"):
        planned("tiny", recipe=file)
    assert planned("tiny", recipe=file, settings={"optimizer.schedule": "step"})
    settings = {"regularizer.weight": 0.1}
    with pytest.raises(RecipeError, match=r"regularizer\.weight has no effect"):
        planned(tiny_folder, model="transe", settings=settings)
    assert planned("tiny", model="transe", settings={"regularizer.weight": 0})
    settings = {"optimizer.schedule": "none"}  # the defaults of rotate have a schedule
    assert planned("tiny", model="rotate", settings=settings).optimizer.decay == 0.2


def test_a_limit_of_answers_is_accepted_where_the_device_decides_about_groups(
    tiny_graph: Graph,
) -> None:
    settings = {"loss.max_answers": 9, "hardware.device": "cpu"}
    assert not planned("tiny", settings=settings, graph=tiny_graph).loss.grouped


def test_settings_that_name_other_data_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"data\.name is 'wn18' in the settings, but DATA is 'tiny'"
    ):
        planned("tiny", settings=["data.name=wn18"])
    assert planned("tiny", settings=["data.name=tiny"]).data.name == "tiny"


def test_settings_that_name_another_model_are_refused() -> None:
    settings = ["model.name=complex"]
    with pytest.raises(
        UsageError, match=r"model\.name is 'complex' in the settings, but the model is 'transe'"
    ):
        planned("tiny", model="transe", settings=settings)
    assert planned("tiny", model="complex", settings=settings).model.name == "complex"


def test_the_mistakes_of_file_and_settings_are_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("model.dimm = 7\n")
    with pytest.raises(RecipeError) as caught:
        planned("tiny", model="rotat", recipe=file, settings=["training.epochs=0"])
    text = str(caught.value)
    assert all(word in text for word in ("model.dimm", "'rotat'", "training.epochs"))


@pytest.mark.battery(32)
def test_a_missing_device_is_refused_before_anything_is_written(
    tiny_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        RecipeError, match=r"cuda:99 is not available on this machine; use one of: auto, cpu"
    ) as caught:
        train(tiny_folder, settings=["hardware.device=cuda:99"], out=tmp_path / "run")
    assert caught.value.exit_code == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.battery(80)
@pytest.mark.parametrize(
    "settings, message",
    [
        (["hardware.engine=gpu"], "hardware.engine is 'gpu', but"),
        (["hardware.engine=compiled"], "hardware.engine is 'compiled', but there is no C compiler"),
        (["hardware.mesh=rows=2"], "needs 2 processes, but 1 started"),
        (["regularizer.weight=1e300"], r"regularizer.weight must be at most 3e\+38"),
    ],
)
def test_what_cannot_work_on_this_machine_is_refused_before_the_folder_exists(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: list[str],
    message: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(RecipeError, match=message):
        train(tiny_folder, settings=[*QUICK, *settings], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert train(tiny_folder, settings=QUICK, out=tmp_path / "run").finished


@pytest.mark.battery(80)
@pytest.mark.parametrize(
    "settings, lower",
    [
        (["model.dim=1000000"], "model.dim"),  # the initial values of 4,096 rows
        (["model.dim=1000000000"], "model.dim"),
        (["loss.negatives=shared", "loss.n_negatives=1000000000000"], "training.micro_batch or"),
        (["loss.negatives=per_query", "loss.n_negatives=1000000000"], "training.micro_batch or"),
    ],
)
def test_a_training_that_does_not_fit_in_memory_is_refused_before_the_folder_exists(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: list[str],
    lower: str,
) -> None:
    monkeypatch.setattr("allneg.training.memory.memory", lambda device: 1 << 34)
    with pytest.raises(OutOfMemoryError, match=rf"GiB, but cpu has 16\.0; lower {lower}"):
        train(tiny_folder, settings=[*QUICK, *settings], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.battery(80)
def test_a_batch_is_no_larger_than_an_epoch(tiny_folder: Path, tmp_path: Path) -> None:
    huge = [*QUICK, "training.batch_size=1000000000000"]
    assert train(tiny_folder, settings=huge, out=tmp_path / "run").finished


@pytest.mark.battery(80)
@pytest.mark.parametrize(
    "rows, settings, message",
    [
        (13, [], "12 entities are too few for 13 processes"),
        (2, ["hardware.table=host"], "hardware.table host is for a single process"),
    ],
)
def test_what_several_processes_cannot_do_is_refused_before_the_folder_exists(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    settings: list[str],
    message: str,
) -> None:
    @contextlib.contextmanager
    def join_processes(*_: object) -> Iterator[World]:
        yield World(rows=Group(size=rows))

    monkeypatch.setattr(import_module("allneg.training.train"), "join_processes", join_processes)
    with pytest.raises(RecipeError, match=message):
        train(tiny_folder, settings=[*QUICK, *settings], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.battery(81)
def test_a_disk_without_room_for_a_checkpoint_is_reported_before_the_folder_exists(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allneg.runs.disk.free_bytes", lambda folder: 1_234)
    with pytest.raises(ResourceError, match=r"[\d,]+ bytes are needed, 1,234 are free"):
        train(tiny_folder, settings=QUICK, out=tmp_path / "deep" / "run")
    assert not (tmp_path / "deep").exists()


@pytest.mark.battery(81)
def test_only_a_run_that_was_created_can_be_resumed_after_a_full_disk(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, parts: object) -> None:
        if failing in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, parts)  # type: ignore[arg-type]

    real = disk.write
    monkeypatch.setattr(disk, "write", full)
    failing = "recipe.toml"
    with pytest.raises(ResourceError, match="the disk is full") as caught:
        train(tiny_folder, settings=QUICK, out=tmp_path / "run")
    assert "resume" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    failing = "tables"
    with pytest.raises(
        ResourceError, match=r"is full .*\nThen `allneg resume .*run` continues the run"
    ):
        train(tiny_folder, settings=QUICK, out=tmp_path / "run")
    assert (tmp_path / "run" / "run.json").exists()


def test_an_extension_without_a_checkpoint_is_not_continued_after_a_full_disk(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, parts: object) -> None:
        if "tables" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, parts)  # type: ignore[arg-type]

    run, real = train(tiny_folder, settings=QUICK, out=tmp_path / "run"), disk.write
    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(
        ResourceError, match=r"is full .*\n.*delete it and run `allneg extend` again"
    ):
        run.extend([("Sealand", "borders", "France")], out=tmp_path / "grown")


def test_bad_data_leaves_no_folder(tiny_folder: Path, tmp_path: Path) -> None:
    (tiny_folder / "valid.tsv").write_text("one\ttwo\n")
    with pytest.raises(DataError, match=r"valid\.tsv:1"):
        train(tiny_folder, settings=QUICK, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_average_without_valid_leaves_no_folder(tiny_folder: Path, tmp_path: Path) -> None:
    (tiny_folder / "valid.tsv").write_text("")
    with pytest.raises(RecipeError, match=r"training\.average needs valid triples"):
        train(tiny_folder, settings=[*QUICK, "training.average=0.9"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_readers_notes_are_reported(tiny_folder: Path, tmp_path: Path) -> None:
    said: list[str] = []

    class Listener(Callbacks):
        def on_message(self, line: str) -> None:
            said.append(line)

    with (tiny_folder / "train.tsv").open("a") as file:
        file.write("France\tborders\tSpain\n")
    train(tiny_folder, settings=QUICK, out=tmp_path / "run", callbacks=Listener())
    assert any("1 duplicate triple in train" in line for line in said)


def test_a_name_that_is_taken_while_data_is_read_is_left_alone(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def meanwhile(*read: Any) -> Graph:
        (new_folder(planned(tiny_folder)) / "somebody's").mkdir(parents=True)
        return read_graph(*read)

    monkeypatch.setattr(import_module("allneg.training.train"), "read_graph", meanwhile)
    run = train(tiny_folder, settings=QUICK)
    assert run.finished
    assert run.folder.name.endswith("_complex_2")


def test_a_training_leaves_torch_as_it_was(tiny_folder: Path, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    settings = [*QUICK, "hardware.deterministic=true", "hardware.engine=reference"]
    try:
        train(tiny_folder, settings=settings, out=tmp_path / "run")
        assert torch.get_num_threads() == 2
        assert not torch.are_deterministic_algorithms_enabled()
        assert "as requested" not in describe_engine(torch.device("cpu"))
    finally:
        torch.set_num_threads(threads)
