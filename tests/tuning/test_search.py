"""A grid: every trial runs once, in any order, in any number of processes, however interrupted."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from allneg.errors import DataError, Interrupted, UsageError
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.tuning import Search, TrialFolder
from allneg.tuning import search as module
from allneg.tuning.trial_folder import data_hash
from processes import stop_after

MakeSearch = Callable[..., Search]
ONE, TWO = '"model.dim" = [2]', '"model.dim" = [2, 3]'


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)


def timeless(search: Search) -> list[dict[str, Any]]:
    """The status of all trials without the seconds."""
    return [{**status.to_json(), "seconds": None} for status in search.statuses()]


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files of a folder, with their content and time of change."""
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_trials_are_ordinary_runs_and_test_is_never_ranked(
    make_search: MakeSearch, ranked: list[str]
) -> None:
    search = make_search()
    search.run()
    assert set(ranked) == {"valid"}
    trials = json.loads((search.out / "results.json").read_text())["trials"]
    mrrs = [trial["valid_mrr"] for trial in trials]
    assert mrrs == sorted(mrrs, reverse=True)
    assert len(trials) == 6
    for trial in trials:
        run = Run.open(search.out / "trials" / trial["trial"])
        assert trial["state"] == run.status["state"] == "finished"
        assert run.report.protocol["split"] == "valid"
        assert trial["valid_mrr"] == run.report.mrr
        assert trial["best_epoch"] == run.status["best_epoch"]
        assert trial["settings"]["regularizer.weight"] == run.recipe.regularizer.weight
        assert trial["seconds"] > 0


@pytest.mark.battery(36)
def test_a_finished_search_is_not_changed_and_a_wider_space_adds_trials(
    make_search: MakeSearch,
) -> None:
    search = make_search(TWO)
    search.run()
    before, results = files(search.out / "trials"), (search.out / "results.json").read_bytes()
    search.run()
    assert files(search.out / "trials") == before
    assert (search.out / "results.json").read_bytes() == results
    make_search('"model.dim" = [4, 3, 2]').run()
    assert before.items() <= files(search.out / "trials").items()
    assert len(list((search.out / "trials").iterdir())) == 3


@pytest.mark.battery(36)
def test_the_order_of_trials_does_not_matter(make_search: MakeSearch) -> None:
    one, other = make_search(out="one"), make_search(
        '"optimizer.learning_rate" = [0.1, 0.5]\n"regularizer.weight" = [0.01, 0.1, 0]', out="other"
    )  # fmt: skip
    assert one.trials() != other.trials()
    one.run()
    other.run()
    assert timeless(one) == timeless(other)


@pytest.mark.battery(30)
def test_a_search_continues_after_a_trial_that_diverged(make_search: MakeSearch) -> None:
    settings = ("optimizer.name=sgd", "model.scale=1")
    search = make_search('"optimizer.learning_rate" = [1e30, 0.1]', *settings)
    search.run()
    good, bad = search.statuses()
    assert (good.state, bad.state) == ("finished", "diverged")
    assert bad.trial.settings["optimizer.learning_rate"] == 1e30
    assert bad.valid_mrr is None
    assert "not finite" in (bad.reason or "")
    before = files(search.out / "trials")
    search.run()
    assert files(search.out / "trials") == before


@pytest.mark.battery(31)
def test_a_search_continues_after_a_trial_that_is_too_large(make_search: MakeSearch) -> None:
    search = make_search(f'"model.dim" = [{10**15}, 4]')
    search.run()
    good, bad = search.statuses()
    assert (good.state, bad.state) == ("finished", "too large")
    assert good.trial.settings["model.dim"] == 4
    assert bad.valid_mrr is None
    assert "out of memory" in (bad.reason or "")


@pytest.mark.battery(36)
def test_a_search_that_was_stopped_continues_from_the_checkpoint(make_search: MakeSearch) -> None:
    search = make_search()
    with pytest.raises(Interrupted, match="run the same command to continue") as caught:
        search.run(stop_after(51))  # a trial takes 30 steps
    assert caught.value.exit_code == 143
    statuses = search.statuses()
    assert [status.state for status in statuses] == ["finished", "paused", *["waiting"] * 4]
    run = Run.open(search.out / "trials" / statuses[1].trial.id)
    before = run.metrics()
    assert len(before) in (3, 4)
    search.run()
    assert run.metrics()[: len(before)] == before  # a new training would have other seconds
    straight = make_search(out="straight")
    straight.run()
    assert timeless(search) == timeless(straight)


@pytest.mark.battery(36)
def test_a_trial_that_another_process_runs_is_left_to_it(make_search: MakeSearch) -> None:
    search = make_search(TWO)
    (search.out / "locks").mkdir(parents=True)
    theirs, ours = (TrialFolder(search.out, trial) for trial in search.trials())
    with FileLock(theirs.lock):
        assert [status.state for status in search.statuses()] == ["running", "waiting"]
        with pytest.raises(Interrupted):
            search.run(lambda: signal.SIGTERM if ours.result() else 0)
        assert not theirs.folder.exists()
    assert ours.result() is not None
    search.run()
    assert theirs.result() is not None


@pytest.mark.battery(36)
def test_a_half_made_run_is_made_again(make_search: MakeSearch, tiny_graph: Any) -> None:
    search = make_search(ONE)
    folder = TrialFolder(search.out, search.trials()[0])
    folder.folder.mkdir(parents=True)
    (folder.folder / "entities.txt").write_text("half a na")
    search.run()
    result = folder.result()
    assert result is not None
    assert result.data == data_hash(tiny_graph)
    assert Recipe.read(folder.folder / "recipe.toml") == folder.trial.recipe


@pytest.mark.parametrize("damage", ["", "{}", '{"trial": "another"}', "[" * 9])
def test_a_damaged_result_does_not_count(make_search: MakeSearch, damage: str) -> None:
    search = make_search(ONE)
    search.run()
    folder = TrialFolder(search.out, search.trials()[0])
    whole = folder.result()
    (folder.folder / "result.json").write_text(damage)
    assert folder.result() is None
    search.run()
    assert folder.result() == whole


def test_data_that_has_changed_is_refused(make_search: MakeSearch, tiny_folder: Path) -> None:
    search = make_search(ONE)
    search.run()
    folder = TrialFolder(search.out, search.trials()[0])
    result = folder.result()
    assert result is not None
    with (tiny_folder / "train.tsv").open("a") as file:
        file.write("Italy\tborders\tSpain\n")
    with pytest.raises(UsageError, match=f"trained on other data \\({result.data}, now [0-9a-f]"):
        search.run()
    (folder.folder / "result.json").unlink()
    with pytest.raises(UsageError, match="trained on other data"):
        search.run()


def test_a_search_needs_a_valid_split(make_search: MakeSearch, tiny_folder: Path) -> None:
    (tiny_folder / "valid.tsv").unlink()
    search = make_search()
    with pytest.raises(DataError, match="valid has no triples; a search selects by valid MRR"):
        search.run()
    assert not search.out.exists()


def test_trials_are_counted_for_ranges_only(make_search: MakeSearch) -> None:
    with pytest.raises(UsageError, match="--trials is for ranges"):
        make_search(TWO, n_trials=3)
    with pytest.raises(UsageError, match="give the number of trials by --trials"):
        make_search('"model.dim" = { low = 2, high = 5 }')
