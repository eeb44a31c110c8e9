"""A tuning: the time is kept, trials run once, valid selects, and test is ranked for one run."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import allneg
from allneg.errors import DataError, Interrupted, UsageError
from allneg.runs import Run, disk
from allneg.runs.ensemble import Combination, combine
from allneg.runs.verify import verify
from allneg.tuning import TrialFolder, Tuning, tune
from allneg.tuning.halving import Job
from allneg.tuning.progress import TuningLines
from processes import start_command, stop_after, wait_until

# A space of five trials, the multiples of regularizer.weight, with rungs at 2 and 6 of 18 epochs.
FEW = (
    "model.dim=4", "training.batch_size=20", "training.epochs=18", "evaluation.every=2",
    "evaluation.patience=1000", "hardware.device=cpu", "hardware.threads=1",
    "loss.relation_weight=0", "loss.class_weights=false", "regularizer.name=n3",
    "optimizer.learning_rate=0.1", "training.average=0", "model.entity_dropout=0",
)  # fmt: skip
MakeTuning = Callable[..., Tuning]


@pytest.fixture
def make_tuning(tiny_folder: Path, tmp_path: Path) -> MakeTuning:
    """A tuning in tmp_path/out: `make_tuning("training.epochs=4", minutes=1)`."""

    def make(*settings: str, out: str = "out", minutes: float = 60, **more: Any) -> Tuning:
        models = more.pop("models", ("complex",))
        return Tuning(tiny_folder, tmp_path / out, minutes, models, [*FEW, *settings], **more)

    return make


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def with_counts(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[Run]]:
    """A function that sets the cross-fitted MRR of ensembles; its list has the trials asked for."""

    def set_mrr(mrr: float) -> list[Run]:
        asked: list[Run] = []

        def combined(runs: list[Run], *more: Any, **named: Any) -> Combination:
            asked.extend(runs)
            found = combine(runs, *more, **named)
            return replace(found, weighting=replace(found.weighting, cross_fitted_mrr=mrr))

        monkeypatch.setattr("allneg.tuning.best.combine", combined)
        return asked

    return set_mrr


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of the ensembles that are written from now on, with ranks of test."""
    folders: list[Path] = []
    write = Combination.write

    def recorded(self: Combination, out: Path) -> Run:
        folders.append(out)
        return write(self, out)

    monkeypatch.setattr(Combination, "write", recorded)
    return folders


def epochs_of(tuning: Tuning) -> dict[str, list[int]]:
    """The epochs in the metrics of each trial."""
    return {
        trial.id: [entry["epoch"] for entry in TrialFolder(tuning.out, trial).metrics()]
        for trial in tuning.trials()
    }


def test_the_best_on_valid_wins_and_test_is_ranked_once(
    make_tuning: MakeTuning, ranked: list[str]
) -> None:
    tuning = make_tuning(counts=False)
    tuning.run()
    assert set(ranked) == {"valid"}
    statuses = tuning.statuses()
    assert len(statuses) == 5
    run = tuning.finish()
    assert ranked.count("test") == 1
    assert run.folder == tuning.out / "best"
    assert run.report.protocol["split"] == "test"
    assert run.report.baselines
    assert not [check for check in verify(run.folder, rank=True) if check.wrong]
    best = statuses[0]
    assert best.valid_mrr == max(status.valid_mrr or 0 for status in statuses)
    assert max(entry["valid"]["mrr"] for entry in run.metrics() if "valid" in entry) == (
        best.valid_mrr
    )
    assert run.recipe == allneg.Recipe.read(tuning.out / "best.toml") == best.trial.recipe
    assert allneg.load(run.folder).tails("France", "borders", k=1)
    results = json.loads((tuning.out / "results.json").read_text())
    assert results["best"]["trial"] == results["trials"][0]["trial"] == best.trial.id
    assert results["best"]["test"]["mrr"] == run.report.mrr
    # The same call changes nothing.
    again = make_tuning(counts=False)
    again.run()
    again.finish()
    assert ranked.count("test") == 1
    assert again.statuses() == statuses


