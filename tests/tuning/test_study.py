"""Ranges and halving, through Optuna."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.errors import Interrupted, RecipeError, UsageError
from allneg.runs import Run
from allneg.tuning import Search, Space, Trial, TrialFolder, TrialStatus
from allneg.tuning.study import JOURNAL, Study, _import_optuna, rungs
from processes import start

MakeSearch = Callable[..., Search]
RANGES = """
"optimizer.learning_rate" = { low = 0.01, high = 0.5, log = true }
"model.dim" = { low = 3, high = 6 }
"regularizer.name" = ["n3", "l2"]
"""
LONG = ("training.epochs=18", "evaluation.patience=100", "training.batch_size=40")


def test_without_optuna_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"pip install 'allneg\[search\]'"):
        _import_optuna()


def test_rungs_are_epochs_at_which_valid_is_ranked(make_space: Callable[..., Space]) -> None:
    assert rungs(make_space('"model.dim" = [2]', *LONG)) == [2, 6]
    every = ("training.epochs=100", "evaluation.every=5")
    assert rungs(make_space('"model.dim" = [2]', *every)) == [15, 45]
    with pytest.raises(UsageError, match=r"lower evaluation\.every"):
        rungs(make_space('"model.dim" = [2]', "training.epochs=2"))
    with pytest.raises(UsageError, match=r"--halving needs a fixed training\.epochs"):
        rungs(make_space('"training.epochs" = [2, 3]'))


@pytest.fixture
def optuna() -> Any:
    return pytest.importorskip("optuna", reason="optuna is not installed: allneg[search]")


@pytest.mark.usefixtures("optuna")
def test_as_many_trials_run_as_were_ordered(make_search: MakeSearch) -> None:
    search = make_search(RANGES, n_trials=2)
    assert (search.n_left(), search.statuses()) == (2, [])
    search.run()
    first = search.trials()
    search = make_search(RANGES, n_trials=4)
    assert search.n_left() == 2
    search.run()
    assert search.trials()[:2] == first
    assert [status.state for status in search.statuses()] == ["finished"] * 4
    assert search.n_left() == 0
    assert len(json.loads((search.out / "results.json").read_text())["trials"]) == 4
    before = (search.out / JOURNAL).read_bytes()
    search.run()
    assert (search.out / JOURNAL).read_bytes() == before
    with (search.out / JOURNAL).open("ab") as journal:
        journal.write(b'{"op_code": 4, "wor')  # a write that a full disk cut off
    more = make_search(RANGES, n_trials=5)
    more.run()
    assert (more.trials()[:4], more.n_left()) == (search.trials()[:4], 0)
    # Another process, or --status, needs no --trials.
    assert make_search(RANGES).trials() == more.trials()


def test_the_study_has_every_result(make_search: MakeSearch, optuna: Any) -> None:
    settings = ("optimizer.name=sgd", "model.scale=1")
    search = make_search(
        '"optimizer.learning_rate" = { low = 0.1, high = 1e30, log = true }', *settings, n_trials=4
    )
    search.run()
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(search.out / JOURNAL))
    )
    study = optuna.load_study(study_name="allneg", storage=storage)
    mrrs = {tuple(status.trial.settings.values()): status.valid_mrr for status in search.statuses()}
    assert None in mrrs.values()  # diverged: counts as 0
    found = {tuple(trial.params.values()): trial.value for trial in study.trials}
    assert found == {settings: mrr or 0.0 for settings, mrr in mrrs.items()}


@pytest.mark.battery(36)
@pytest.mark.usefixtures("optuna")
def test_an_interrupted_trial_continues_before_a_new_one_is_suggested(
    make_search: MakeSearch,
) -> None:
    search, left = make_search(RANGES, n_trials=3), 40

    def stopped_by() -> int:
        nonlocal left
        left -= 1
        return 15 if left < 0 else 0

    with pytest.raises(Interrupted):
        search.run(stopped_by)
    before = search.trials()
    assert 0 < len(before) < 3
    search.run()
    assert search.trials()[: len(before)] == before
    assert [status.state for status in search.statuses()] == ["finished"] * 3
    straight = make_search(RANGES, n_trials=3, out="straight")
    straight.run()
    assert [trial.id for trial in straight.trials()] == [trial.id for trial in search.trials()]


@pytest.mark.battery(36)
@pytest.mark.usefixtures("optuna")
def test_two_processes_run_as_many_trials_as_were_ordered(make_search: MakeSearch) -> None:
    search = make_search(RANGES, n_trials=4)
    processes = [start(search.run) for _ in range(2)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert (len(search.suggested()), search.n_left()) == (4, 0)
    for trial in search.trials():
        metrics = Run.open(TrialFolder(search.out, trial).folder).metrics()
        assert [entry["epoch"] for entry in metrics] == list(range(1, 7))


@pytest.mark.usefixtures("optuna")
def test_what_is_suggested_twice_runs_once(make_search: MakeSearch) -> None:
    search = make_search('"model.dim" = { low = 2, high = 3 }', n_trials=5)
    search.run()
    assert len(search.suggested()) == 5
    assert 1 <= len(search.trials()) <= 2
    assert len(list((search.out / "trials").iterdir())) == len(search.trials())
    assert search.n_left() == 0


@pytest.mark.usefixtures("optuna")
@pytest.mark.parametrize(
    "searched",
    [
        '"model.dim" = { low = 5, high = 6 }\n"regularizer.name" = ["n3"]',
        '"model.dim" = { low = 2, high = 4 }\n"regularizer.name" = ["l2"]',
        '"model.dim" = { low = 2, high = 4 }',
    ],
)
def test_the_folder_of_another_space_is_refused(make_search: MakeSearch, searched: str) -> None:
    make_search(
        '"model.dim" = { low = 2, high = 4 }\n"regularizer.name" = ["n3"]', n_trials=1
    ).run()
    with pytest.raises(UsageError, match=r"trials outside of space\.toml; choose another --out"):
        make_search(searched, n_trials=2).run()


@pytest.mark.usefixtures("optuna")
def test_a_suggestion_that_is_not_a_recipe_is_reported_and_not_kept(
    make_search: MakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = make_search(RANGES, n_trials=1)
    search.check()

    def refuse(self: Space, settings: Any) -> Trial:
        raise RecipeError("settings that do not go together")

    with monkeypatch.context() as patch:
        patch.setattr(Space, "trial", refuse)
        with pytest.raises(RecipeError, match="go together"):
            search.study.update(1, lambda _: None)
    assert search.trials() == []
    search.run()
    assert len(search.trials()) == 1


@pytest.mark.usefixtures("optuna")
def test_optuna_stays_in_the_ranges_and_learns(
    make_space: Callable[..., Space], tmp_path: Path
) -> None:
    (tmp_path / "locks").mkdir()
    space = make_space('"regularizer.weight" = { low = 0.0, high = 1.0 }\n"model.dim" = [2, 3]')
    study = Study(space, tmp_path, halving=False)

    def error(trial: Trial) -> float:
        return abs(float(trial.settings["regularizer.weight"]) - 0.7)

    while study.update(40, lambda trial: TrialStatus(trial, "finished", 1 - error(trial))):
        pass
    trials = study.trials()
    assert len(trials) == 40
    assert all(0 <= trial.settings["regularizer.weight"] <= 1 for trial in trials)
    assert {trial.settings["model.dim"] for trial in trials} == {2, 3}
    assert sum(map(error, trials[-10:])) < sum(map(error, trials[:10])) / 2


NINE = '"optimizer.learning_rate" = [0.5, 0.1, 0.01]\n"regularizer.weight" = [0.1, 0, 0.01]'


def test_halving_drops_trials_at_a_rung_and_the_rest_end_as_usual(
    make_search: MakeSearch, optuna: Any
) -> None:
    whole, halved = make_search(NINE, *LONG, out="whole"), make_search(NINE, *LONG, halving=True)
    whole.run()
    halved.run()
    at_end = {status.trial.id: status for status in whole.statuses()}
    statuses = halved.statuses()
    finished = [status for status in statuses if status.state == "finished"]
    dropped = [status for status in statuses if status.state == "dropped"]
    assert len(finished) + len(dropped) == 9
    assert 1 <= len(finished) <= 5
    assert {status.epochs for status in dropped} <= {2, 6}
    for status in finished:
        assert status.valid_mrr == at_end[status.trial.id].valid_mrr
    # A dropped trial was worse at its rung than the best of those that ran before it.
    mrrs = {id: _mrrs(Run.open(whole.out / "trials" / id)) for id in at_end}
    order = [trial.id for trial in halved.trials()]
    for status in dropped:
        earlier = order[: order.index(status.trial.id)]
        assert mrrs[status.trial.id][status.epochs] < max(mrrs[id][status.epochs] for id in earlier)
    assert json.loads((halved.out / "results.json").read_text())["halving"] == [2, 6]
    assert halved.n_left() == 0
    # A trial that was dropped, and whose result was removed, runs again, to its end.
    shutil.rmtree(halved.out / "trials" / dropped[0].trial.id)
    halved.run()
    assert dropped[0].trial.id in {
        status.trial.id for status in halved.statuses() if status.state == "finished"
    }
    # Without halving, the same folder trains the dropped trials to their end.
    make_search(NINE, *LONG).run()
    again = make_search(NINE, *LONG).statuses()
    assert {status.trial.id: (status.state, status.valid_mrr) for status in again} == {
        status.trial.id: (status.state, status.valid_mrr) for status in whole.statuses()
    }


def _mrrs(run: Run) -> dict[int, float]:
    return {epoch["epoch"]: epoch["valid"]["mrr"] for epoch in run.metrics() if "valid" in epoch}


@pytest.mark.usefixtures("optuna")
def test_halving_prunes_suggestions_and_keeps_failed_trials_as_failed(
    make_search: MakeSearch,
) -> None:
    settings = ("optimizer.name=sgd", "model.scale=1", *LONG)
    search = make_search('"optimizer.learning_rate" = [1e30, 2e30, 0.1]', *settings, halving=True)
    search.run()
    assert [status.state for status in search.statuses()] == ["finished", "diverged", "diverged"]
    search = make_search(RANGES, *LONG, out="ranges", n_trials=5, halving=True)
    search.run()
    states = {status.state for status in search.statuses()}
    assert "finished" in states
    assert states <= {"finished", "dropped"}
    assert search.n_left() == 0
