"""Training with the tables in the host's memory: what is learnt is what a device would learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Generator

from allneg.evaluation import evaluate
from allneg.graph import Graph
from allneg.graph.queries import SIDES, Queries, batches
from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.scoring import feed, scores
from allneg.scoring.host import HostTables
from allneg.training import fit
from allneg.training.captured import is_captured
from allneg.training.plan import how, plan
from allneg.training.trainer import Trainer

CPU = torch.device("cpu")
HOST = "hardware.table=host"
STREAMED = "loss.block=40"  # of 8 queries: blocks of five rows, and two of the twelve left


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows travel even from the CPU to the CPU, through the buffers."""
    monkeypatch.setattr(feed, "is_elsewhere", lambda rows, device: True)
    monkeypatch.setattr(feed, "_PIECE", 5)
    monkeypatch.setattr("allneg.scoring.streamed.MULTIPLE", 5)


def learnt(recipe: Recipe, graph: Graph, device: torch.device) -> Trainer:
    """A trainer after some steps."""
    trainer = Trainer(recipe, graph, device)
    trainer.set_rate(State())
    train = torch.from_numpy(graph.train).to(device)
    for epoch in range(2):
        for queries in batches(train, 8, Generator(device).manual_seed(epoch)):
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
]


@pytest.mark.parametrize("settings", RECIPES, ids=" ".join)
def test_what_is_learnt_is_the_same(
    settings: list[str],
    quick: Callable[..., Recipe],
    tiny_graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("allneg.scoring.streamed.MULTIPLE", 5)
    near = learnt(quick(*settings, STREAMED), tiny_graph, CPU)
    monkeypatch.setattr(feed, "is_elsewhere", lambda rows, device: True)
    far = learnt(quick(*settings, STREAMED, HOST), tiny_graph, CPU)
    assert isinstance(far.tables, HostTables)
    if "loss.relation_weight=0.5" in settings:
        # Three gradients of a row are added up in another order.
        torch.testing.assert_close(near.tables.weights(), far.tables.weights())
    else:
        assert_same(near, far)


@pytest.mark.usefixtures("far_away")
@pytest.mark.parametrize("name", MODELS)
def test_scores_and_ranks_are_the_same(
    name: str, quick: Callable[..., Recipe], tiny_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = learnt(quick(f"model.name={name}", HOST, STREAMED), tiny_graph, CPU)
    test = torch.from_numpy(tiny_graph.test)
    far = [scores(host.model, host.tables, Queries.of(test, side)) for side in SIDES]
    report = evaluate(host.model, host.tables, tiny_graph)
    monkeypatch.undo()
    near = [scores(host.model, host.tables, Queries.of(test, side)) for side in SIDES]
    torch.testing.assert_close(far, near)
    assert evaluate(host.model, host.tables, tiny_graph).mrr == pytest.approx(report.mrr)


@pytest.mark.usefixtures("far_away")
def test_a_run_goes_on_from_its_checkpoint(quick: Callable[..., Recipe], tiny_graph: Graph) -> None:
    recipe = quick(HOST, STREAMED)
    first = learnt(recipe, tiny_graph, CPU)
    first.keep()
    second = Trainer(recipe, tiny_graph, CPU)
    second.restore(first.checkpoint(State(epoch=2, best_epoch=1)))
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
    assert far.training["rows on their way"] > 0
    assert plan(quick(HOST), tiny_graph, CPU).kept == plan(quick(), tiny_graph, CPU).kept
    assert "rows from the host's memory" in how(quick(HOST), 12, device)
    assert not is_captured(quick(HOST), device)
    assert is_captured(quick(), device)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", RECIPES, ids=" ".join)
def test_a_gpu_finds_the_same_gradients_from_the_host(
    settings: list[str], quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    device = torch.device("cuda")
    # AdaGrad's first step would make a large difference of a rounded one, so that steps are not
    # compared; the optimiser is the CPU's own.
    exact = ["hardware.precision=float32", "model.scale=0.5", *settings, STREAMED]
    queries = next(batches(torch.from_numpy(tiny_graph.train).to(device), 8, Generator(device)))
    found = []
    for more in ([], [HOST]):
        trainer = Trainer(quick(*exact, *more), tiny_graph, device)
        tables, chance = trainer.tables, Generator(device).manual_seed(2)
        drawn = trainer.objective.draw(tables, queries, chance)
        total = trainer._gradients(queries, drawn)
        assert tables.entities.grad is not None
        assert tables.relations.grad is not None
        found.append([total.cpu(), tables.entities.grad.cpu(), tables.relations.grad.cpu()])
        trainer.step(queries, Generator(device))
        assert all(each.isfinite().all() for each in tables.weights().values())
    assert tables.entities.is_pinned()
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
