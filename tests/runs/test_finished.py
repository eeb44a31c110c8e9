"""Small copies of runs, with bfloat16 weights."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

from allneg import load
from allneg.errors import RecipeError, RunError
from allneg.evaluation import evaluate
from allneg.graph import read_graph
from allneg.graph.graph import SPLITS
from allneg.runs import Run
from allneg.runs.ensemble import ensemble
from allneg.runs.finished import export_bf16
from allneg.runs.verify import verify
from allneg.training.train import resume

ROOT = Path(__file__).parents[2]


def test_a_small_copy_has_rounded_weights_and_their_report(toy_run: Run, tmp_path: Path) -> None:
    made = export_bf16(toy_run, tmp_path / "small", "cpu")
    opened, tables = Run.open(made.folder), toy_run.tables()
    assert opened == made
    assert not list(made.folder.glob("checkpoints/*/best.safetensors"))
    for name, tensor in opened.tables().weights().items():
        assert tensor.dtype is torch.float32
        assert tensor.equal(tables.weights()[name].bfloat16().float())
    tables.load(opened.tables().weights())
    assert opened.report.mrr == evaluate(toy_run.model, tables, toy_run.graph).mrr
    assert opened.report.baselines == toy_run.report.baselines
    assert [check.wrong for check in verify(made.folder, rank=True) if check.wrong] == []
    assert len(load(made.folder, "cpu").tails("France", "borders")) == 10


def test_a_small_copy_of_an_ensemble_keeps_its_members(toy_run: Run, tmp_path: Path) -> None:
    both = ensemble([toy_run.folder, toy_run.folder], out=tmp_path / "both", device="cpu")
    made = Run.open(export_bf16(both, tmp_path / "small", "cpu").folder)
    assert made.members == both.members
    assert made.report.ensemble == both.report.ensemble


def test_a_small_copy_is_not_trained(toy_run: Run, tmp_path: Path) -> None:
    folder = export_bf16(toy_run, tmp_path / "small", "cpu").folder
    with pytest.raises(RecipeError, match="a bfloat16 copy is not trained"):
        resume(folder, settings=["training.epochs=99"])
    assert Run.open(folder).finished


def test_a_trained_run_has_no_bfloat16_weights(toy_run: Run, tmp_path: Path) -> None:
    rounded = {name: t.bfloat16() for name, t in toy_run.tables().weights().items()}
    with pytest.raises(RunError, match=r"the weights are torch.bfloat16, not torch.float32"):
        toy_run.check_shapes(rounded)


def test_the_script_prints_sizes_and_mrrs(
    toy_run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [str(toy_run.folder), "--out", str(tmp_path), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["export_bf16.py", *arguments])
    runpy.run_path(str(ROOT / "scripts/export_bf16.py"), run_name="__main__")
    made = Run.open(tmp_path / "run").report.mrr
    expected = f"test MRR {made:.5f} instead of {toy_run.report.mrr:.5f}\n"
    assert capsys.readouterr().out.endswith(expected)


def test_the_packaged_run_is_whole_and_has_the_packaged_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, graph = Run.open("countries-demo"), read_graph("countries")
    assert run.graph.vocabulary == graph.vocabulary
    assert all((run.graph.split(name) == graph.split(name)).all() for name in SPLITS)
    assert [check.wrong for check in verify("countries-demo", rank=True) if check.wrong] == []
    assert load("countries-demo", "cpu").tails("France", "borders", k=1)[0].known == "train"
    (tmp_path / "countries-demo").mkdir()
    with pytest.raises(RunError, match="not a run"):  # a folder of that name comes first
        Run.open("countries-demo")
