"""Which steps may be recorded and played again: those of one shape that wait for nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from allneg.graph import read_graph
from allneg.graph.queries import Queries
from allneg.recipe import Recipe
from allneg.training.captured import is_captured
from allneg.training.optimizer import optimizer_tensors
from allneg.training.trainer import Trainer


class Shapes(TorchDispatchMode):
    """What is called, and the shapes that come out."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.names.add(func.name())
        self.shapes += [tuple(out.shape)] if isinstance(out, torch.Tensor) else []
        return out


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


DRAWN = [
    [],
    ["loss.negatives=shared", "loss.n_negatives=4"],
    ["loss.negatives=shared", "loss.n_negatives=4", "loss.in_batch_negatives=false"],
    ["loss.negatives=shared", "loss.n_negatives=4", "loss.correction=true"],
    ["loss.negatives=per_query", "loss.n_negatives=5"],
    [
        "loss.negatives=per_query",
        "loss.n_negatives=5",
        "loss.mask_known=true",
        "loss.subsampling=true",
    ],
    ["model.entity_dropout=0.5", "model.relation_dropout=0.5"],
]


@pytest.mark.parametrize("settings", DRAWN)
def test_a_step_is_of_one_shape_whatever_is_drawn(settings: list[str]) -> None:
    recipe = Recipe().with_settings(["model.dim=3", *settings])
    graph = read_graph("countries")
    trainer, chance = Trainer(recipe, graph, CPU), torch.Generator().manual_seed(0)
    assert is_captured(recipe, CUDA)
    trainer.step(Queries.of(torch.from_numpy(graph.train[:20]), "tail"), chance)  # a plain one
    shapes = set()
    for some in (graph.train[:20], graph.train[20:40]):
        queries = Queries.of(torch.from_numpy(some), "tail")
        drawn = trainer.objective.draw(trainer.tables, queries, chance)
        seen = Shapes()
        with seen:
            for value in trainer.objective.parts(trainer.tables, queries, 20, drawn):
                value.backward()
        assert not {"aten::nonzero", "aten::item", "aten::_local_scalar_dense"} & seen.names
        shapes.add(tuple(seen.shapes))
    assert len(shapes) == 1


@pytest.mark.parametrize("settings", DRAWN)
@pytest.mark.gpu
def test_captured_steps_learn_what_plain_ones_do(settings: list[str]) -> None:
    # Hardly a step: AdaGrad makes a large difference of a rounded gradient near zero. What its
    # memory sums up is what the gradients were.
    small = ["model.dim=8", "model.scale=0.5", "optimizer.learning_rate=1e-9"]
    recipe = Recipe().with_settings([*small, "training.batch_size=64", *settings])
    graph = read_graph("countries")
    queries = Queries.of(torch.from_numpy(graph.train).to(CUDA), "tail")
    values, sums = [], []
    for recorded in (True, False):
        trainer, chance = Trainer(recipe, graph, CUDA), torch.Generator(CUDA)
        for step in range(10):
            asked = queries.part(slice(64 * step, 64 * step + 64))
            chance.manual_seed(step)
            if recorded:
                values.append(float(trainer.step(asked, chance)))
            else:
                drawn = trainer.objective.draw(trainer.tables, asked, chance)
                assert float(trainer._step(asked, drawn)) == pytest.approx(values[step], rel=1e-3)
        sums.append(optimizer_tensors(trainer.optimizer, trainer.tables))
    torch.testing.assert_close(*sums, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(
    "setting",
    ["training.micro_batch=10", "loss.mask_known=true", "hardware.deterministic=true"],
)
def test_a_step_that_waits_or_varies_is_not_captured(setting: str) -> None:
    assert is_captured(Recipe(), CUDA)
    assert not is_captured(Recipe().with_settings([setting]), CUDA)


def test_a_cpu_captures_nothing() -> None:
    assert not is_captured(Recipe(), CPU)
