"""Training with the entity table in host memory gives the same rows as on the device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from allneg.evaluation import evaluate
from allneg.graph import Graph
from allneg.graph.queries import SIDES, Queries
from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.scoring import scores, streaming
from allneg.scoring.negatives import NegativeSample, draw_sample
from allneg.training import execution, fit
from allneg.training.memory import plan
from allneg.training.trainer import Trainer

CPU = torch.device("cpu")
HOST = "hardware.table=host"
STREAMED = "loss.block=40"  # of 8 queries: blocks of five rows, and two of the twelve left


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go through the buffers, even from the CPU to the CPU."""
    monkeypatch.setattr(streaming, "is_elsewhere", lambda rows, device: True)
    monkeypatch.setattr(streaming, "_BLOCK", 5)
    monkeypatch.setattr(execution, "MULTIPLE", 5)

    def blocks(rows: Tensor, size: int, query: Tensor) -> Iterator[tuple[int, Tensor]]:
        if rows.dim() == 3:  # a query's own rows are gathered on its device
            return iter([(0, rows)])
        return streaming.stream(rows, size, query.device)

    # The module and its function have the same name.
    monkeypatch.setattr(import_module("allneg.scoring.contrast"), "_blocks", blocks)


def after_steps(recipe: Recipe, graph: Graph, device: torch.device) -> Trainer:
    """A trainer after some steps."""
    trainer = Trainer(recipe, graph, device)
    trainer.set_rate(State())
    train = torch.from_numpy(graph.train).to(device)
    for epoch in range(2):
        for queries in trainer.batches(train, Generator(device).manual_seed(epoch))[1]:
            trainer.step(queries, Generator(device).manual_seed(2))
    return trainer


def assert_same(one: Trainer, other: Trainer) -> None:
    for name, rows in one.tables.weights().items():
        assert rows.equal(other.tables.weights()[name])


RECIPES = [
    *([f"model.name={name}"] for name in MODELS),
    ["optimizer.name=adam", "optimizer.learning_rate=0.01"],
    ["optimizer.name=sgd"],
    ["training.micro_batch=3"],
    ["loss.negatives=shared", "loss.n_negatives=5"],
    ["loss.negatives=per_query", "loss.n_negatives=3", "loss.mask_known=true"],
    ["loss.mask_known=true", "loss.subsampling=true"],
    ["loss.relation_weight=0.5", "model.reciprocal=false", "optimizer.name=sgd"],
    ["model.entity_dropout=0.3"],
    ["loss.grouped=true", "loss.name=logistic"],
]


@pytest.mark.parametrize("settings", RECIPES, ids=" ".join)
def test_the_rows_are_the_same(
    settings: list[str],
    quick: Callable[..., Recipe],
    tiny_graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr(execution, "MULTIPLE", 5)
    near = after_steps(quick(*settings, STREAMED), tiny_graph, CPU)
    request.getfixturevalue("streamed")
    far = after_steps(quick(*settings, STREAMED, HOST), tiny_graph, CPU)
    assert far.plan.host_table
    if "loss.relation_weight=0.5" in settings:
        # Three gradients of a row are added up in another order.
        torch.testing.assert_close(near.tables.weights(), far.tables.weights())
    else:
        assert_same(near, far)


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("name", MODELS)
def test_scores_and_ranks_are_the_same(
    name: str, quick: Callable[..., Recipe], tiny_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = after_steps(quick(f"model.name={name}", HOST, STREAMED), tiny_graph, CPU)
    test = torch.from_numpy(tiny_graph.test)
    far = [scores(host.model, host.tables, Queries.of(test, side)) for side in SIDES]
    report = evaluate(host.model, host.tables, tiny_graph)
    monkeypatch.undo()
    near = [scores(host.model, host.tables, Queries.of(test, side)) for side in SIDES]
    torch.testing.assert_close(far, near)
    assert evaluate(host.model, host.tables, tiny_graph).mrr == pytest.approx(report.mrr)


@pytest.mark.usefixtures("streamed")
def test_a_restored_trainer_takes_the_same_steps(
    quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    recipe = quick(HOST, STREAMED)
    first = after_steps(recipe, tiny_graph, CPU)
    first.keep_best(first.tables)
    second = Trainer(recipe, tiny_graph, CPU)
    saved = first.checkpoint(State(epoch=2, best_epoch=1))
    second.restore(copy.deepcopy(saved))  # as from a disk: the tensors are not shared
    queries = Queries.of(torch.from_numpy(tiny_graph.train[:8]), "tail")
    for trainer in (first, second):
        trainer.step(queries, Generator())
    assert_same(first, second)
    assert second.best["entities"].equal(first.best["entities"])


def test_a_whole_run_with_its_tables_on_the_host(
    quick: Callable[..., Recipe], tiny_graph: Graph, tmp_path: Path
) -> None:
    reports = []
    for number, settings in enumerate([[], [HOST]]):
        run = Run.create(tmp_path / str(number), quick(*settings), tiny_graph)
        reports.append(fit(run))
    assert reports[0].mrr == pytest.approx(reports[1].mrr)


def test_the_plan_moves_the_tables_to_the_host(
    quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    device = torch.device("cuda")
    near, far = (plan(quick(*more), tiny_graph, device) for more in ([], [HOST, STREAMED]))
    assert not near.host
    assert far.host.keys() <= near.kept.keys()
    assert not far.host.keys() & far.kept.keys()
    assert far.host["optimizer"] == near.kept["optimizer"]
    # 64 rows of 8 floats and 6 of relations, in a power of two.
    assert (near.kept["tables"], far.host["tables"]) == (4 * 8 * (64 + 6), 4096)
    assert far.training["streamed rows"] > 0
    assert plan(quick(HOST), tiny_graph, CPU).kept == plan(quick(), tiny_graph, CPU).kept
    assert "rows from host memory" in far.path
    assert (near.captured, far.captured) == (True, False)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", RECIPES, ids=" ".join)
def test_a_gpu_computes_the_same_gradients_from_host_memory(
    settings: list[str], quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    device = torch.device("cuda")
    # Gradients, not steps: AdaGrad's first step turns a rounding error into a whole step.
    exact = ["hardware.precision=float32", "model.scale=0.5", *settings, STREAMED]
    triples, found = torch.from_numpy(tiny_graph.train).to(device), []
    for more in ([], [HOST]):
        trainer = Trainer(quick(*exact, *more), tiny_graph, device)
        queries = next(trainer.batches(triples, Generator(device).manual_seed(3))[1])
        tables, sample = trainer.tables, NegativeSample()
        if trainer.plan.draws_sample:
            generator, n = Generator(device).manual_seed(2), tiny_graph.n_entities
            sample = draw_sample(trainer.recipe, trainer.model, queries, n, generator)
        total = trainer.gradients(queries, sample)
        assert tables.entities.grad is not None
        assert tables.relations.grad is not None
        found.append([total.cpu(), tables.entities.grad.cpu(), tables.relations.grad.cpu()])
        trainer.step(queries, Generator(device))
        assert all(rows.isfinite().all() for rows in tables.weights().values())
    assert tables.entities.is_pinned()
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
