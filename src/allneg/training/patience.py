"""When to keep the weights, lower the learning rate, and stop."""

from dataclasses import replace

from allneg.recipe import Recipe
from allneg.runs.checkpoint import State


def update_best(state: State, mrr: float, recipe: Recipe) -> State:
    """The state after a ranking of valid gave `mrr`."""
    if mrr > state.best_mrr:
        return replace(state, best_mrr=mrr, best_epoch=state.epoch, stale=0, since_drop=0)
    state = replace(state, stale=state.stale + 1, since_drop=state.since_drop + 1)
    if recipe.optimizer.schedule == "plateau" and state.since_drop >= recipe.optimizer.every:
        state = replace(state, drops=state.drops + 1, since_drop=0)
    return state


def should_stop(state: State, recipe: Recipe) -> bool:
    """Whether the validation MRR has not improved for `evaluation.patience` evaluations."""
    return state.stale >= recipe.evaluation.patience
