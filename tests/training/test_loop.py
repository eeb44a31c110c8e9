from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from allneg.errors import Diverged, Interrupted, RecipeError, RunError
from allneg.evaluation import Report, evaluate, evaluate_baselines, selection_protocol
from allneg.graph import Graph
from allneg.models import MODELS
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.training import Callbacks, fit
from allneg.training.trainer import Trainer

Trained = Callable[..., Run]

# A rate so small that nothing changes: no evaluation after the first is better.
STILL = ("optimizer.name=sgd", "optimizer.learning_rate=1e-30")


def valid_mrrs(run: Run) -> dict[int, float]:
    """The MRR of every evaluation, by epoch."""
    return {e["epoch"]: e["valid"]["mrr"] for e in run.metrics() if "valid" in e}


def test_the_same_seed_gives_the_same_bytes(
    trained: Trained, content: Callable[[Run], dict[str, Any]]
) -> None:
    first = content(trained("training.seed=7"))
    assert content(trained("training.seed=7")) == first
    other = content(trained("training.seed=8"))
    assert other["tables.safetensors"] != first["tables.safetensors"]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_learns_its_training_triples(
    trained: Trained, tiny_graph: Graph, model: str
) -> None:
    run = trained(
        f"model.name={model}",
        "model.dim=16",
        "training.epochs=80",
        "training.batch_size=20",
        "regularizer.name=none",
        "evaluation.every=80",
        "model.scale=0.1",
    )
    losses = [entry["loss"] for entry in run.metrics()]
    assert losses[-1] < 0.5 * losses[0]
    assert evaluate(run.model, run.tables(), tiny_graph, "train").mrr > 0.8


def test_training_stops_when_patience_runs_out(trained: Trained) -> None:
    run = trained(*STILL, "training.epochs=100", "evaluation.every=3", "evaluation.patience=2")
    assert list(valid_mrrs(run)) == [3, 6, 9]
    assert len(run.metrics()) == 9
    status = run.status
    assert status.pop("peak_bytes") > 0
    assert status == {"state": "finished", "epoch": 9, "best_epoch": 3}


def test_the_last_epoch_is_always_evaluated(trained: Trained) -> None:
    run = trained("training.epochs=5", "evaluation.every=3")
    assert list(valid_mrrs(run)) == [3, 5]


def test_valid_is_ranked_with_the_filter_of_the_recipe(trained: Trained, tiny_graph: Graph) -> None:
    mrrs = {}
    for rule in ("all", "seen"):
        run = trained("training.seed=1", "training.epochs=1", f"evaluation.filter={rule}")
        rules = selection_protocol(run.recipe.evaluation)
        mrrs[rule] = evaluate(run.model, run.tables(), tiny_graph, "valid", rules).mrr
        assert valid_mrrs(run) == {1: mrrs[rule]}
        assert run.report.protocol["valid_filter"] == rule
    # Test has two more answers to (?, in, Europe), of which one ranks above that of valid.
    assert mrrs["all"] > mrrs["seen"]


def test_the_report_on_test_has_baselines(
    trained: Trained, made: Trained, tiny_graph: Graph
) -> None:
    run = trained("training.epochs=1")
    assert run.report.baselines == evaluate_baselines(tiny_graph, "test")
    searched = made("training.epochs=1")
    fit(searched, split="valid")
    assert searched.report.protocol["split"] == "valid"
    assert searched.report.baselines == {}


def test_the_best_weights_are_kept_and_not_the_last(trained: Trained, tiny_graph: Graph) -> None:
    # A rate so high that the validation MRR goes up and down.
    run = trained(
        "optimizer.learning_rate=1",
        "training.epochs=30",
        "evaluation.every=1",
        "evaluation.patience=30",
    )
    mrrs = valid_mrrs(run)
    best = run.status["best_epoch"]
    assert mrrs[best] == max(mrrs.values())
    assert mrrs[best] > mrrs[30]
    assert evaluate(run.model, run.tables(), tiny_graph, "valid").mrr == mrrs[best]
    assert run.report.mrr == evaluate(run.model, run.tables(), tiny_graph, "test").mrr
    last = run.last()
    assert last is not None
    assert not last.tables["entities"].equal(run.tables().entities)


@pytest.mark.parametrize(
    "settings",
    [
        ("regularizer.weight=0.1",),
        ("loss.negatives=shared", "loss.n_negatives=4", "loss.correction=true"),
        ("loss.label_smoothing=0.1", "model.entity_dropout=0.3", "model.relation_dropout=0.3"),
    ],
    ids=lambda settings: settings[0],
)
def test_micro_batches_add_up_to_the_whole_batch(
    trained: Trained, settings: tuple[str, ...]
) -> None:
    # SGD: the first step of AdaGrad turns a rounding error into a whole step.
    settings = (*settings, "model.scale=0.5", "optimizer.name=sgd", "training.epochs=3")
    whole = trained(*settings).tables()
    parts = trained(*settings, "training.micro_batch=3").tables()
    start = trained(*settings, "optimizer.learning_rate=1e-30").tables()
    for name in ("entities", "relations"):
        one, other = getattr(whole, name), getattr(parts, name)
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(one, getattr(start, name), rtol=1e-4, atol=1e-5)


@pytest.mark.battery(30)
def test_a_loss_that_is_not_finite_ends_the_run(made: Trained) -> None:
    run = made("optimizer.name=sgd", "optimizer.learning_rate=1e30", "model.scale=1")
    with pytest.raises(Diverged, match=r"learning rate 1e\+30.*\n.*learning_rate") as caught:
        fit(run)
    assert caught.value.exit_code == 5
    assert run.status["state"] == "diverged"
    assert not run.finished
    with pytest.raises(RunError, match="diverged, so there is no report"):
        assert run.report
    assert run.last() is None  # tables whose own loss is not finite are not kept


