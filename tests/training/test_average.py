"""The mean of the tables over epochs: against loops, and kept only where valid MRR is higher."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Generator

from allneg.evaluation import evaluate
from allneg.graph import Graph
from allneg.graph.queries import Queries
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training.memory import plan
from allneg.training.trainer import Trainer

CPU = torch.device("cpu")
# A rate so high that the validation MRR goes up and down.
JUMPING = (
    "optimizer.learning_rate=1", "training.epochs=12", "evaluation.every=1",
    "evaluation.patience=30",
)  # fmt: skip


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_an_epoch_counts_as_often_as_the_recipe_says(
    decay: float, optimizer: str, quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    recipe = quick(f"training.average={decay}", f"optimizer.name={optimizer}", "model.name=tucker")
    trainer = Trainer(recipe, tiny_graph, CPU)
    queries = Queries.of(torch.from_numpy(tiny_graph.train), "tail")
    seen: list[dict[str, torch.Tensor]] = []
    for epoch in range(1, 6):
        trainer.step(queries, Generator())
        trainer.update_average(epoch)
        seen.append({name: rows.double() for name, rows in trainer.tables.weights().items()})
    counts = [decay ** (5 - epoch) for epoch in range(1, 6)]
    found = trainer.average().weights()
    assert found.keys() == {"entities", "relations", "shared"}
    for name, rows in found.items():
        truth = sum(c * tables[name] for c, tables in zip(counts, seen, strict=True)) / sum(counts)
        torch.testing.assert_close(rows.double(), truth, rtol=1e-5, atol=1e-7)


def test_the_better_of_tables_and_average_is_kept(
    trained: Callable[..., Run], tiny_graph: Graph
) -> None:
    plain, run = trained(*JUMPING), trained(*JUMPING, "training.average=0.8")
    before = [entry["valid"]["mrr"] for entry in plain.metrics()]
    after = [entry["valid"]["mrr"] for entry in run.metrics()]
    averaged = [entry["averaged"] for entry in run.metrics()]
    # The tables take the same steps; an average counts only where it is better.
    assert {True, False} == set(averaged)
    for old, new, is_better in zip(before, after, averaged, strict=True):
        assert new > old if is_better else new == old
    assert max(after) >= max(before)
    assert evaluate(run.model, run.tables(), tiny_graph, "valid").mrr == max(after)
    assert run.report.mrr == evaluate(run.model, run.tables(), tiny_graph, "test").mrr


def test_a_plan_counts_the_average(quick: Callable[..., Recipe], tiny_graph: Graph) -> None:
    kept = plan(quick("training.average=0.9"), tiny_graph, CPU).kept
    assert kept["averaged tables"] == kept["tables"]
