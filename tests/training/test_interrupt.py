"""Ctrl-C, progress and callbacks in a Python program."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.evaluation import Report
from allneg.graph import Graph
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.training import Callbacks, fit, train
from allneg.training.interrupt import interruptible
from allneg.training.train import resume


class PressCtrlC(Callbacks):
    """Sends SIGINT to this process after some step."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_step(self, state: State, n_steps: int) -> None:
        self.after -= 1
        if not self.after:
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_saves_the_run_and_raises_keyboard_interrupt(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    out, recipe = tmp_path / "run", quick()
    with pytest.raises(KeyboardInterrupt, match="stopped and saved; `allneg resume"):
        train(tiny_graph, recipe=recipe, out=out, callbacks=PressCtrlC(after=7))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert Run.open(out).status["state"] == "interrupted"
    with pytest.raises(KeyboardInterrupt):
        resume(out, callbacks=[PressCtrlC(after=2)])
    with pytest.raises(KeyboardInterrupt):
        fit(Run.open(out), PressCtrlC(after=2))
    straight = train(tiny_graph, recipe=recipe, out=tmp_path / "straight")
    assert resume(out).report == straight.report


def test_ctrl_c_after_the_last_step_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(None):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_ctrl_c_interrupts_at_once() -> None:
    after = []

    def press_twice() -> None:
        with interruptible(None) as stop:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                after.append(stop())

    with pytest.raises(KeyboardInterrupt):
        press_twice()
    assert after == [signal.SIGINT]


def test_the_handler_of_a_program_stays() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        with interruptible(None) as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop() == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == [signal.SIGINT]


def test_another_thread_can_train(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe, out = quick(), tmp_path / "run"
    thread = threading.Thread(target=lambda: train(tiny_graph, recipe=recipe, out=out))
    thread.start()
    thread.join()
    assert Run.open(out).finished


def test_progress_prints_lines(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    train(tiny_graph, recipe=quick(), out=tmp_path / "quiet")
    assert capsys.readouterr().err == ""
    run = train(tiny_graph, recipe=quick(), out=tmp_path / "run", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "tiny: valid has only 2 triples: too few to choose the best epoch"
    assert lines[1].startswith("complex, dim 4, on 12 entities")
    ranked = [line for line in lines if line.startswith("epoch ")]
    assert [line.split(":")[0] for line in ranked] == ["epoch 2", "epoch 4", "epoch 6"]
    assert f"{run.metrics()[1]['valid']['mrr']:.4f}" in ranked[0]


def test_all_callbacks_are_called_in_order(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    calls: list[tuple[str, str]] = []
    hooks = [name for name in vars(Callbacks) if name.startswith("on_")]

    def recorder(name: str) -> Callbacks:
        members: dict[str, Any] = {
            hook: lambda self, *_, hook=hook: calls.append((hook, name)) for hook in hooks
        }
        kind: type[Callbacks] = type("Recorder", (Callbacks,), members)
        return kind()

    train(
        tiny_graph, recipe=quick(), out=tmp_path / "run", callbacks=[recorder("a"), recorder("b")]
    )
    assert {hook for hook, _ in calls} == set(hooks)
    assert [name for _, name in calls] == ["a", "b"] * (len(calls) // 2)
    assert calls[-1] == ("on_end", "b")


def test_the_end_has_the_report(
    tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    class End(Callbacks):
        report: Report | None = None

        def on_end(self, report: Report | None) -> None:
            self.report = report

    end = End()
    run = train(tiny_graph, recipe=quick(), out=tmp_path / "run", callbacks=end)
    assert end.report == run.report
