from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import allneg
from allneg.errors import DataError, RecipeError, UsageError
from allneg.graph import Graph, read_graph
from allneg.kernels.engines import describe_engine
from allneg.recipe import Recipe
from allneg.runs import new_folder
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
    assert planned("countries") == Recipe()


def test_settings_that_name_other_data_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"data\.name is 'wn18' in the settings, but DATA is 'tiny'"
    ):
        planned("tiny", settings=["data.name=wn18"])
    assert planned("tiny", settings=["data.name=tiny"]).data.name == "tiny"


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