def test_counts_that_are_better_on_valid_are_part_of_the_best_run(
    make_tuning: MakeTuning,
    ranked: list[str],
    with_counts: Callable[[float], list[Run]],
    written: list[Path],
) -> None:
    asked = with_counts(0.99)
    tuning = make_tuning()
    tuning.run()
    run, best = tuning.finish(), tuning.statuses()[0]
    assert [at.folder.name for at in asked] == [best.trial.id]
    assert run.folder == tuning.out / "best"
    assert [member.name for member in run.members] == [best.trial.id, "counts"]
    assert run.report.protocol["split"] == "test"
    assert (ranked.count("test"), len(written)) == (0, 1)  # the trial alone is not ranked on test
    assert not [check for check in verify(run.folder, rank=True) if check.wrong]
    assert allneg.Recipe.read(tuning.out / "best.toml") == best.trial.recipe
    made = json.loads((tuning.out / "results.json").read_text())["best"]
    assert (made["trial"], made["members"]) == (best.trial.id, [best.trial.id, "counts"])
    assert (made["counts"], made["valid_mrr"]) == ("tried", 0.99)
    assert made["test"]["mrr"] == run.report.mrr
    make_tuning().finish()  # changes nothing
    make_tuning(minutes=1e-9).finish()
    assert (ranked.count("test"), len(written)) == (0, 1)
    assert not make_tuning(counts=False).finish().members
    assert ranked.count("test") == 1
    make_tuning().finish()
    assert len(written) == 2


def test_counts_that_are_no_better_on_valid_are_left_out(
    make_tuning: MakeTuning, with_counts: Callable[[float], list[Run]], written: list[Path]
) -> None:
    tuning = make_tuning()
    tuning.run()
    best = tuning.statuses()[0]
    asked = with_counts(best.valid_mrr or 0)
    assert not tuning.finish().members
    assert not make_tuning().finish().members
    assert (len(asked), written) == (1, [])  # tried once
    made = json.loads((tuning.out / "results.json").read_text())["best"]
    assert (made["counts"], made["members"]) == ("tried", [best.trial.id])
    assert made["valid_mrr"] == best.valid_mrr


def test_counts_need_time(
    make_tuning: MakeTuning, with_counts: Callable[[float], list[Run]]
) -> None:
    with_counts(0.99)
    clock = Seconds()
    tuning = make_tuning(minutes=1, now=clock)
    train_next(tuning)
    clock.now = 60
    assert not tuning.finish().members
    assert tuning.results()["best"]["counts"] == "no time"
    assert make_tuning(minutes=60).finish().members  # more time


