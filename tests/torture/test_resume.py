"""Resumed is straight, byte for byte: every model, optimiser and objective, one and two threads."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from torch import Tensor

from allneg.errors import Interrupted
from allneg.graph import Graph
from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training import fit

OBJECTIVES = {
    "softmax": (),
    "softmax, masked": ("loss.mask_known=true", "loss.label_smoothing=0.1"),
    "softmax, shared": ("loss.negatives=shared", "loss.n_negatives=5", "loss.correction=true"),
    "softmax, own": ("loss.negatives=per_query", "loss.n_negatives=5"),
    "margin": ("loss.name=margin", "loss.margin=1", "regularizer.name=l2"),
    "logistic": (
        "loss.name=logistic",
        "loss.margin=1",
        "loss.negatives=per_query",
        "loss.n_negatives=4",
    ),
    "self-adversarial": ("loss.name=self-adversarial", "loss.margin=1", "loss.subsampling=true"),
}
OPTIMIZERS = ("adagrad", "adam", "sgd")
STOP = 3  # steps; an epoch has 5


def cases() -> list[object]:
    """Every combination; in the usual tests each model meets each objective once."""
    return [
        pytest.param(
            *(model, objective, optimizer, threads),
            marks=[] if usual else pytest.mark.slow,
        )
        for (i, model), (j, objective), (k, optimizer), threads in itertools.product(
            enumerate(MODELS), enumerate(OBJECTIVES), enumerate(OPTIMIZERS), (1, 2)
        )
        for usual in [k == (i + j) % 3 and threads == 1 + (i + j // 2) % 2]
    ]


def stopped_after(steps: int) -> Callable[[], int]:
    left = steps

    def stopped_by() -> int:
        nonlocal left
        left -= 1
        return signal.SIGTERM if left == 0 else 0

    return stopped_by


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        each.numpy().tobytes() == other[name].numpy().tobytes() for name, each in one.items()
    )


@pytest.mark.battery(29)
@pytest.mark.parametrize("model, objective, optimizer, threads", cases())
def test_a_resumed_run_is_the_straight_one(
    tmp_path: Path,
    tiny_graph: Graph,
    quick: Callable[..., Recipe],
    model: str,
    objective: str,
    optimizer: str,
    threads: int,
) -> None:
    recipe = quick(
        *OBJECTIVES[objective],
        f"model.name={model}",
        f"optimizer.name={optimizer}",
        f"hardware.threads={threads}",
        "optimizer.learning_rate=0.01",
        "training.epochs=2",
    )
    resumed_is_straight(tmp_path, tiny_graph, recipe)


@pytest.mark.gpu
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "objective, optimizer", list(zip(OBJECTIVES, itertools.cycle(OPTIMIZERS), strict=False))
)
def test_a_deterministic_run_resumed_on_a_gpu_is_the_straight_one(
    tmp_path: Path,
    tiny_graph: Graph,
    quick: Callable[..., Recipe],
    model: str,
    objective: str,
    optimizer: str,
) -> None:
    recipe = quick(
        *OBJECTIVES[objective],
        f"model.name={model}",
        f"optimizer.name={optimizer}",
        "optimizer.learning_rate=0.01",
        "training.epochs=2",
        "hardware.device=cuda",
        "hardware.deterministic=true",
    )
    resumed_is_straight(tmp_path, tiny_graph, recipe)


def resumed_is_straight(folder: Path, graph: Graph, recipe: Recipe) -> None:
    straight, resumed = (
        Run.create(folder / name, recipe, graph) for name in ("straight", "resumed")
    )
    fit(straight)
    with pytest.raises(Interrupted):
        fit(resumed, stopped_by=stopped_after(STOP))
    fit(Run.open(resumed.folder))
    mine, its = resumed.last(), straight.last()
    assert mine is not None
    assert its is not None
    assert same(mine.tables, its.tables)
    assert same(mine.optimizer, its.optimizer)
    assert same(mine.best, its.best)
    assert resumed.report.to_json() == straight.report.to_json()
    assert [each["loss"] for each in resumed.metrics()] == [
        each["loss"] for each in straight.metrics()
    ]
