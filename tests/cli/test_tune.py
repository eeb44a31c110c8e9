from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allneg.cli.tune import n_workers
from allneg.cli.workers import Worker, wait_for_trials
from allneg.runs import Run
from allneg.runs.ensemble import Combination, combine
from allneg.tuning import Tuning

Command = Callable[..., Any]  # runs `allneg` with these arguments

# Three trials: a default and its two neighbours, of 6 epochs each.
SETTINGS = (
    "model.dim=4", "training.batch_size=20", "training.epochs=6", "evaluation.every=2",
    "hardware.device=cpu", "hardware.threads=1", "loss.relation_weight=0", "training.average=0",
    "loss.class_weights=false", "regularizer.name=n3", "regularizer.weight=0.01",
    "optimizer.name=adagrad", "model.entity_dropout=0",
)  # fmt: skip
FLAGS = ("--models", "complex", *(word for text in SETTINGS for word in ("--set", text)))


@pytest.fixture
def tune(tiny_folder: Path, tmp_path: Path) -> tuple[object, ...]:
    """The arguments of a tuning in tmp_path/out."""
    return "tune", tiny_folder, "--out", tmp_path / "out", "--minutes", 60, *FLAGS


def test_a_tuning_prints_its_results_and_keeps_them(
    allneg: Command, tune: tuple[object, ...], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = allneg(*tune, "--no-counts")
    assert done.code == 0, done.err
    assert re.search(r"tiny: 3 trials in \d\.\d min", done.out)
    assert "tiny: valid has only 2 triples: too few to choose the best epoch\n" in done.err
    assert re.search(r"min left: complex: \w+ after \d epochs, valid MRR 0\.\d{4}; best", done.err)
    assert re.search(r"best: complex.*: valid MRR 0\.\d{4}, test MRR 0\.\d{4}", done.out)
    assert f"run: {out}/best; recipe: {out}/best.toml" in done.out.replace("\n", "")
    assert (out / "trials.png").read_bytes().startswith(b"\x89PNG")
    again = allneg(*tune, "--no-counts", "-q", "--json")
    assert (again.code, again.err) == (0, "")
    results = again.json
    assert results.keys() == {
        "schema_version", "data", "minutes", "seconds", "selected_by", "best", "trials", "tuning",
    }  # fmt: skip
    kept = json.loads((out / "results.json").read_text())
    assert kept["trials"] == results["trials"]
    assert results["best"]["trial"] == results["trials"][0]["trial"]
    assert results["best"]["valid_mrr"] == results["trials"][0]["valid_mrr"]
    best = allneg("evaluate", out / "best", "--json").json
    assert best["mrr"] == pytest.approx(results["best"]["test"]["mrr"])
    assert allneg("verify", out / "best").code == 0
    settings = ("--recipe", out / "best.toml", "--print-recipe", "--json")
    recipe = allneg("train", tmp_path / "tiny", *settings).json["recipe"]
    assert recipe == Run.open(out / "best").recipe.to_tables()


def test_counts_are_named(
    allneg: Command, tune: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def better(*runs: Any, **more: Any) -> Combination:
        found = combine(*runs, **more)
        return replace(found, weighting=replace(found.weighting, cross_fitted_mrr=1.0))

    monkeypatch.setattr("allneg.tuning.best.combine", better)
    done = allneg(*tune, "-q")
    assert re.search(r"best trial: complex.*: valid MRR 0\.\d{4}\n", done.out), done.err
    assert re.search(r"with counts of facts: cross-fitted valid MRR 1\.0000, test", done.out)


def test_counts_without_time_are_named(
    allneg: Command, tune: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = sys.modules["allneg.tuning.tune"].__dict__["_SCORES_PER_SECOND"]
    monkeypatch.setitem(rates, "cpu", 1e-9)
    done = allneg(*tune, "-q")
    command = f"allneg ensemble {tmp_path / 'out' / 'best'} --counts --out"
    assert f"no time was left for counts of facts: `{command} NEW` adds them" in done.out
    assert allneg(*command.split()[1:], tmp_path / "counted").code == 0


def test_without_matplotlib_a_line_says_so(
    allneg: Command, tune: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = allneg(*tune, "-q", "--set", "optimizer.learning_rate=0.1")
    assert done.code == 0
    assert done.err == "trials.png needs matplotlib: pip install 'allneg[plots]'\n"
    assert not (tmp_path / "out" / "trials.png").exists()


@pytest.mark.battery(36)
@pytest.mark.usefixtures("forked_workers")
def test_workers_share_a_tuning(allneg: Command, tune: tuple[object, ...], tmp_path: Path) -> None:
    done = allneg(*tune, "--workers", 2, "--json")
    assert done.code == 0, done.err
    assert [trial["state"] for trial in done.json["trials"]] == ["finished"] * 3
    for folder in (tmp_path / "out" / "trials").iterdir():
        entries = Run.open(folder).metrics()
        assert [entry["epoch"] for entry in entries] == list(range(1, 7))
    assert Run.open(tmp_path / "out" / "best").report.protocol["split"] == "test"


def test_a_stopped_tuning_names_its_folder(
    allneg: Command, tune: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> Worker:
        return Worker(subprocess.Popen(["sleep", "60"]), tempfile.TemporaryFile())

    def wait(started: list[Worker], _: object, *more: Any) -> None:
        wait_for_trials(started, lambda: signal.SIGTERM, *more)

    module = sys.modules["allneg.cli.tune"]
    monkeypatch.setattr(module, "Worker", SimpleNamespace(start=start))
    monkeypatch.setattr(module, "wait_for_trials", wait)
    done = allneg(*tune, "--workers", 2)
    assert done.code == 143
    assert f"the same command with --out {tmp_path / 'out'} continues" in done.err


@pytest.mark.battery(30)
def test_a_tuning_in_which_all_trials_diverge_exits_with_5(
    allneg: Command, tune: tuple[object, ...]
) -> None:
    flags = ("optimizer.name=sgd", "optimizer.learning_rate=1e30", "model.scale=1")
    done = allneg(*tune, "-q", *(word for text in flags for word in ("--set", text)))
    assert done.code == 5
    assert "all trials diverged" in done.err


@pytest.mark.battery(31)
def test_a_tuning_in_which_no_trial_fits_exits_with_6(
    allneg: Command, tune: tuple[object, ...]
) -> None:
    done = allneg(*tune, "-q", "--set", f"model.dim={10**15}")
    assert done.code == 6
    assert "all trials failed; --set a lower model.dim" in done.err


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--minutes", 0), "--minutes"),
        (("--models", "complex,rotat"), "no model 'rotat'; close names: 'rotate'"),
        (("--models", "best"), "no model 'best'; known: complex, cp, distmult"),
        (("--set", "model.dimm=3"), "model.dimm is not a setting"),
    ],
)
def test_a_wrong_argument_exits_with_2(
    allneg: Command, tune: tuple[object, ...], tmp_path: Path, flags: Any, message: str
) -> None:
    done = allneg(*tune, *flags)
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "out").exists()


def test_small_graphs_on_a_cpu_get_a_process_per_core(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(seconds: float, *settings: str, threads: int = 4) -> int:
        """The number of processes for 6 minutes if a full training takes this long."""
        monkeypatch.setattr("allneg.training.defaults.cpu_seconds", lambda *_: seconds)
        monkeypatch.setattr("torch.get_num_threads", lambda: threads)
        out = tmp_path / f"{seconds}-{threads}-{len(settings)}"
        return n_workers(Tuning(tiny_folder, out, 6, ("complex",), settings))

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cpu = "hardware.device=cpu"
    assert count(1.0, cpu) == 4
    assert count(50.0, cpu) == 2  # with two processes, a full training takes 100 of 360 seconds
    assert count(100.0, cpu) == 1
    assert count(1.0, cpu, threads=64) == 8
    assert count(1.0, cpu, "hardware.threads=2") == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert count(1.0, cpu, threads=5) == 1
