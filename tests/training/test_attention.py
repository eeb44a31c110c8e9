"""Whole steps without scores in memory are those with stored scores."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor

from allneg.graph import Graph
from allneg.kernels.engines import using
from allneg.recipe import Recipe
from allneg.training import execution
from allneg.training.trainer import Trainer
from interpreter import DEVICE, GPU, interpreted, needs_triton

interpreted("allneg.kernels.attention.gpu")
interpreted("allneg.kernels.fused.gpu")
# SGD at the rate 1: a step is the gradient.
PLAIN = (
    "model.dim=9", "model.scale=0.7", "training.batch_size=6", "optimizer.name=sgd",
    "optimizer.learning_rate=1",
)  # fmt: skip
SETTINGS = {
    "plain": (),
    "smoothed": ("loss.label_smoothing=0.2",),
    "masked": ("loss.mask_known=true",),
    "grouped": ("loss.grouped=true",),
    "weights": ("loss.class_weights=true", "training.micro_batch=4"),
    "shared": ("loss.negatives=shared", "loss.n_negatives=5", "loss.correction=true"),
    "bf16": ("hardware.precision=bf16",),
}


def two_steps(graph: Graph, settings: tuple[str, ...]) -> tuple[bool, list[Tensor]]:
    """Whether scores were stored; losses and tables."""
    recipe, device = Recipe().with_settings([*PLAIN, *settings]), torch.device(DEVICE)
    trainer = Trainer(recipe, graph, device)
    train, order = torch.from_numpy(graph.train).to(device), Generator(device).manual_seed(1)
    _, batches = trainer.batches(train, order)
    losses = [trainer.step(next(batches), Generator(device).manual_seed(i)) for i in range(2)]
    return not trainer.plan.by_attention, [torch.stack(losses), *trainer.tables.weights().values()]


@needs_triton
@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_without_scores_in_memory_is_the_same(
    name: str, tiny_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, plain = two_steps(tiny_graph, SETTINGS[name])
    assert stores
    monkeypatch.setattr(execution, "attention_pays", lambda *_: True)
    if not GPU:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    with using("gpu"):
        stores, found = two_steps(tiny_graph, SETTINGS[name])
    assert not stores
    # The interpreter rounds to bfloat16 towards 0.
    tolerance = {"rtol": 1e-2, "atol": 2e-3} if name == "bf16" else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(found, plain, **tolerance)
