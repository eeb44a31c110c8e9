"""The loop."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Generator

from allneg.errors import Diverged, Interrupted, ResourceError
from allneg.evaluation import Report, evaluate
from allneg.graph.queries import batches
from allneg.hardware import forget_peak, peak_bytes, prepared, trouble_named
from allneg.kernels.engines import using
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.scoring.distributed import SINGLE_PROCESS, World
from allneg.scoring.tables import Tables, mixed_seed
from allneg.training.callbacks import Callbacks
from allneg.training.checkpointer import Checkpointer
from allneg.training.launch import Decision
from allneg.training.patience import should_stop, update_best
from allneg.training.trainer import Trainer

_AGAIN = "What was saved is kept; see that the device works, then `allneg resume` the run."
_STEPS_A_LOOK = 50  # on a GPU, how often we wait for it to see whether the loss is finite


@dataclass(frozen=True)
class StopAt:
    """How far to train, and what to report on at the end."""

    split: str = "test"  # valid is reported on where this one is empty
    epochs: int | None = None  # pause after so many; None goes on to the recipe's end


_WHOLE = StopAt()


def fit(
    run: Run,
    callbacks: Callbacks | None = None,
    stopped_by: Callable[[], int] = lambda: 0,
    aim: StopAt = _WHOLE,
) -> Report | None:
    """Train a run from where it stands, and report on test; None where there is nothing to rank.

    With an `aim` short of the recipe's end the run is saved there, and there is no report either.

    `stopped_by` gives the number of a signal that came in, or 0; the run is then saved, and
    `Interrupted` is raised. What happens next depends on the seed, the epoch and the step
    alone, so a resumed run goes on as if it had never stopped, with as many processes as before
    or with others. A run that is being trained already is refused.
    """
    with run.locked():
        return run_training(run, callbacks, stopped_by, aim)


def run_training(
    run: Run,
    callbacks: Callbacks | None = None,
    stopped_by: Callable[[], int] = lambda: 0,
    aim: StopAt = _WHOLE,
    world: World = SINGLE_PROCESS,
) -> Report | None:
    """As `fit`, with a run that its caller holds. Every process of a `world` calls this."""
    if (status := run.status)["state"] == "diverged":
        # The optimizer's memory is gone: what came next would not be the recipe's.
        raise Diverged(status.get("reason", "it has diverged; train anew, at a lower rate"))
    hardware = run.recipe.hardware
    with prepared(hardware) as device, using(hardware.engine), torch.enable_grad():
        forget_peak(device)
        try:
            with trouble_named(device, _less(run.recipe), _AGAIN):
                return _fit(run, device, callbacks or Callbacks(), Decision(world, stopped_by), aim)
        except ResourceError as problem:
            with contextlib.suppress(ResourceError):  # of a full disk, too
                run.set_status("failed", reason=str(problem))
            raise


def _fit(
    run: Run, device: torch.device, callbacks: Callbacks, decision: Decision, aim: StopAt
) -> Report | None:
    recipe, graph, world = run.recipe, run.graph, decision.world
    trainer, checkpointer = (
        Trainer(recipe, graph, device, world),
        Checkpointer(run, callbacks, world),
    )
    state = State()
    if (saved := run.last(callbacks.said, trainer.tables.shard)) is not None:
        trainer.restore(saved)
        state = saved.state
    run.rewind(state.epoch)
    run.set_status("running")
    callbacks.began(recipe.training.epochs)
    callbacks.said(str(trainer.plan))

    train = torch.from_numpy(graph.train).to(device)
    size, seed = recipe.training.batch_size, recipe.training.seed
    n_steps = math.ceil(2 * len(train) / size)
    exact = torch.float32 if device.type == "mps" else torch.float64  # which MPS does not have
    total = torch.tensor(state.loss, dtype=exact, device=device)
    cost = _Cost(state, device)
    until = min(recipe.training.epochs, aim.epochs or recipe.training.epochs)
    while state.epoch < until and not should_stop(state, recipe):
        rate = trainer.set_rate(state)
        trainer.align()
        order = Generator(device).manual_seed(mixed_seed(seed, 2, state.epoch))
        chance = Generator(device)
        for step, queries in enumerate(batches(train, size, order)):
            if step < state.step:
                continue  # done before the interruption
            chance.manual_seed(mixed_seed(seed, 3, state.epoch, step))
            total += trainer.step(queries, chance)
            signal_number, due = decision(checkpointer.due())
            due = due or step + 1 == n_steps  # what is saved is looked at
            look = due or device.type == "cpu" or step % _STEPS_A_LOOK == 0
            if look and not math.isfinite(total):
                _diverge(run, trainer, state, f"the loss at epoch {state.epoch + 1}, step {step}")
            state = replace(state, step=step + 1)
            callbacks.stepped(state, n_steps)
            if signal_number or (due and state.step < n_steps):
                state = cost.of(replace(state, loss=float(total)))
                checkpointer.save(trainer.checkpoint(state), must=signal_number != 0)
            if signal_number:
                run.set_status("interrupted", epoch=state.epoch, step=state.step)
                world.max(0)  # whoever ends first may have the others killed
                goes_on = f"stopped and saved; `allneg resume {run.folder}` goes on"
                raise Interrupted(goes_on, signal_number)

        state = replace(state, epoch=state.epoch + 1, step=0, loss=0.0)
        entry: dict[str, Any] = {"epoch": state.epoch, "loss": float(total) / n_steps, "rate": rate}
        total.zero_()
        last = state.epoch == recipe.training.epochs
        if len(graph.valid) and (last or state.epoch % recipe.evaluation.every == 0):
            try:
                report = evaluate(
                    trainer.model, trainer.tables, graph, "valid", block=recipe.evaluation.block
                )
            except Diverged:
                _diverge(run, trainer, state, f"a score of valid after epoch {state.epoch}")
            state = update_best(state, report.mrr, recipe)
            if state.best_epoch == state.epoch:
                trainer.keep_best()
            entry["valid"] = {"mrr": report.mrr, "mr": report.mr, "hits": dict(report.hits)}
            callbacks.ranked(state, report)
        elif last and _is_ruined(trainer.tables):
            _diverge(run, trainer, state, f"a row after epoch {state.epoch}")
        checkpointer.note({**entry, "seconds": cost.seconds})
        ends = state.epoch == until or should_stop(state, recipe)
        if ends or world.max(world.is_rank_zero and checkpointer.due()):
            state = cost.of(state)
            checkpointer.save(trainer.checkpoint(state), must=ends)
    if state.epoch < recipe.training.epochs and not should_stop(state, recipe):
        run.set_status("interrupted", epoch=state.epoch, step=0)
        return None
    return _finish(run, trainer, state, cost, aim.split)


def _finish(run: Run, trainer: Trainer, state: State, cost: _Cost, split: str) -> Report | None:
    """Report on a split by the best weights; on valid where that one is empty."""
    trainer.return_to_best()
    graph = run.graph
    split = split if len(graph.split(split)) else "valid"
    report = None
    if len(graph.split(split)):
        block = run.recipe.evaluation.block
        try:
            report = evaluate(trainer.model, trainer.tables, graph, split, block=block)
        except Diverged:
            _diverge(run, trainer, state, f"a score of {split} after epoch {state.epoch}")
    run.finish(
        report,
        epoch=state.epoch,
        best_epoch=state.best_epoch or state.epoch,
        peak_bytes=cost.of(state).peak_bytes or None,
    )
    return report


def _is_ruined(tables: Tables) -> bool:
    """Has the last step, whose loss was looked at before it, made a row that is not finite?"""
    ends = [torch.stack(rows.aminmax()) for rows in tables.parameters() if rows.numel()]
    return bool(tables.shard.world.max(not all(each.isfinite().all() for each in ends)))


def _diverge(run: Run, trainer: Trainer, state: State, what: str) -> NoReturn:
    """Keep the best weights, where a ranking of valid chose some, and end.

    The tables of this moment are not worth keeping: their own loss is not finite.
    """
    kept = "Nothing but what was saved before is kept"
    if trainer.best:
        trainer.return_to_best()
        trainer.optimizer.state.clear()  # it has seen what spoiled the tables
        state = replace(state, epoch=state.best_epoch, step=0, loss=0.0)
        run.save(trainer.checkpoint(state), trainer.tables.shard.world)
        kept = f"The best weights, of epoch {state.epoch}, are kept"
    rate = trainer.recipe.optimizer.learning_rate
    reason = (
        f"{what} is not finite: the model has diverged (learning rate {rate:g}).\n"
        f"{kept}; train anew with a lower optimizer.learning_rate or a higher regularizer.weight."
    )
    run.set_status("diverged", epoch=state.epoch, step=state.step, reason=reason)
    raise Diverged(reason)


def _less(recipe: Recipe) -> str:
    """What to lower when memory runs out in training."""
    size = recipe.training.micro_batch or recipe.training.batch_size
    # A question's own rows are kept whole, whatever the block.
    blocks = {
        "all": "loss.block",
        "shared": "loss.n_negatives, loss.block",
        "per_query": "loss.n_negatives",
    }
    others = f"{blocks[recipe.loss.negatives]} or model.dim"
    if size == 1:
        return f"What was saved is kept; lower {others}."
    return (
        f"What was saved is kept. Lower training.micro_batch to {size // 2}, which takes the same "
        f"steps in less memory; if that is not enough, {others}."
    )


class _Cost:
    """What training has taken, sessions before this one included."""

    def __init__(self, before: State, device: torch.device) -> None:
        self._start = time.perf_counter() - before.seconds
        self._peak, self._device = before.peak_bytes, device

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def of(self, state: State) -> State:
        """A state that knows it."""
        peak = max(self._peak, peak_bytes(self._device) or 0)
        return replace(state, seconds=self.seconds, peak_bytes=peak)
