"""A module outside the package adds a model, loss, regularizer, optimizer and metric to the dicts.

`PACKAGE` is such a module: a user's own file. `DICTS` says which dict takes which of its names; a
new kind of extension is one more line in both.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import allneg
from allneg.errors import Interrupted
from allneg.evaluation.report import METRICS
from allneg.graph import read_graph
from allneg.models import MODELS
from allneg.recipe import Loss, Recipe
from allneg.runs import Run
from allneg.scoring.losses import LOSSES
from allneg.scoring.regularizers import REGULARIZERS
from allneg.training import fit, train
from allneg.training.memory import plan
from allneg.training.optimizers import OPTIMIZERS
from processes import stop_after

PACKAGE = '''
import numpy
import torch
from torch import Tensor

from allneg.models import Model
from allneg.scoring.losses import Loss
from allneg.scoring.regularizers import Regularizer
from allneg.training.optimizers import OptimizerKind


class Shifted(Model):
    """score(h, r, t) = <(h + r) * c, t>, where c weighs the coordinates by their number."""

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return (head + relation) * torch.arange(1.0, self.dim + 1, device=head.device)

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        raise NotImplementedError("for reciprocal relations alone")


class Squares(Loss):
    """(answer - 1)² plus the sum of the squared scores of the negatives."""

    score_copies = 1.0

    def reduce(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(scores == -torch.inf, 0.0).square().sum(1).unsqueeze(0)

    def value(self, state: Tensor) -> Tensor:
        return (state[0] - 1).square() + state[1]

    def grad_negatives(self, scores: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        return scores.masked_fill_(scores == -torch.inf, 0.0).mul_(2 * weight.unsqueeze(1))

    def grad_answer(self, state: Tensor) -> Tensor:
        return 2 * (state[0] - 1)


class Balance(Regularizer):
    """The squared sum of the coordinates of head, relation and tail."""

    def penalty(self, model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return sum(row.sum(1).square() for row in (head, relation, tail))


def _rmsprop(tables, rate):
    return torch.optim.RMSprop(tables.parameters(), lr=float(rate))


rmsprop = OptimizerKind(_rmsprop, state_tables=1)


def log_rank(ranks):
    """The mean of the logarithm of the ranks."""
    return numpy.log(ranks)
'''
# The dict, and the entry in it, of every extension.
DICTS: dict[str, tuple[dict[str, Any], str]] = {
    "Shifted": (MODELS, "shifted"),
    "Squares": (LOSSES, "squares"),
    "Balance": (REGULARIZERS, "balance"),
    "rmsprop": (OPTIMIZERS, "rmsprop"),
    "log_rank": (METRICS, "log_rank"),
}
SETTINGS = (
    "model.name=shifted", "model.dim=8", "model.scale=0.1", "loss.name=squares",
    "regularizer.name=balance", "regularizer.weight=0.001", "optimizer.name=rmsprop",
    "optimizer.learning_rate=0.001", "training.epochs=2", "training.batch_size=8",
    "evaluation.every=1", "hardware.threads=1",
)  # fmt: skip


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, imported, with its entries in the dicts; they are removed after the test."""
    path = tmp_path / "extensions.py"
    path.write_text(PACKAGE)
    specification = importlib.util.spec_from_file_location("extensions", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    for name, (entries, key) in DICTS.items():
        monkeypatch.setitem(entries, key, getattr(module, name))
    return module


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_extensions_train_save_resume_plan_and_predict(
    device: str, tiny_folder: Path, tmp_path: Path
) -> None:
    settings = [*SETTINGS, f"hardware.device={device}"]
    run = train(tiny_folder, settings=settings, out=tmp_path / "run")
    losses = [entry["loss"] for entry in run.metrics()]
    assert losses[1] < losses[0]
    assert 0 < run.report.mrr <= 1
    assert 0 <= run.report.metrics["log_rank"] < run.report.mr
    assert all("log_rank" in entry["valid"] for entry in run.metrics())

    with pytest.raises(Interrupted):
        train(tiny_folder, settings=settings, out=tmp_path / "resumed", stopped_by=stop_after(7))
    resumed = Run.open(tmp_path / "resumed")
    fit(resumed)
    tables, again = run.tables().weights(), resumed.tables().weights()
    if device == "cpu":
        assert all(rows.equal(again[name]) for name, rows in tables.items())
    else:  # atomic adds sum in any order
        torch.testing.assert_close(again, tables, rtol=1e-2, atol=1e-3)

    graph, recipe = read_graph(tiny_folder), Recipe().with_settings(settings)
    memory = plan(recipe, graph, torch.device(device))
    assert memory.kept["optimizer"] == memory.kept["tables"]
    assert memory.peak > memory.kept["tables"]
    assert "dot on" in memory.path
    head = graph.vocabulary.entities[int(graph.train[0, 0])]
    relation = graph.vocabulary.relations[int(graph.train[0, 1])]
    answers = allneg.load(run.folder, device=device).tails(head, relation, k=3)
    assert len(answers) == 3


def test_the_gradients_of_the_toy_loss_are_autograds(package: Any) -> None:
    """What every new loss should be tested for."""
    scores, target = torch.randn(4, 9, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    weight, loss = torch.rand(4), package.Squares(Loss())
    exact = scores.double().requires_grad_()
    inside = torch.arange(9) == target.unsqueeze(1)
    value = (exact - inside.double()).square()[:, :7].sum(1)
    (truth,) = torch.autograd.grad(value, exact, weight.double())
    state = loss.scan(scores.clone(), target, 7)
    torch.testing.assert_close(loss.value(state).double(), value.detach())
    found = loss.grad_scores(state, scores, target, 7, weight)
    torch.testing.assert_close(found.double(), truth)


def test_the_dicts_are_as_before() -> None:
    assert not any(key in entries for entries, key in DICTS.values())
