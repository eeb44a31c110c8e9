"""A resumed run equals an uninterrupted one, byte for byte."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allneg.graph import read_graph
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.training import Callbacks, fit, train
from processes import start_command, wait_until

# An epoch has 5 steps: the second and the last stop come after all of them, before the evaluation.
STOPS = (1, 4, 1, 9)


@pytest.mark.battery(29)
@pytest.mark.parametrize(
    "settings",
    [  # tests/torture/test_resume.py has all models
        ("model.name=complex", "optimizer.name=adagrad", "training.epochs=4"),
        ("model.name=complex", "optimizer.name=adam", "training.epochs=4"),
        ("model.name=complex", "optimizer.name=sgd", "training.epochs=4"),
        ("model.name=tucker", "optimizer.name=adagrad", "training.epochs=4"),
        ("model.name=transe", "optimizer.name=adagrad", "training.epochs=4"),
        ("model.name=rotate", "optimizer.name=adam", "training.epochs=4"),
        ("loss.negatives=shared", "loss.n_negatives=4", "loss.correction=true"),
        ("loss.negatives=per_query", "loss.n_negatives=3", "loss.name=logistic"),
        ("loss.name=self-adversarial", "loss.subsampling=true", "loss.mask_known=true"),
        ("model.entity_dropout=0.3", "model.relation_dropout=0.2", "loss.label_smoothing=0.1"),
        ("model.reciprocal=false", "regularizer.name=l2"),
        ("training.micro_batch=3",),
        ("loss.distillation=1", "loss.distillation_start=1"),
        ("loss.grouped=true", "training.batch_size=4"),
        ("optimizer.schedule=step", "optimizer.every=2"),
        ("optimizer.schedule=plateau", "optimizer.every=1", "evaluation.every=1"),
        ("training.average=0.5", "evaluation.every=1", "optimizer.learning_rate=1"),
        ("optimizer.schedule=cosine", "optimizer.warmup=1"),
        ("hardware.deterministic=true",),
        ("hardware.precision=bf16",),
    ],
    ids=lambda settings: ", ".join(settings[:2]),
)
def test_resuming_changes_nothing(
    made: Callable[..., Run],
    trained: Callable[..., Run],
    stop: Callable[[Run, int], None],
    content: Callable[[Run], dict[str, Any]],
    settings: tuple[str, ...],
) -> None:
    run = made(*settings)
    for steps in STOPS:
        stop(run, steps)
    fit(Run.open(run.folder))
    assert content(run) == content(trained(*settings))


@pytest.mark.battery(29)
@pytest.mark.parametrize("model", ["complex", "transe"])
def test_resuming_with_two_threads_changes_nothing(
    made: Callable[..., Run],
    trained: Callable[..., Run],
    stop: Callable[[Run, int], None],
    content: Callable[[Run], dict[str, Any]],
    model: str,
) -> None:
    whole = read_graph("countries")
    few = replace(whole, train=whole.train[:150], valid=whole.valid[:20], test=whole.test[:20])
    settings = (
        f"model.name={model}",
        "model.dim=8",
        "training.batch_size=100",
        "training.epochs=2",
        "hardware.threads=2",
    )
    run = made(*settings, graph=few)
    for steps in (1, 3):
        stop(run, steps)
    fit(Run.open(run.folder))
    assert content(run) == content(trained(*settings, graph=few))


class Killed(Exception):
    """Like kill -9: nothing is saved."""


class _Killer(Callbacks):
    def __init__(self, steps: int) -> None:
        self._left = steps

    def on_step(self, state: State, n_steps: int) -> None:
        self._left -= 1
        if not self._left:
            raise Killed


@pytest.mark.battery(21)
@pytest.mark.parametrize("save_seconds", [0, 60])
def test_a_killed_run_continues_from_its_last_checkpoint(
    made: Callable[..., Run],
    trained: Callable[..., Run],
    content: Callable[[Run], dict[str, Any]],
    save_seconds: int,
) -> None:
    settings = (f"training.save_seconds={save_seconds}", "training.epochs=4")
    run = made(*settings)
    for steps in (2, 9, 8):
        with pytest.raises(Killed):
            fit(run, _Killer(steps))
    fit(run)
    assert content(run) == content(trained(*settings))


def test_resuming_a_finished_run_changes_nothing(
    trained: Callable[..., Run], content: Callable[[Run], dict[str, Any]]
) -> None:
    run = trained()
    before = content(run)
    fit(run)
    assert content(run) == before


@pytest.mark.battery(24)
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_resumed_run_equals_an_uninterrupted_one(
    tiny_folder: Path,
    tmp_path: Path,
    content: Callable[[Run], dict[str, Any]],
    number: int,
    code: int,
) -> None:
    out = tmp_path / "run"
    settings = [
        "model.dim=4",
        "training.epochs=1000000",
        "training.batch_size=8",
        "evaluation.every=100",
        "evaluation.patience=1000000",
        "hardware.threads=1",
        "loss.grouped=false",  # the default follows from the number of epochs
    ]
    flags = [part for setting in settings for part in ("--set", setting)]
    printed, messages, metrics = tmp_path / "out", tmp_path / "err", out / "metrics.jsonl"
    process = start_command(
        "train", tiny_folder, "--out", out, "--device", "cpu", *flags, out=printed, err=messages
    )
    wait_until(lambda: metrics.exists() and metrics.stat().st_size, process)
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == code, messages.read_text()
    assert printed.read_text() == ""
    assert "Traceback" not in messages.read_text()
    assert f"allneg resume {out}" in messages.read_text()

    run = Run.open(out)
    assert run.status["state"] == "interrupted"
    epochs = run.status["epoch"] + 2
    recipe = run.folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 1000000", f"epochs = {epochs}"))
    fit(Run.open(out))
    settings[1] = f"training.epochs={epochs}"
    uninterrupted = train(
        tiny_folder, settings=[*settings, "hardware.device=cpu"], out=tmp_path / "uninterrupted"
    )
    assert content(run) == content(uninterrupted)
