"""The training loop: epochs of steps, rankings of valid, checkpoints, the final report."""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Generator

from allneg.errors import Diverged, Interrupted, ResourceError, RunError
from allneg.evaluation import (
    Report,
    calibrate,
    evaluate,
    evaluate_baselines,
    selection_protocol,
)
from allneg.hardware import device_errors, peak_bytes, reset_peak, torch_settings
from allneg.kernels.engines import using
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import Checkpoint, State
from allneg.runs.run import LOST
from allneg.scoring import Shard, Tables
from allneg.scoring.distributed import SINGLE_PROCESS, World
from allneg.scoring.tables import mixed_seed
from allneg.training.callbacks import Callbacks
from allneg.training.checkpointer import Checkpointer
from allneg.training.forecast import Forecast
from allneg.training.interrupt import interruptible
from allneg.training.launch import StepDecision
from allneg.training.partial import PartialTrainer, make_trainer
from allneg.training.warm_up import first_kernel, in_background

_CHECK_EVERY = 50  # steps on a GPU between two checks whether the loss is finite


def fit(
    run: Run,
    callbacks: Callbacks | None = None,
    stopped_by: Callable[[], int] | None = None,
    split: str = "test",
    again: str | None = None,
) -> Report | None:
    """Train a run from its last checkpoint to its end, and return the report on a split.

    If the split is empty, the report is on valid; without valid it is None. `stopped_by` returns
    the number of a received signal, or 0. After a signal, the run is saved and `Interrupted` is
    raised. Without `stopped_by`, Ctrl-C saves the run and raises `KeyboardInterrupt`. A resumed
    run equals an uninterrupted one. It is an error if another process trains the run. Errors say
    that `again` continues the run: by default, `allneg resume`.
    """
    with run.locked(), interruptible(stopped_by) as stop:
        return run_training(run, callbacks, stop, split, again=again)


def run_training(
    run: Run,
    callbacks: Callbacks | None = None,
    stopped_by: Callable[[], int] = lambda: 0,
    split: str = "test",
    world: World = SINGLE_PROCESS,
    start: Checkpoint | None = None,
    again: str | None = None,
) -> Report | None:
    """As `fit`, for a run that the caller has locked. Every process of `world` calls this.

    A new run may begin at `start`, which is not written.
    """
    if (status := run.status)["state"] == "diverged":
        # The optimizer's state is lost, so training cannot continue as the recipe specifies.
        raise Diverged(status.get("reason", "it has diverged; lower optimizer.learning_rate"))
    hardware, report, callbacks = run.recipe.hardware, None, callbacks or Callbacks()
    again = again or f"`allneg resume {run.folder}`"
    remedy = f"Saved checkpoints are kept. Check the device; then {again} continues the run."
    with torch_settings(hardware) as device, using(hardware.engine), torch.enable_grad():
        reset_peak(device)
        callbacks.on_run(run)
        try:
            with device_errors(device, _need_less(run.recipe), remedy):
                with in_background(first_kernel, hardware):
                    decision = StepDecision(world, stopped_by)
                    loop = _Loop(run, device, callbacks, decision, start, again)
                loop.train()
                report = loop.finish(split)
        except ResourceError as error:
            with contextlib.suppress(ResourceError):  # the disk may also be full
                run.set_status("failed", reason=str(error))
            raise
        finally:
            callbacks.on_end(report)
    return report


