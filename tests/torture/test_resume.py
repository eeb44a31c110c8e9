"""A resumed run is bit-identical to an uninterrupted one: all models, optimizers and losses."""

from __future__ import annotations

import itertools
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
from allneg.training.optimizers import OPTIMIZERS
from processes import stop_after

LOSSES = {
    "softmax": (),
    "softmax, masked": ("loss.mask_known=true", "loss.label_smoothing=0.1"),
    "softmax, shared": ("loss.negatives=shared", "loss.n_negatives=5", "loss.correction=true"),
    "softmax, per query": ("loss.negatives=per_query", "loss.n_negatives=5"),
    "margin": ("loss.name=margin", "loss.margin=1", "regularizer.name=l2"),
    "logistic": (
        "loss.name=logistic",
        "loss.margin=1",
        "loss.negatives=per_query",
        "loss.n_negatives=4",
    ),
    "self-adversarial": ("loss.name=self-adversarial", "loss.margin=1", "loss.subsampling=true"),
}
STOP = 3  # steps; an epoch has 5


def cases() -> list[object]:
    """All combinations; the fast tests have each loss with each optimizer once."""
    return [
        pytest.param(
            *(model, loss, optimizer, threads),
            marks=[] if usual else pytest.mark.slow,
        )
        for (i, model), (j, loss), (k, optimizer), threads in itertools.product(
            enumerate(MODELS), enumerate(LOSSES), enumerate(OPTIMIZERS), (1, 2)
        )
        for n in [len(OPTIMIZERS) * j + k]  # of 21: every model occurs twice
        for usual in [i == n % len(MODELS) and threads == 1 + (n // len(MODELS)) % 2]
    ]


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        tensor.numpy().tobytes() == other[name].numpy().tobytes() for name, tensor in one.items()
    )


@pytest.mark.battery(29)
@pytest.mark.parametrize("model, loss, optimizer, threads", cases())
def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(
    tmp_path: Path,
    tiny_graph: Graph,
    quick: Callable[..., Recipe],
    model: str,
    loss: str,
    optimizer: str,
    threads: int,
) -> None:
    recipe = quick(
        *LOSSES[loss],
        f"model.name={model}",
        f"optimizer.name={optimizer}",
        f"hardware.threads={threads}",
        "optimizer.learning_rate=0.01",
        "training.epochs=2",
    )
    check_resumed(tmp_path, tiny_graph, recipe)


@pytest.mark.gpu
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "loss, optimizer", list(zip(LOSSES, itertools.cycle(OPTIMIZERS), strict=False))
)
def test_a_deterministic_run_resumed_on_a_gpu_is_bit_identical(
    tmp_path: Path,
    tiny_graph: Graph,
    quick: Callable[..., Recipe],
    model: str,
    loss: str,
    optimizer: str,
) -> None:
    recipe = quick(
        *LOSSES[loss],
        f"model.name={model}",
        f"optimizer.name={optimizer}",
        "optimizer.learning_rate=0.01",
        "training.epochs=2",
        "hardware.device=cuda",
        "hardware.deterministic=true",
    )
    check_resumed(tmp_path, tiny_graph, recipe)


def check_resumed(folder: Path, graph: Graph, recipe: Recipe) -> None:
    straight, resumed = (
        Run.create(folder / name, recipe, graph) for name in ("straight", "resumed")
    )
    fit(straight)
    with pytest.raises(Interrupted):
        fit(resumed, stopped_by=stop_after(STOP))
    fit(Run.open(resumed.folder))
    found, expected = resumed.last(), straight.last()
    assert found is not None
    assert expected is not None
    assert same(found.tables, expected.tables)
    assert same(found.optimizer, expected.optimizer)
    assert same(found.best, expected.best)
    assert resumed.report.to_json() == straight.report.to_json()
    assert [entry["loss"] for entry in resumed.metrics()] == [
        entry["loss"] for entry in straight.metrics()
    ]
