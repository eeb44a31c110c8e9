"""Steps of several processes are those of one: the same losses, the same rows afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tasks import steps, steps_by_attention
from torch import Tensor
from workers import Workers

from allneg.graph import Graph
from allneg.models import MODELS
from allneg.scoring.distributed import World

Task = Callable[..., tuple[Any, ...]]
MESHES = ["rows=4", "batch=2", "rows=2,batch=2"]
# On top of SGD at the rate 1: a step is the gradient.
SETTINGS = {
    "no regularizer": ("regularizer.name=none",),
    "l2": ("regularizer.name=l2",),
    "dura": ("regularizer.name=dura",),
    "dura-w, not reciprocal": ("regularizer.name=dura-w", "model.reciprocal=false"),
    "ivr": ("regularizer.name=ivr", "regularizer.exponent=2.5", "model.name=tucker"),
    "relation prediction": ("loss.relation_weight=0.5",),
    "relation prediction, not reciprocal": (
        "loss.relation_weight=0.5", "model.reciprocal=false",
    ),
    "smoothing, known masked": ("loss.label_smoothing=0.2", "loss.mask_known=true"),
    "blocks of rows": ("loss.block=1",),
    "blocks of rows, known masked": ("loss.block=1", "loss.mask_known=true"),
    "subsampling": ("loss.subsampling=true",),
    "dropout": ("model.entity_dropout=0.3", "model.relation_dropout=0.2"),
    "micro-batches": ("training.micro_batch=4",),
    "micro-batches, in blocks": ("training.micro_batch=4", "loss.block=1"),
    "a last batch of one": ("training.batch_size=139",),
    "margin": ("loss.name=margin", "loss.margin=1.5"),
    "logistic": ("loss.name=logistic", "loss.margin=1", "optimizer.learning_rate=0.1"),
    "self-adversarial": ("loss.name=self-adversarial", "loss.margin=1", "loss.temperature=0.7"),
    "self-adversarial, in blocks, known masked": (
        "loss.name=self-adversarial", "loss.block=1", "loss.mask_known=true",
    ),
    "shared": ("loss.negatives=shared", "loss.n_negatives=40"),
    "shared, few": ("loss.negatives=shared", "loss.n_negatives=1", "training.batch_size=2"),
    "shared, corrected, known masked": (
        "loss.negatives=shared", "loss.n_negatives=40", "loss.correction=true",
        "loss.mask_known=true",
    ),
    "shared, without in-batch negatives": (
        "loss.negatives=shared", "loss.n_negatives=40", "loss.in_batch_negatives=false",
        "loss.mask_known=true",
    ),
    "class weights": ("loss.class_weights=true",),
    "squared distance with a bias": (
        "model.name=transe", "model.norm=2", "model.squared=true", "model.bias=true",
    ),
    "rotate, euclidean": ("model.name=rotate", "model.norm=2"),
    "shared, smoothing, in micro-batches": (
        "loss.negatives=shared", "loss.n_negatives=40", "loss.label_smoothing=0.1",
        "training.micro_batch=4",
    ),
    "per query": ("loss.negatives=per_query", "loss.n_negatives=7"),
    "per query, known masked, self-adversarial": (
        "loss.negatives=per_query", "loss.n_negatives=7", "loss.mask_known=true",
        "loss.name=self-adversarial", "loss.margin=1",
    ),
    "per query, relation prediction, in micro-batches": (
        "loss.negatives=per_query", "loss.n_negatives=7", "loss.relation_weight=0.5",
        "training.micro_batch=4",
    ),
    "grouped": ("loss.grouped=true",),
    "grouped, in blocks, subsampling": (
        "loss.grouped=true", "loss.block=1", "loss.subsampling=true",
    ),
    "grouped, logistic, in micro-batches": (
        "loss.grouped=true", "loss.name=logistic", "training.micro_batch=4",
        "optimizer.learning_rate=0.1",
    ),
    "grouped, smoothed, rotate": (
        "loss.grouped=true", "loss.label_smoothing=0.2", "model.name=rotate",
    ),
    "adagrad": ("optimizer.name=adagrad", "optimizer.learning_rate=0.1"),
    "adam": ("optimizer.name=adam", "optimizer.learning_rate=0.1"),
}  # fmt: skip


def check_same(
    workers: Workers, graph: Graph, mesh: str, settings: tuple[str, ...], task: Task = steps
) -> None:
    values, _, entities, relations = steps(World(), graph, settings)
    assert len(values) > 1
    held: dict[int, Tensor] = {}
    for found, start, rows, others in workers(mesh, task, graph, settings):
        assert found == pytest.approx(values, rel=1e-5)
        torch.testing.assert_close(others, relations, rtol=1e-4, atol=1e-5)
        assert start not in held or held[start].equal(rows)
        held[start] = rows
    whole = torch.cat([held[start] for start in sorted(held)])
    torch.testing.assert_close(whole, entities, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_learns_the_same_in_every_mesh(
    workers: Workers, graph: Graph, name: str, mesh: str
) -> None:
    check_same(workers, graph, mesh, (f"model.name={name}",))


@pytest.mark.parametrize("mesh", ["rows=3", "batch=3"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_every_setting_learns_the_same_in_every_mesh(
    workers: Workers, graph: Graph, settings: tuple[str, ...], mesh: str
) -> None:
    check_same(workers, graph, mesh, settings)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(
    "name",
    [
        "no regularizer",
        "subsampling",
        "micro-batches",
        "a last batch of one",
        "shared, few",
        "shared, corrected, known masked",
        "grouped",
    ],
)
def test_attention_learns_the_same_in_every_mesh(
    workers: Workers, graph: Graph, name: str, mesh: str
) -> None:
    check_same(workers, graph, mesh, SETTINGS[name], steps_by_attention)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("setting", ["loss.label_smoothing=0.2", "loss.mask_known=true"])
def test_attention_smooths_and_masks_the_same_in_every_mesh(
    workers: Workers, graph: Graph, setting: str, mesh: str
) -> None:
    check_same(workers, graph, mesh, (setting,), steps_by_attention)
