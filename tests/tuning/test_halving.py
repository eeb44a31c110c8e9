"""Halving: which trial is trained next, given what all have reached and the time left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from allneg.recipe import Recipe
from allneg.tuning.halving import FIRST_SHARE, Halving, Job, Progress, first_share, rungs
from allneg.tuning.neighbours import Step
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


def test_a_larger_first_share_moves_the_rungs(quick: Callable[..., Recipe]) -> None:
    recipe = quick("training.epochs=100", "evaluation.every=5")
    assert rungs(recipe, 0.2) == [20, 60]
    assert rungs(recipe, 1 / 3) == [35]


def test_trials_are_compared_later_if_there_is_time_for_many(quick: Callable[..., Recipe]) -> None:
    recipe = quick("training.epochs=100", "evaluation.every=5")
    # The first epoch compiles for 60 seconds, and each epoch takes one second.
    metrics = [{"epoch": epoch, "seconds": 60.0 + epoch} for epoch in range(1, 16)]
    share = partial(first_share, metrics, recipe)
    assert share(100 * 3) == FIRST_SHARE
    # 12 full trainings fit. In half of the time, 30 trials can train for a fifth of their epochs.
    assert share(100 * 12) == pytest.approx(1 / 5)
    assert share(100 * 90) == pytest.approx(1 / 3)
    assert first_share(metrics[:9], recipe, 100 * 90) == FIRST_SHARE  # not measured yet


def test_a_trial_below_a_rung_that_moved_continues_first(make: Callable[..., Progress]) -> None:
    early = replace(make(0, 2, 0.3), share=1 / 3)
    assert Halving([early], AMPLE, 1 / 3).next_job([make(1, 0, 0.0).trial]) == Job(early.trial, 6)
    new = make(1, 0, 0.0).trial
    at_six = replace(make(0, 6, 0.3), share=1 / 3)
    assert Halving([at_six], AMPLE, 1 / 3).next_job([new]) == Job(new, 6)


def test_the_best_third_of_a_rung_is_promoted(make: Callable[..., Progress]) -> None:
    low, high, middle = make(0, 2, 0.1), make(1, 2, 0.3), make(2, 2, 0.2)
    new = make(3, 0, 0.0).trial
    assert Halving([low, high], AMPLE).next_job([new]) == Job(new, 2)
    assert Halving([low, high, middle], AMPLE).next_job([new]) == Job(high.trial, 6)
    running = make(1, 2, 0.3, "running")
    assert Halving([low, running, middle], AMPLE).next_job([new]) == Job(new, 2)


def test_a_higher_rung_comes_first(make: Callable[..., Progress]) -> None:
    at_six = [make(seed, 6, 0.1 + seed / 10) for seed in range(6)]
    at_two = [make(seed, 2, 0.7) for seed in range(6, 18)]
    assert Halving([*at_two, *at_six], AMPLE).next_job([]) == Job(at_six[5].trial, 18)


def test_a_trial_trains_to_its_end_only_if_it_is_one_of_many(
    make: Callable[..., Progress],
) -> None:
    at_six = [make(seed, 6, 0.1 + seed / 10) for seed in range(5)]
    new = make(9, 0, 0.0).trial
    assert Halving(at_six, AMPLE).next_job([new]) == Job(new, 2)


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


def test_a_new_trial_needs_time_to_reach_its_second_rung(make: Callable[..., Progress]) -> None:
    done, low = make(0, 18, 0.4, "finished"), make(1, 2, 0.1)
    new, other = make(2, 0, 0.0).trial, make(3, 0, 0.0, model="transe").trial
    assert Halving([done, low], 67).next_job([new]) == Job(new, 2)  # 6 epochs of 10 seconds
    assert Halving([done, low], 65).next_job([new]) == Job(low.trial, 18)
    assert Halving([done, low], 65).next_job([new, other]) == Job(other, 2)  # not measured yet


def test_a_new_trial_leaves_time_for_the_end_of_the_best(make: Callable[..., Progress]) -> None:
    low, best, new = make(0, 2, 0.1), make(1, 6, 0.3), make(2, 0, 0.0).trial
    # The best needs 12 epochs, the first rung of the new trial 2: 140 seconds and a tenth.
    assert Halving([low, best], 155).next_job([new]) == Job(new, 2)
    assert Halving([low, best], 150).next_job([new]) != Job(new, 2)


def test_the_time_of_a_trial_follows_from_those_with_a_similar_batch_size(
    make: Callable[..., Progress], quick: Callable[..., Recipe]
) -> None:
    def trial(batch: int) -> Trial:
        settings = "training.epochs=18", f"training.batch_size={batch}", "training.seed=5"
        return Trial({}, quick(*settings))

    slow = TrialStatus(trial(1000), "finished", 0.2, 18, 18, seconds=1800.0)
    trials = [make(0, 18, 0.4, "finished"), Progress(slow, make(0, 18, 0.2).metrics)]
    assert Halving(trials, 100).next_job([trial(900), trial(9)]) == Job(trial(9), 2)


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


def test_near_models_take_turns_by_the_time_they_used(make: Callable[..., Progress]) -> None:
    best, second = make(0, 6, 0.5), make(1, 2, 0.4)
    near, far = make(2, 2, 0.48, model="rotate"), make(3, 2, 0.3, model="transe")
    # Of the 80 and 20 seconds of the two near models, the second has the fewer.
    order = Halving([best, second, near, far], AMPLE).bases()
    assert order == [at.trial for at in (near, best, second, far)]
    near = make(2, 18, 0.48, "finished", model="rotate")
    order = Halving([best, second, near, far], AMPLE).bases()
    assert order == [at.trial for at in (best, second, near, far)]


def test_gains_are_those_of_single_changes(
    quick: Callable[..., Recipe], make: Callable[..., Progress]
) -> None:
    def at(mrr: float, **settings: object) -> Progress:
        done, named = make(0, 6, mrr), {"model.name": "complex", **settings}
        trial = Trial(named, done.trial.recipe)
        return Progress(TrialStatus(trial, "paused", mrr, 6, 6, 60.0), done.metrics)

    trials = [at(0.3), at(0.4, a=1), at(0.25, b=1), at(0.45, a=1, b=1), at(0.9, a=2, b=2)]
    found = Halving(trials, AMPLE).gains()
    step = partial(Step, "complex")
    assert found == pytest.approx({
        step("a", None, 1): 0.15, step("a", 1, None): -0.15,  # .1 alone, .2 beside b
        step("b", None, 1): 0.0, step("b", 1, None): 0.0,  # -.05 alone, .05 beside a
    })  # fmt: skip


def test_gains_are_those_at_the_last_rung_that_both_trials_have_passed(
    make: Callable[..., Progress],
) -> None:
    def at(epochs: int, mrrs: tuple[float, float], **settings: object) -> Progress:
        recipe = make(0, 2, 0.0).trial.recipe
        trial = Trial({"model.name": "complex", **settings}, recipe)
        status = TrialStatus(trial, "paused", max(mrrs), epochs, epochs, 60.0)
        entries = zip((2, 6), mrrs, strict=True)
        metrics = [{"epoch": epoch, "valid": {"mrr": mrr}} for epoch, mrr in entries]
        return Progress(status, metrics)

    default, slow = at(6, (0.3, 0.4)), at(6, (0.2, 0.5), a=1)
    step = Step("complex", "a", None, 1)
    assert Halving([default, slow], AMPLE).gains()[step] == pytest.approx(0.1)
    early = at(2, (0.2, 0.5), a=1)
    assert Halving([default, early], AMPLE).gains()[step] == pytest.approx(-0.1)