def test_a_tuning_killed_while_it_writes_the_best_run_makes_it_again(
    make_tuning: MakeTuning,
    with_counts: Callable[[float], list[Run]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_counts(0.99)
    tuning = make_tuning()
    train_next(tuning)
    with monkeypatch.context() as patch:

        def killed(old: Path, new: Path) -> None:
            if new.name == "best":
                raise KeyboardInterrupt
            rename(old, new)

        rename = disk.rename
        patch.setattr(disk, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            tuning.finish()
    assert (tuning.out / ".best").exists()
    assert tuning.results()["best"] is None
    assert make_tuning().finish().members
    assert not (tuning.out / ".best").exists()


def train_next(tuning: Tuning) -> Job:
    """Train the next job of a tuning, and return it."""
    job, lock = tuning._claim() or pytest.fail("nothing to train")
    tuning._train(job, lock, lambda: 0)
    return job


def test_the_best_of_three_is_promoted(make_tuning: MakeTuning) -> None:
    tuning = make_tuning()
    jobs = [train_next(tuning) for _ in range(3)]
    assert jobs[0].trial.settings == {"model.name": "complex"}  # the defaults
    assert [job.epochs for job in jobs] == [2, 2, 2]
    assert sorted(map(len, epochs_of(tuning).values())) == [2, 2, 2]
    best = tuning.statuses()[0].trial
    assert train_next(tuning) == Job(best, 6)
    assert len(epochs_of(tuning)[best.id]) == 6


def test_the_time_is_kept(make_tuning: MakeTuning) -> None:
    clock = Seconds()
    tuning = make_tuning(minutes=1, now=clock)

    def on_poll() -> None:  # after every step
        clock.now += 0.5

    tuning.run(on_poll=on_poll)
    assert 0 < tuning.left + 1 < 1.0  # training stopped within two steps
    trained = epochs_of(tuning)
    assert sum(map(len, trained.values())) < 5 * 18
    run = tuning.finish()
    assert run.finished
    assert run.recipe.training.epochs == len(trained[tuning.statuses()[0].trial.id])
    make_tuning(minutes=1, now=Seconds()).run()  # the time of both sessions counts
    assert epochs_of(tuning) == trained
    make_tuning(minutes=60).run()
    assert set(map(len, epochs_of(tuning).values())) == {18}


def test_the_winner_may_have_stopped_at_a_rung(make_tuning: MakeTuning, ranked: list[str]) -> None:
    clock = Seconds()
    tuning = make_tuning(minutes=1, now=clock)
    train_next(tuning)
    (status,) = tuning.statuses()
    assert (status.state, status.epochs) == ("paused", 2)
    clock.now = 60
    tuning.run()
    run = tuning.finish()
    assert (run.recipe.training.epochs, run.status["state"]) == (2, "finished")
    assert allneg.Recipe.read(tuning.out / "best.toml") == status.trial.recipe  # of 18 epochs
    assert not [check for check in verify(run.folder, rank=True) if check.wrong]
    # More time finds a better trial: it replaces the first, and test is ranked with it.
    make_tuning().run()
    assert make_tuning().finish().recipe.training.epochs == 18
    assert ranked.count("test") == 2


def test_a_slow_trial_is_dropped(
    make_tuning: MakeTuning, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Seconds()
    tuning = make_tuning(minutes=10, models=("complex", "transe"), now=clock)
    lines = TuningLines(tuning)

    def on_poll() -> None:
        running = [at for at in tuning.statuses() if at.state == "running"]
        if running and running[0].trial.recipe.model.name == "transe":
            clock.now += 30

    with pytest.raises(Interrupted):
        tuning.run(lambda: 15 if any(at.reason for at in tuning.statuses()) else 0, on_poll)
    lines(tuning.statuses())
    slow = next(at for at in tuning.statuses() if at.reason)
    assert slow.trial.settings == {"model.name": "transe"}
    assert (slow.state, slow.valid_mrr) == ("dropped", None)
    assert "of the first 2 epochs in time" in (slow.reason or "")
    assert re.search(r"transe: dropped after \d epochs? \(too slow: ", capsys.readouterr().err)


@pytest.mark.battery(36)
def test_a_killed_tuning_continues(make_tuning: MakeTuning, tiny_folder: Path) -> None:
    tuning = make_tuning()
    settings = [word for setting in FEW for word in ("--set", setting)]
    command = ["tune", tiny_folder, "--out", tuning.out, "--minutes", 60, "--models", "complex"]
    child = start_command(*command, *settings, "-q", out=Path(os.devnull))
    try:
        wait_until(lambda: sum(map(len, epochs_of(tuning).values())) >= 4, child)
    finally:
        child.kill()  # kill -9
        child.join()
    again = make_tuning()
    assert again.clock.seconds > 0
    again.run()
    assert set(map(tuple, epochs_of(again).values())) == {tuple(range(1, 19))}
    for trial in again.trials():
        seconds = [entry["seconds"] for entry in TrialFolder(again.out, trial).metrics()]
        assert seconds == sorted(seconds)
    straight = make_tuning(out="straight")
    straight.run()
    mrrs = [{at.trial.id: at.valid_mrr for at in one.statuses()} for one in (again, straight)]
    assert mrrs[0] == mrrs[1]


def test_metrics_without_weights_do_not_count(make_tuning: MakeTuning) -> None:
    tuning = make_tuning()
    job = train_next(tuning)
    run = Run.open(TrialFolder(tuning.out, job.trial).folder)
    # As if a process had been killed four epochs later.
    for epoch in range(3, 7):
        run.note({"epoch": epoch, "loss": 0.0, "seconds": 1.0, "valid": {"mrr": 0.99}})
    run.set_status("running")
    tuning._claim()
    assert len(run.metrics()) == 2
    assert (tuning.statuses()[0].valid_mrr or 1) < 0.99


@pytest.mark.battery(36)
def test_two_processes_never_train_the_same_trial(make_tuning: MakeTuning) -> None:
    tunings = [make_tuning(), make_tuning()]
    trained = []
    while all(claims := [tuning._claim() for tuning in tunings]):
        (one, _), (other, _) = claims  # type: ignore[misc]
        assert one.trial.id != other.trial.id
        for tuning, claim in zip(tunings, claims, strict=True):
            assert claim is not None
            trained.append((claim[0].trial.id, claim[0].epochs))
            tuning._train(*claim, lambda: 0)
    assert len(set(trained)) == len(trained)
    for claim in filter(None, claims):
        claim[1].release()
    tunings[0].run()
    assert set(map(len, epochs_of(tunings[0]).values())) == {18}


def test_dropped_trials_have_no_weights(make_tuning: MakeTuning) -> None:
    tuning = make_tuning()
    job = train_next(tuning)
    folder = TrialFolder(tuning.out, job.trial)
    folder.drop(tuning.graph)
    assert not (folder.folder / "checkpoints").exists()
    assert folder.status().state == "dropped"
    assert folder.status().valid_mrr
    tuning.run()
    assert epochs_of(tuning)[job.trial.id] == [1, 2]


def test_an_interrupted_tuning_is_saved(make_tuning: MakeTuning) -> None:
    tuning = make_tuning()
    with pytest.raises(
        Interrupted, match=r"the same command with --out .*/out continues"
    ) as caught:
        tuning.run(stop_after(7))
    assert caught.value.exit_code == 143
    tuning.run()
    assert set(map(len, epochs_of(tuning).values())) == {18}


def test_other_data_and_settings_are_refused(make_tuning: MakeTuning, tiny_folder: Path) -> None:
    make_tuning()
    with pytest.raises(UsageError, match="started with other settings; choose another --out"):
        make_tuning("training.seed=3")
    with (tiny_folder / "train.tsv").open("a") as file:
        file.write("Italy\tborders\tSpain\n")
    with pytest.raises(UsageError, match="started with other data; choose another --out"):
        make_tuning()


def test_a_setting_may_have_an_effect_on_some_of_the_models_only(make_tuning: MakeTuning) -> None:
    made = make_tuning("optimizer.every=3", models=("complex", "transe"))
    optimizers = {model: of.optimizer for model, of in made.neighbours.defaults.items()}
    assert [of.every for of in optimizers.values()] == [3, 3]
    assert optimizers["complex"].schedule == "none"
    assert optimizers["transe"].schedule == "plateau"


def test_what_cannot_be_tuned_is_refused_before_anything_is_written(
    make_tuning: MakeTuning, tiny_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no model 'complx'; close names: 'complex'"):
        make_tuning(models=("complx",))
    with pytest.raises(UsageError, match=r"give at least one of the models .*complex, cp"):
        make_tuning(models=())
    with pytest.raises(UsageError, match="no model 'complx'"):
        tune(tiny_folder, minutes=1, models="complx", out=tmp_path / "out")
    with pytest.raises(UsageError, match=r"model\.name is tuned: choose the models by --models"):
        make_tuning("model.name=rotate")
    with pytest.raises(UsageError, match=r"model\.dimm is not a setting"):
        make_tuning("model.dimm=3")
    with pytest.raises(UsageError, match="minutes must be above 0"):
        make_tuning(minutes=0)
    (tiny_folder / "valid.tsv").unlink()
    with pytest.raises(DataError, match="valid has no triples; tuning selects by valid MRR"):
        make_tuning()
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_refused(make_tuning: MakeTuning, tmp_path: Path) -> None:
    (tmp_path / "out" / "trials").mkdir(parents=True)
    with pytest.raises(UsageError, match="not empty and not a tuning; choose another --out"):
        make_tuning()
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").touch()
    with pytest.raises(UsageError, match="exists and is not a folder; choose another --out"):
        make_tuning()


def test_too_little_time_is_an_error(make_tuning: MakeTuning) -> None:
    clock = Seconds()
    tuning = make_tuning(minutes=1, now=clock)
    clock.now = 100
    tuning.run()
    with pytest.raises(UsageError, match="no trial ranked valid within the time"):
        tuning.finish()


def test_tune_returns_the_best_run(tiny_folder: Path, tmp_path: Path) -> None:
    settings = [*FEW, "regularizer.weight=0.01"]
    run = allneg.tune(
        tiny_folder, minutes=60, out=tmp_path / "out", models=["complex"], settings=settings
    )
    assert run.folder == tmp_path / "out" / "best"
    assert run.report.protocol["split"] == "test"
