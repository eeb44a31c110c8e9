"""Halving: which trial is trained next, given what all have reached and the time left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from allneg.recipe import Recipe
from allneg.tuning.halving import Halving, Job, Progress, rungs
from allneg.tuning.space import Trial, TrialStatus

AMPLE = 1e9  # seconds


@pytest.fixture
def make(quick: Callable[..., Recipe]) -> Callable[..., Progress]:
    """A trial of 18 epochs with rungs at 2 and 6: `make(seed, epochs, mrr)`."""

    def progress(
        seed: int, epochs: int, mrr: float, state: str = "paused", model: str = "complex"
    ) -> Progress:
        recipe = quick(f"training.seed={seed}", "training.epochs=18", f"model.name={model}")
        status = TrialStatus(
            Trial({}, recipe), state, mrr, epochs, epochs, seconds=10.0 * epochs,
            reason="it failed" if state in ("diverged", "too large") else None,
        )  # fmt: skip
        # The MRR is reached at the first ranking.
        metrics = [
            {"epoch": epoch, "seconds": 0.0, **({} if epoch % 2 else {"valid": {"mrr": mrr}})}
            for epoch in range(1, epochs + 1)
        ]
        return Progress(status, metrics)

    return progress


def test_rungs_are_a_ninth_and_a_third_where_valid_is_ranked(quick: Callable[..., Recipe]) -> None:
    assert rungs(quick("training.epochs=18")) == [2, 6]
    assert rungs(quick("training.epochs=100", "evaluation.every=5")) == [15, 45]
    assert rungs(quick("training.epochs=2")) == []


def test_the_best_third_of_a_rung_is_promoted(make: Callable[..., Progress]) -> None:
    low, high, middle = make(0, 2, 0.1), make(1, 2, 0.3), make(2, 2, 0.2)
    new = make(3, 0, 0.0).trial
    assert Halving([low, high], AMPLE).next_job([new]) == Job(new, 2)
    assert Halving([low, high, middle], AMPLE).next_job([new]) == Job(high.trial, 6)
    running = make(1, 2, 0.3, "running")
    assert Halving([low, running, middle], AMPLE).next_job([new]) == Job(new, 2)


def test_a_higher_rung_comes_first(make: Callable[..., Progress]) -> None:
    at_six = [make(0, 6, 0.2), make(1, 6, 0.5), make(2, 6, 0.1)]
    at_two = [make(seed, 2, 0.6) for seed in range(3, 9)]
    assert Halving([*at_two, *at_six], AMPLE).next_job([]) == Job(at_six[1].trial, 18)


def test_trials_are_compared_at_the_same_rung(make: Callable[..., Progress]) -> None:
    # Three trials have passed the first rung. The best there is finished: nothing to promote.
    others = [make(0, 2, 0.2), make(1, 2, 0.3)]
    new = make(3, 0, 0.0).trial
    done = make(2, 18, 0.4, "finished")
    assert Halving([*others, done], AMPLE).next_job([new]) == Job(new, 2)
    failed = make(2, 1, 0.4, "diverged")  # counts as the worst
    assert Halving([*others, failed], AMPLE).next_job([new]) == Job(others[1].trial, 6)


def test_a_trial_that_stopped_between_rungs_continues_first(make: Callable[..., Progress]) -> None:
    at_two = [make(seed, 2, 0.1 * seed) for seed in range(3)]
    cut = make(7, 4, 0.1)
    assert Halving([*at_two, cut], AMPLE).next_job([]) == Job(cut.trial, 6)


def test_the_best_trial_trains_to_its_end_while_there_is_time(
    make: Callable[..., Progress],
) -> None:
    low, best, new = make(0, 2, 0.1), make(1, 6, 0.3), make(2, 0, 0.0).trial
    # 12 epochs of 10 seconds are missing.
    assert Halving([low, best], 200).next_job([new]) == Job(new, 2)
    assert Halving([low, best], 130).next_job([new]) == Job(best.trial, 18)
    # Trials of this model stop after 8 epochs: 2 epochs are missing.
    early = make(3, 8, 0.2, "finished")
    assert Halving([low, best, early], 130).next_job([new]) == Job(new, 2)
    assert Halving([low, best, early], 20).next_job([new]) == Job(best.trial, 18)


def test_a_new_trial_needs_time_to_train_to_its_end(make: Callable[..., Progress]) -> None:
    done, low = make(0, 18, 0.4, "finished"), make(1, 2, 0.1)
    new, other = make(2, 0, 0.0).trial, make(3, 0, 0.0, model="transe").trial
    assert Halving([done, low], 200).next_job([new]) == Job(new, 2)
    assert Halving([done, low], 190).next_job([new]) == Job(low.trial, 18)
    assert Halving([done, low], 190).next_job([new, other]) == Job(other, 2)  # not measured yet


def test_nothing_starts_when_the_time_is_over(make: Callable[..., Progress]) -> None:
    assert Halving([make(0, 2, 0.1)], 0.0).next_job([make(1, 0, 0.0).trial]) is None


def test_the_worse_half_of_a_rung_is_dropped(make: Callable[..., Progress]) -> None:
    trials = [make(seed, 2, seed / 10) for seed in range(7)]
    assert Halving(trials[:5], AMPLE).to_drop() == []
    assert Halving(trials, AMPLE).to_drop() == [trials[i].trial for i in (2, 1, 0)]
    trials[1] = make(1, 6, 0.1)  # it was promoted when there were fewer
    assert Halving(trials, AMPLE).to_drop() == [trials[i].trial for i in (2, 0)]


def test_failed_and_dropped_trials_are_not_ranked(make: Callable[..., Progress]) -> None:
    good, dropped = make(0, 2, 0.1), make(1, 2, 0.3, "dropped")
    assert Halving([dropped, good], AMPLE).ranked() == [good]