class _Loop:
    """A training in progress."""

    def __init__(
        self,
        run: Run,
        device: torch.device,
        callbacks: Callbacks,
        decision: StepDecision,
        start: Checkpoint | None,
        again: str,
    ) -> None:
        self.run, self.device, self.callbacks, self.decision = run, device, callbacks, decision
        self.again = again
        self.recipe, self.graph, self.world = run.recipe, run.graph, decision.world
        shard = Shard.of(self.graph.n_entities, self.world)
        saved = run.last(callbacks.on_message, shard) if start is None else start
        if saved is None and run.parents:
            raise RunError(f"{run.folder}: {LOST}")
        of_run = self.recipe, self.graph, device, self.world, run.parents
        self.trainer = make_trainer(*of_run, is_restored=saved is not None)
        self.checkpointer = Checkpointer(run, callbacks, again, self.world)
        self.state = State()
        if saved is not None:
            self.trainer.restore(saved)
            self.state = saved.state
        run.rewind(self.state.epoch)
        run.set_status("running")
        self.start = time.perf_counter() - self.state.seconds
        callbacks.on_start(self.recipe.training.epochs)
        callbacks.on_message(str(self.trainer.plan))
        self.forecast = Forecast(self.trainer, self.graph, self.recipe)

    def train(self) -> None:
        """Train to the recipe's last epoch, or until the validation MRR stops improving."""
        triples = torch.from_numpy(self.graph.train).to(self.device)
        exact = torch.float32 if self.device.type == "mps" else torch.float64
        total = torch.tensor(self.state.loss, dtype=exact, device=self.device)
        while self.state.epoch < self.recipe.training.epochs and not self._is_done():
            rate = self.trainer.begin_epoch(self.state)
            n_steps = self._epoch(triples, total)
            epoch = self.state.epoch + 1
            self.trainer.update_average(epoch)
            self.state = replace(self.state, epoch=epoch, step=0, loss=0.0)
            metrics = {"epoch": epoch, "loss": float(total) / n_steps, "rate": rate}
            total.zero_()
            entry = {**metrics, **self._evaluate(), "seconds": self.seconds}
            self.checkpointer.add_metrics(entry)
            self.callbacks.on_epoch(entry)
            is_last = epoch == self.recipe.training.epochs or self._is_done()
            if is_last or self.world.max(self.world.is_rank_zero and self.checkpointer.is_due()):
                self._save(required=is_last)

    def _epoch(self, triples: torch.Tensor, total: torch.Tensor) -> int:
        """The steps of an epoch that are left; adds their losses to `total`."""
        training, epoch = self.recipe.training, self.state.epoch
        order = Generator(self.device).manual_seed(mixed_seed(training.seed, 2, epoch))
        generator = Generator(self.device)
        n_steps, batches = self.trainer.batches(triples, order)
        for step, queries in enumerate(batches):
            if step < self.state.step:
                continue  # done before an interruption
            generator.manual_seed(mixed_seed(training.seed, 3, epoch, step))
            total += self.trainer.step(queries, generator)
            signal_number, is_due = self.decision(self.checkpointer.is_due())
            is_last = step + 1 == n_steps
            is_cheap = self.device.type == "cpu" or step % _CHECK_EVERY == 0
            if (is_due or is_last or is_cheap) and not math.isfinite(total):
                self._diverge(f"the loss at epoch {epoch + 1}, step {step}")
            self.state = replace(self.state, step=step + 1)
            self.callbacks.on_step(self.state, n_steps)
            if not self.forecast.is_done and (
                message := self.forecast(queries, n_steps, training.epochs - epoch)
            ):
                self.callbacks.on_message(message)
            if signal_number or (is_due and not is_last):
                self.state = replace(self.state, loss=float(total))
                self._save(required=signal_number != 0)
            if signal_number:
                self.run.set_status("interrupted", epoch=epoch, step=self.state.step)
                self.world.max(0)  # the launcher may kill the others when one process ends
                raise Interrupted(f"stopped and saved; {self.again} continues it", signal_number)
        return n_steps

    def _evaluate(self) -> dict[str, Any]:
        """Rank valid if it is due; returns the entry for the metrics."""
        epoch, is_last = self.state.epoch, self.state.epoch == self.recipe.training.epochs
        is_time = is_last or epoch % self.recipe.evaluation.every == 0
        if len(self.graph.valid) and is_time:
            tables, average = self.trainer.tables, self.trainer.average()
            report, more = self._report("valid", tables), {}
            if average is not None:
                of_average = self._report("valid", average)
                if is_better := of_average.mrr > report.mrr:
                    tables, report = average, of_average
                more = {"averaged": is_better}
            self.state = update_best(self.state, report.mrr, self.recipe)
            if self.state.best_epoch == epoch:
                self.trainer.keep_best(tables)
            self.callbacks.on_evaluation(self.state, report)
            metrics = report.metrics.items()
            return {"valid": {name: value for name, value in metrics if name != "count"}, **more}
        if is_last and not self._is_finite():
            self._diverge(f"a row after epoch {epoch}")
        return {}

    def finish(self, split: str) -> Report | None:
        """Report on a split with the best weights, or on valid if the split is empty."""
        self.trainer.return_to_best()
        has_baselines = split == "test" and self.world.is_rank_zero  # no trial of a search
        split = split if len(self.graph.split(split)) else "valid"
        is_empty = not len(self.graph.split(split))
        report = None if is_empty else self._report(split, self.trainer.tables)
        if report is not None and has_baselines:
            if not isinstance(self.trainer, PartialTrainer):  # they take longer than an extension
                rules = selection_protocol(self.recipe.evaluation)
                # Some devices have no float64.
                where = self.device if self.device.type == "cuda" else torch.device("cpu")
                found = evaluate_baselines(self.graph, split, rules, where)
                report = replace(report, baselines=found)
            if self.world.size == 1:  # else `Predictor.calibration` learns it from whole tables
                curves = calibrate(self.trainer.model, self.trainer.tables, self.graph)
                report = replace(report, calibration=curves.to_json() if curves else {})
        state = self._with_costs()
        best_epoch, peak = state.best_epoch or state.epoch, state.peak_bytes or None
        self.run.finish(report, epoch=state.epoch, best_epoch=best_epoch, peak_bytes=peak)
        return report

    def _report(self, split: str, tables: Tables) -> Report:
        model, settings = self.trainer.model, self.recipe.evaluation
        rules, block = selection_protocol(settings), settings.block
        try:
            return evaluate(model, tables, self.graph, split, rules, block)
        except Diverged:
            self._diverge(f"a score of {split} after epoch {self.state.epoch}")

    def _is_done(self) -> bool:
        return should_stop(self.state, self.recipe)

    def _is_finite(self) -> bool:
        """Whether all rows are finite after the last step."""
        ends = [torch.stack(p.aminmax()) for p in self.trainer.tables.parameters() if p.numel()]
        return not self.world.max(not all(end.isfinite().all() for end in ends))

    def _save(self, required: bool) -> None:
        self.state = self._with_costs()
        self.checkpointer.save(self.trainer.checkpoint(self.state), required)

    def _diverge(self, what: str) -> NoReturn:
        """Keep the best weights, if there are any, and end with an error.

        The current tables are not kept: their loss is not finite.
        """
        trainer, state, kept = self.trainer, self.state, "Earlier checkpoints are kept"
        if trainer.best:
            trainer.return_to_best()
            trainer.optimizer.state.clear()  # it may also contain numbers that are not finite
            state = replace(state, epoch=state.best_epoch, step=0, loss=0.0)
            self.run.save(trainer.checkpoint(state), self.world)
            kept = f"The best weights, of epoch {state.epoch}, are kept"
        rate = self.recipe.optimizer.learning_rate
        reason = (
            f"{what} is not finite: the model has diverged (learning rate {rate:g}).\n{kept}; "
            "train again with a lower optimizer.learning_rate or a higher regularizer.weight."
        )
        self.run.set_status("diverged", epoch=state.epoch, step=state.step, reason=reason)
        raise Diverged(reason)

    @property
    def seconds(self) -> float:
        """Training time, including earlier sessions."""
        return time.perf_counter() - self.start

    def _with_costs(self) -> State:
        """The state with the time and peak memory of training."""
        peak = max(self.state.peak_bytes, peak_bytes(self.device) or 0)
        return replace(self.state, seconds=self.seconds, peak_bytes=peak)


