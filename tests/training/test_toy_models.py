"""Models with four axes, wide relations, a shared tensor or two roles train like the others."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch

from allneg.errors import Interrupted
from allneg.evaluation import evaluate
from allneg.graph import Graph
from allneg.predict.predictor import Predictor
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.verify import verify
from allneg.training import fit
from allneg.training.memory import plan
from toy_models import TOY_MODELS

pytestmark = pytest.mark.usefixtures("toy_models")


@pytest.mark.parametrize("name", TOY_MODELS)
def test_it_learns_is_saved_and_resumed_to_the_byte_and_ranks(
    name: str,
    made: Callable[..., Run],
    trained: Callable[..., Run],
    content: Callable[[Run], dict[str, Any]],
    tiny_graph: Graph,
) -> None:
    settings = [f"model.name={name}", "model.scale=0.3", "regularizer.name=none"]
    settings += ["training.epochs=40", "evaluation.every=20", "model.dim=8"]
    run, steps = made(*settings), 0

    def stop_after_33_steps() -> int:
        nonlocal steps
        steps += 1
        return signal.SIGTERM if steps == 33 else 0

    with pytest.raises(Interrupted):
        fit(run, stopped_by=stop_after_33_steps)
    fit(Run.open(run.folder))
    uninterrupted = trained(*settings)
    assert content(run) == content(uninterrupted)
    assert all(check.wrong is None for check in verify(run.folder, rank=True))
    assert evaluate(run.model, run.tables(), tiny_graph, "train").mrr > 0.6
    answers = Predictor.load(run.folder, device="cpu").tails("France", "borders", k=5)
    assert len(answers) == 5


@pytest.mark.parametrize("name", TOY_MODELS)
def test_its_plan_counts_every_parameter(
    name: str, quick: Callable[..., Recipe], made: Callable[..., Run], tiny_graph: Graph
) -> None:
    recipe = quick(f"model.name={name}", "training.epochs=1")
    run = made(f"model.name={name}", "training.epochs=1")
    fit(run)
    numbers = sum(rows.numel() for rows in run.tables().weights().values())
    assert plan(recipe, tiny_graph, torch.device("cpu")).kept["tables"] == 4 * numbers


@pytest.mark.parametrize("reciprocal", ["true", "false"])
def test_unused_halves_of_rows_stay_as_they_were(
    reciprocal: str, trained: Callable[..., Run], tiny_graph: Graph
) -> None:
    """An entity that is never a head keeps its initial head half, whatever the regularizer."""
    settings = ["model.name=cp", "optimizer.name=sgd", "regularizer.weight=1", "loss.block=1"]
    settings += ["loss.negatives=per_query", "loss.n_negatives=1", f"model.reciprocal={reciprocal}"]
    settings += ["training.epochs=1", "model.scale=0.5", "training.batch_size=100"]
    start = trained(*settings, "optimizer.learning_rate=1e-30").tables().entities
    for name in ("l2", "n3", "dura"):
        end = trained(*settings, f"regularizer.name={name}").tables().entities
        none = trained(*settings, "regularizer.name=none").tables().entities
        shrunk = (end - none).abs() > 1e-7  # by the regularizer alone
        heads = set(tiny_graph.train[:, 0].tolist())
        tails = set(tiny_graph.train[:, 2].tolist())
        if reciprocal == "true":  # every known entity is a head, and every answer a tail
            heads = tails = heads | tails
        for entity in range(len(start)):
            assert shrunk[entity, :4].any() == (entity in heads)
            assert shrunk[entity, 4:].any() == (entity in tails)
