from __future__ import annotations

from allneg.recipe import Recipe
from allneg.runs.checkpoint import State
from allneg.training.loop import should_stop, update_best

PLATEAU = Recipe().with_settings(
    ["evaluation.patience=3", "optimizer.schedule=plateau", "optimizer.every=2"]
)


def after(*mrrs: float, recipe: Recipe = PLATEAU) -> State:
    """The state after rankings of epochs 1, 2, … gave `mrrs`."""
    state = State()
    for epoch, mrr in enumerate(mrrs, 1):
        state = update_best(State(**{**vars(state), "epoch": epoch}), mrr, recipe)
    return state


def test_the_first_ranking_is_the_best_even_when_it_is_bad() -> None:
    assert after(0.0).best_epoch == 1


def test_an_equal_ranking_is_no_gain() -> None:
    state = after(0.5, 0.5)
    assert (state.best_epoch, state.stale) == (1, 1)


def test_patience_counts_rankings_since_the_best() -> None:
    assert not should_stop(after(0.5, 0.4, 0.4), PLATEAU)
    assert should_stop(after(0.5, 0.4, 0.4, 0.4), PLATEAU)
    assert not should_stop(after(0.5, 0.4, 0.4, 0.6, 0.5, 0.5), PLATEAU)


def test_a_plateau_lowers_the_rate_and_counts_anew() -> None:
    assert after(0.5, 0.4).drops == 0
    assert after(0.5, 0.4, 0.4).drops == 1
    assert after(0.5, 0.4, 0.4, 0.4).drops == 1
    assert after(0.5, 0.4, 0.4, 0.4, 0.4).drops == 2
    assert after(0.5, 0.4, 0.6, 0.4).drops == 0


def test_without_a_plateau_schedule_nothing_drops() -> None:
    assert after(0.5, 0.4, 0.4, 0.4, recipe=Recipe()).drops == 0