@pytest.mark.battery(30)
@pytest.mark.parametrize("scale, what", [(1, "a score of test"), (1e9, "a row")])
def test_a_divergence_in_the_last_step_is_found_without_valid(
    made: Trained, tiny_graph: Graph, scale: float, what: str
) -> None:
    graph = replace(tiny_graph, valid=tiny_graph.valid[:0])
    wild = ("optimizer.name=sgd", "optimizer.learning_rate=1e30", "regularizer.name=none")
    one_step = ("training.epochs=1", "training.batch_size=1000")
    run = made(*wild, *one_step, f"model.scale={scale}", graph=graph)
    with pytest.raises(Diverged, match=what):
        fit(run)
    assert run.status["state"] == "diverged"


@pytest.mark.battery(30)
def test_the_best_weights_survive_a_divergence(made: Trained, trained: Trained) -> None:
    # A schedule that multiplies the rate by 1e30 after two good epochs.
    settings = ("optimizer.schedule=step", "optimizer.every=2", "optimizer.decay=1e30")
    run = made(*settings, "optimizer.name=sgd", "evaluation.every=2", "training.epochs=10")
    good = trained("optimizer.name=sgd", "evaluation.every=2", "training.epochs=2")
    for _ in range(2):  # resuming raises the same error
        with pytest.raises(Diverged, match="of epoch 2, are kept"):
            fit(run)
        assert run.tables().entities.equal(good.tables().entities)
        assert run.status["state"] == "diverged"


def test_a_diverged_run_cannot_be_resumed(made: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    step, n_steps = Trainer.step, 0

    def spoiled(trainer: Trainer, *rest: Any) -> Tensor:
        nonlocal n_steps
        n_steps += 1
        return step(trainer, *rest) * (torch.inf if n_steps == 20 else 1.0)

    monkeypatch.setattr(Trainer, "step", spoiled)
    run = made("optimizer.name=adagrad", "training.epochs=10")
    with pytest.raises(Diverged):
        fit(run)
    at = n_steps
    with pytest.raises(Diverged, match="is not finite"):
        fit(run)
    assert n_steps == at
    assert not run.finished


def test_the_peak_of_memory_is_that_of_all_sessions(
    made: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made("training.epochs=4")
    monkeypatch.setitem(fit.__globals__, "peak_bytes", lambda _: 7 << 40)
    with pytest.raises(Interrupted):
        fit(run, stopped_by=lambda: signal.SIGTERM)
    monkeypatch.setitem(fit.__globals__, "peak_bytes", lambda _: 1 << 40)
    fit(run)
    assert run.status["peak_bytes"] == 7 << 40


def test_without_valid_the_last_weights_count(trained: Trained, tiny_graph: Graph) -> None:
    graph = replace(tiny_graph, valid=tiny_graph.valid[:0])
    run = trained("training.epochs=3", "evaluation.patience=1", graph=graph)
    assert len(run.metrics()) == 3
    assert valid_mrrs(run) == {}
    assert run.report.protocol["split"] == "test"
    last = run.last()
    assert last is not None
    assert last.tables["entities"].equal(run.tables().entities)


def test_without_test_the_report_is_on_valid(trained: Trained, tiny_graph: Graph) -> None:
    run = trained(graph=replace(tiny_graph, test=tiny_graph.test[:0]))
    assert run.report.protocol["split"] == "valid"
    assert run.report.mrr == max(valid_mrrs(run).values())


def test_without_valid_and_test_there_is_no_report(made: Trained, tiny_graph: Graph) -> None:
    run = made(graph=replace(tiny_graph, valid=tiny_graph.valid[:0], test=tiny_graph.test[:0]))
    assert fit(run) is None
    assert run.finished
    assert not run.has_report
    assert run.tables().entities.isfinite().all()


class _Listener(Callbacks):
    def __init__(self) -> None:
        self.epochs = 0
        self.steps: list[tuple[int, int, int]] = []
        self.rankings: list[tuple[int, float]] = []
        self.saved: list[tuple[int, int]] = []

    def on_start(self, epochs: int) -> None:
        self.epochs = epochs

    def on_step(self, state: State, n_steps: int) -> None:
        self.steps.append((state.epoch, state.step, n_steps))

    def on_evaluation(self, state: State, report: Report) -> None:
        self.rankings.append((state.epoch, report.mrr))

    def on_save(self, state: State) -> None:
        self.saved.append((state.epoch, state.step))


def test_callbacks_get_every_step_evaluation_and_checkpoint(trained: Trained) -> None:
    callbacks = _Listener()
    run = trained("training.epochs=3", callbacks=callbacks)
    assert callbacks.epochs == 3
    # 20 triples with two queries each are 5 batches of 8.
    assert callbacks.steps == [(epoch, step, 5) for epoch in range(3) for step in range(1, 6)]
    assert callbacks.rankings == list(valid_mrrs(run).items())
    assert callbacks.saved == [(3, 0)]


@pytest.mark.battery(35)
def test_a_run_that_is_being_trained_is_refused(made: Trained) -> None:
    run = made("training.epochs=1")
    with run.locked(), pytest.raises(RecipeError, match="is being trained"):
        fit(run)
    fit(run)
    assert run.finished


def test_settings_of_torch_by_others_change_nothing(made: Trained) -> None:
    usual, odd = made("training.epochs=2"), made("training.epochs=2")
    fit(usual)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            fit(odd)
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert odd.tables().entities.equal(usual.tables().entities)
