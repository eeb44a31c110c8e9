"""Which steps can be captured as CUDA graphs: those of fixed shapes that wait for nothing."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from allneg.graph import read_graph
from allneg.graph.queries import Queries
from allneg.recipe import Recipe
from allneg.runs import make_model
from allneg.runs.checkpoint import Checkpoint, State
from allneg.runs.parents import Parent
from allneg.scoring.distributed import SINGLE_PROCESS
from allneg.scoring.negatives import NegativeSample, draw_sample
from allneg.training.execution import ExecutionPlan
from allneg.training.optimizers import optimizer_tensors, zero_state
from allneg.training.partial import PartialTrainer
from allneg.training.trainer import Trainer


class Shapes(TorchDispatchMode):
    """The operations that are called, and the shapes of their results."""

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


def is_captured(recipe: Recipe, device: torch.device) -> bool:
    return ExecutionPlan.decide(recipe, make_model(recipe), 100, device).is_captured


SAMPLES = [
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
    ["regularizer.name=ivr", "model.name=tucker"],
    ["model.name=quate"],
    ["model.name=rote", "model.norm=2", "model.squared=true", "model.bias=true"],
]


@pytest.mark.parametrize("settings", SAMPLES)
def test_the_shapes_of_a_step_do_not_depend_on_the_sample(settings: list[str]) -> None:
    recipe = Recipe().with_settings(["model.dim=3", *settings])
    graph = read_graph("countries")
    trainer, generator = Trainer(recipe, graph, CPU), torch.Generator().manual_seed(0)
    assert is_captured(recipe, CUDA)
    trainer.step(Queries.of(torch.from_numpy(graph.train[:20]), "tail"), generator)  # warms up
    shapes = set()
    for triples in (graph.train[:20], graph.train[20:40]):
        queries = Queries.of(torch.from_numpy(triples), "tail")
        sample = draw_sample(recipe, trainer.model, queries, graph.n_entities, generator)
        seen = Shapes()
        with seen:
            trainer.gradients(queries, sample)
        assert not {"aten::nonzero", "aten::item", "aten::_local_scalar_dense"} & seen.names
        shapes.add(tuple(seen.shapes))
    assert len(shapes) == 1


def extension(recipe: Recipe, device: torch.device) -> tuple[PartialTrainer, list[Queries]]:
    """A trainer of the last entities of countries, and its batches of one epoch."""
    graph = read_graph("countries")
    parent = Parent("parent", None, "new", graph.n_entities - 50, graph.n_relations, 0)
    trainer = PartialTrainer(recipe, graph, device, SINGLE_PROCESS, parent)
    tables = Trainer(recipe, graph, CPU).tables
    trainer.restore(Checkpoint(State(), tables.weights(), zero_state(recipe.optimizer, tables)))
    triples = torch.from_numpy(graph.train).to(device)
    _, found = trainer.batches(triples, torch.Generator(device).manual_seed(0))
    return trainer, list(found)


def test_the_shapes_of_an_extension_do_not_depend_on_the_batch() -> None:
    recipe = Recipe().with_settings(["model.dim=3", "training.batch_size=64"])
    trainer, found = extension(recipe, CPU)
    trainer.gradients(found[0], NegativeSample())  # warms up
    full = [queries for queries in found if len(queries) == trainer.captured_size]
    assert len(full) > len(found) / 2
    shapes = set()
    for queries in full[:2]:
        with Shapes() as seen:
            trainer.gradients(queries, NegativeSample())
        assert not {"aten::nonzero", "aten::item", "aten::_local_scalar_dense"} & seen.names
        shapes.add(tuple(seen.shapes))
    assert len(shapes) == 1


@pytest.mark.gpu
def test_captured_steps_of_an_extension_have_the_values_of_plain_ones() -> None:
    small = ["model.dim=8", "model.scale=0.5", "training.batch_size=64"]
    recipe = Recipe().with_settings([*small, "optimizer.learning_rate=1e-9"])
    values = []
    for captured in (True, False):
        trainer, found = extension(recipe, CUDA)
        generator = torch.Generator(CUDA)
        full = [queries for queries in found if len(queries) == trainer.captured_size][:10]
        if captured:
            values.append([float(trainer.step(queries, generator)) for queries in full])
        else:
            values.append([float(trainer._step(queries, NegativeSample())) for queries in full])
    assert values[0] == pytest.approx(values[1], rel=1e-3)


@pytest.mark.parametrize("settings", SAMPLES)
@pytest.mark.gpu
def test_captured_steps_have_the_values_and_gradients_of_plain_ones(settings: list[str]) -> None:
    # A tiny rate: AdaGrad turns a rounding error near zero into a whole step. The sums of squared
    # gradients show what the gradients were.
    small = ["model.dim=8", "model.scale=0.5", "optimizer.learning_rate=1e-9"]
    recipe = Recipe().with_settings([*small, "training.batch_size=64", *settings])
    graph = read_graph("countries")
    queries = Queries.of(torch.from_numpy(graph.train).to(CUDA), "tail")
    values, sums = [], []
    for captured in (True, False):
        trainer, generator = Trainer(recipe, graph, CUDA), torch.Generator(CUDA)
        for step in range(10):
            batch = queries[64 * step : 64 * step + 64]
            generator.manual_seed(step)
            if captured:
                values.append(float(trainer.step(batch, generator)))
            else:
                sample = draw_sample(recipe, trainer.model, batch, graph.n_entities, generator)
                value = float(trainer._step(batch, sample))
                assert value == pytest.approx(values[step], rel=1e-3)
        sums.append(optimizer_tensors(trainer.optimizer, trainer.tables))
    torch.testing.assert_close(*sums, rtol=1e-2, atol=1e-6)


GROUPED = ["loss.grouped=true", "model.dim=8", "model.scale=0.5", "training.batch_size=40"]
GROUPED_FORMS: list[list[str]] = [
    [],
    ["loss.name=logistic"],
    ["loss.class_weights=true", "regularizer.name=dura"],
    ["model.name=rotate"],
]


@pytest.mark.usefixtures("quick_data")
@pytest.mark.parametrize("settings", GROUPED_FORMS)
def test_the_shapes_of_a_grouped_step_depend_on_the_number_of_answers(settings: list[str]) -> None:
    recipe, graph = Recipe().with_settings([*GROUPED, *settings]), read_graph("countries")
    trainer, generator = Trainer(recipe, graph, CPU), torch.Generator().manual_seed(0)
    assert is_captured(recipe, CUDA)
    seen: dict[int, set[tuple[Any, ...]]] = {}
    for queries in trainer.batches(torch.from_numpy(graph.train), generator)[1]:
        shapes = Shapes()
        with shapes:
            trainer.gradients(queries.padded(), NegativeSample())
        assert not {"aten::nonzero", "aten::item", "aten::_local_scalar_dense"} & shapes.names
        if len(queries) == 40:
            seen.setdefault(len(queries.padded().answer), set()).add(tuple(shapes.shapes))
    assert len(seen) > 1
    assert all(len(shapes) == 1 for shapes in seen.values())


def test_padding_changes_no_gradient() -> None:
    recipe, graph = Recipe().with_settings(GROUPED), read_graph("countries")
    trainer, generator = Trainer(recipe, graph, CPU), torch.Generator().manual_seed(0)
    queries = next(trainer.batches(torch.from_numpy(graph.train), generator)[1])
    found = []
    for some in (queries, queries.padded()):
        value = trainer.gradients(some, NegativeSample())
        found.append([value, *(table.grad for table in trainer.tables.parameters())])
    assert len(queries.padded().answer) > len(queries.answer)
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-7)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("settings", GROUPED_FORMS)
def test_captured_grouped_steps_have_the_values_and_gradients_of_plain_ones(
    settings: list[str], precision: str
) -> None:
    tiny = ["optimizer.learning_rate=1e-9", f"hardware.precision={precision}"]
    recipe, graph = Recipe().with_settings([*GROUPED, *tiny, *settings]), read_graph("countries")
    values, sums = [], []
    for captured in (True, False):
        trainer, generator = Trainer(recipe, graph, CUDA), torch.Generator(CUDA).manual_seed(0)
        batches = trainer.batches(torch.from_numpy(graph.train).to(CUDA), generator)[1]
        take = trainer.step if captured else trainer._step
        none = generator if captured else NegativeSample()
        values.append([float(take(queries, none)) for queries in islice(batches, 40)])
        sums.append(optimizer_tensors(trainer.optimizer, trainer.tables))
        if captured:
            assert trainer._captured is not None
            assert len(trainer._captured._graphs) > 1
    assert values[0] == pytest.approx(values[1], rel=1e-3)
    torch.testing.assert_close(*sums, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(
    "setting",
    [
        "training.micro_batch=10",
        "loss.mask_known=true",
        "loss.distillation=1",
        "hardware.deterministic=true",
        "optimizer.name=sgd",
        "hardware.table=host",
    ],
)
def test_a_step_that_waits_or_whose_shapes_vary_is_not_captured(setting: str) -> None:
    assert is_captured(Recipe(), CUDA)
    assert not is_captured(Recipe().with_settings([setting]), CUDA)


def test_a_cpu_captures_nothing() -> None:
    assert not is_captured(Recipe(), CPU)