def _need_less(recipe: Recipe) -> str:
    """What to lower when memory runs out in training."""
    size = recipe.training.micro_batch or recipe.training.batch_size
    # The rows of per-query negatives are held whole, whatever the block.
    blocks = {
        "all": "loss.block",
        "shared": "loss.n_negatives, loss.block",
        "per_query": "loss.n_negatives",
    }
    others = f"{blocks[recipe.loss.negatives]} or model.dim"
    if size == 1:
        return f"Saved checkpoints are kept. Lower {others}."
    return (
        f"Saved checkpoints are kept. Lower training.micro_batch to {size // 2}: the steps stay "
        f"the same and need less memory; if that is not enough, lower {others}."
    )


def update_best(state: State, mrr: float, recipe: Recipe) -> State:
    """The state after a ranking of valid gave `mrr`."""
    if mrr > state.best_mrr:
        return replace(state, best_mrr=mrr, best_epoch=state.epoch, stale=0, since_drop=0)
    state = replace(state, stale=state.stale + 1, since_drop=state.since_drop + 1)
    if recipe.optimizer.schedule == "plateau" and state.since_drop >= recipe.optimizer.every:
        state = replace(state, drops=state.drops + 1, since_drop=0)
    return state


def should_stop(state: State, recipe: Recipe) -> bool:
    """Has the validation MRR not improved for too long?"""
    return state.stale >= recipe.evaluation.patience
