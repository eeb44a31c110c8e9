"""Spaces with ranges: trials asked for one by one, each once, whatever is killed."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.cli.search import _Asked
from allneg.errors import Interrupted, RecipeError, RunError
from allneg.training.search import Ranged, read_ranged, search_ranges, standings
from allneg.training.search import asking as module
from allneg.training.search.plot import _few
from allneg.training.search.space import Range, Trial
from allneg.training.search.tpe import Told, suggested
from allneg.training.search.work import Work

BASE = """
[data]
name = "{data}"
[model]
dim = 4
[training]
epochs = 4
batch_size = 40
[evaluation]
every = 2
[hardware]
device = "cpu"
threads = 1
[search]
{searched}
"""
SEARCHED = """
"optimizer.learning_rate" = {{ low = 0.01, high = 0.5, log = true }}
"model.dim" = {{ low = 3, high = 6 }}
"regularizer.name" = ["n3", "l2"]
""".replace("{{", "{").replace("}}", "}")
needs_optuna = pytest.mark.skipif(
    importlib.util.find_spec("optuna") is None, reason="optuna is not installed: allneg[search]"
)

ReadRanged = Callable[..., Ranged]


@pytest.fixture
def ranged(tiny_folder: Path, tmp_path: Path) -> ReadRanged:
    def read(searched: str = SEARCHED, count: int = 4, *settings: str) -> Ranged:
        file = tmp_path / "space.toml"
        file.write_text(BASE.format(data=tiny_folder, searched=searched))
        return read_ranged(file, count, settings)

    return read


@pytest.fixture
def by_turns(monkeypatch: pytest.MonkeyPatch) -> list[list[Told]]:
    """Instead of Optuna: rates that rise from trial to trial; what each was told."""
    seen: list[list[Told]] = []

    def next_one(axes: Any, told: Any) -> dict[str, Any]:
        seen.append(list(told))
        rate = 0.01 * (1 + len(told))
        return {"optimizer.learning_rate": rate, "model.dim": 3, "regularizer.name": "n3"}

    monkeypatch.setattr(module, "suggested", next_one)
    return seen


def test_so_many_trials_are_asked_for_and_each_is_tried(
    ranged: ReadRanged, by_turns: list[list[Told]], tmp_path: Path
) -> None:
    asked, out = ranged(), tmp_path / "out"
    search_ranges(asked, out)
    found = standings(asked.space(out), out)
    assert [each.state for each in found] == ["finished"] * 4
    rates = sorted(each.trial.settings["optimizer.learning_rate"] for each in found)
    assert rates == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert len(json.loads((out / "results.json").read_text())["trials"]) == 4
    # Each was told how those before it had ended.
    assert [len(told) for told in by_turns] == [0, 1, 2, 3]
    mrrs = {each.trial.settings["optimizer.learning_rate"]: each.valid_mrr for each in found}
    for each in by_turns[-1]:
        assert each.valid_mrr == mrrs[each.settings["optimizer.learning_rate"]]
    search_ranges(asked, out)
    assert len(by_turns) == 4  # nothing more was asked for


def test_more_trials_go_on_where_fewer_ended(
    ranged: ReadRanged, by_turns: list[list[Told]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    search_ranges(ranged(count=2), out)
    search_ranges(ranged(count=3), out)
    assert [len(told) for told in by_turns] == [0, 1, 2]


@pytest.mark.usefixtures("by_turns")
def test_what_was_cut_off_is_taken_up_before_anything_new(
    ranged: ReadRanged, tmp_path: Path
) -> None:
    asked, out = ranged(), tmp_path / "out"
    left = 4

    def soon() -> int:
        nonlocal left
        left -= 1
        return 15 if left < 0 else 0

    with pytest.raises(Interrupted):
        search_ranges(asked, out, stopped_by=soon)
    before = asked.asked(out)
    assert 0 < len(before) < 4
    search_ranges(asked, out)
    assert asked.asked(out)[: len(before)] == before
    assert len(asked.asked(out)) == 4
    assert all(each.state == "finished" for each in standings(asked.space(out), out))


@pytest.mark.usefixtures("by_turns")
def test_what_another_process_asks_for_meanwhile_is_waited_for(
    ranged: ReadRanged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, out = ranged(count=2), tmp_path / "out"
    more = {"optimizer.learning_rate": 0.4, "model.dim": 3, "regularizer.name": "n3"}

    class Meanwhile(Work):
        def done(self, trial: Trial) -> bool:
            ended = super().done(trial)
            if len(asked.asked(out)) == 1:  # while this one is tried, or a look later
                asked.ask(out, more)
            return ended

    monkeypatch.setattr(module, "Work", Meanwhile)
    search_ranges(asked, out)
    assert [each.state for each in standings(asked.space(out), out)] == ["finished"] * 2
    assert len(json.loads((out / "results.json").read_text())["trials"]) == 2


def test_what_is_suggested_twice_is_tried_once_and_no_more_is_left(
    ranged: ReadRanged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = {"optimizer.learning_rate": 0.1, "model.dim": 3, "regularizer.name": "n3"}
    monkeypatch.setattr(module, "suggested", lambda axes, told: same)
    asked, out = ranged(count=3), tmp_path / "out"
    command = _Asked(asked, out, False)
    assert command.n_left() == 3
    search_ranges(asked, out)
    assert len(asked.asked(out)) == 3
    assert len(standings(asked.space(out), out)) == 1
    assert command.n_left() == 0


@pytest.mark.usefixtures("by_turns")
def test_a_diverged_trial_counts_as_nothing(
    ranged: ReadRanged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Told] = []

    def wild(axes: Any, past: Any) -> dict[str, Any]:
        told[:] = past
        return {"optimizer.learning_rate": 1e30 if not past else 0.1}

    monkeypatch.setattr(module, "suggested", wild)
    searched = '"optimizer.learning_rate" = { low = 0.01, high = 1e30 }'
    asked = ranged(searched, 2, "optimizer.name=sgd")
    search_ranges(asked, tmp_path / "out")
    assert told[0].valid_mrr == 0.0


@pytest.mark.parametrize(
    "settings",
    [
        {"model.dim": 3},
        {"model.dim": 9, "regularizer.name": "n3"},
        {"model.dim": 2.5, "regularizer.name": "n3"},
        {"model.dim": 3, "regularizer.name": "l2"},
    ],
)
def test_a_folder_of_another_space_is_refused(
    ranged: ReadRanged, tmp_path: Path, settings: dict[str, Any]
) -> None:
    asked = ranged('"model.dim" = { low = 2, high = 8 }\n"regularizer.name" = ["n3"]')
    right = {"model.dim": 8, "regularizer.name": "n3"}
    (tmp_path / "asked.json").write_text(json.dumps([right]))
    assert asked.asked(tmp_path) == [right]
    (tmp_path / "asked.json").write_text(json.dumps([right, settings]))
    with pytest.raises(RunError, match="choose another --out"):
        asked.asked(tmp_path)


@pytest.mark.parametrize(
    "searched, said",
    [
        ('"model.dim" = [3, 4]', r"--trials is for ranges"),
        ('"model.dim" = { low = 0, high = 4 }', r"model\.dim must be more than 0"),
        ('"loss.label_smoothing" = { low = 0, high = 4 }', r"loss\.smoothing must be at least 0"),
        ('"model.dmi" = { low = 1, high = 4 }', r"model\.dmi is not a setting"),
        ('"data.split_seed" = { low = 1, high = 4 }', r"data\.split_seed cannot be searched"),
    ],
)
def test_a_mistake_in_a_range_is_named(ranged: ReadRanged, searched: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        ranged(searched)


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RecipeError, match=r"pip install 'allneg\[search\]'"):
        suggested({"model.dim": Range(3, 6)}, [])


def test_an_axis_of_many_values_has_few_ticks() -> None:
    assert _few([1, 2, 3]) == [1, 2, 3]
    few = _few(list(range(100)))
    assert len(few) == 8
    assert (few[0], few[-1]) == (0, 99)


@needs_optuna
def test_optuna_stays_in_the_ranges_and_says_the_same_of_the_same_past() -> None:
    axes = {"rate": Range(1e-3, 1.0, log=True), "dim": Range(3, 6), "name": ["a", "b"]}
    told: list[Told] = []
    for i in range(30):
        found = suggested(axes, told)
        assert suggested(axes, told) == found
        assert 1e-3 <= found["rate"] <= 1.0
        assert found["dim"] in (3, 4, 5, 6)
        assert found["name"] in ("a", "b")
        assert isinstance(found["dim"], int)
        told.append(Told(found, None if i % 7 == 6 else 1 - abs(found["rate"] - 0.1)))


@needs_optuna
def test_optuna_looks_where_it_was_good() -> None:
    axes = {"rate": Range(0.0, 1.0)}
    told: list[Told] = []
    for _ in range(40):
        found = suggested(axes, told)
        told.append(Told(found, -abs(found["rate"] - 0.7)))
    early, late = told[:10], told[-10:]
    off = [sum(abs(each.settings["rate"] - 0.7) for each in some) for some in (early, late)]
    assert off[1] < off[0] / 2


@needs_optuna
def test_a_search_by_optuna_ends_with_results(ranged: ReadRanged, tmp_path: Path) -> None:
    asked, out = ranged(count=3), tmp_path / "out"
    search_ranges(asked, out)
    assert len(asked.asked(out)) == 3
    assert all(each.state == "finished" for each in standings(asked.space(out), out))


CLASH = """
"loss.name" = ["softmax", "logistic"]
"loss.margin" = { low = 0.0, high = 3.0 }
"""


def test_settings_that_do_not_go_together_are_named_before_anything_is_asked(
    ranged: ReadRanged,
) -> None:
    with pytest.raises(RecipeError, match=r"loss\.margin changes nothing in a softmax"):
        ranged(CLASH)


def test_what_could_not_be_tried_is_not_written(
    ranged: ReadRanged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {"optimizer.learning_rate": -1.0, "model.dim": 3, "regularizer.name": "n3"}
    monkeypatch.setattr(module, "suggested", lambda axes, told: bad)
    asked, out = ranged(), tmp_path / "out"
    with pytest.raises(RecipeError, match="learning_rate"):
        search_ranges(asked, out)
    assert asked.asked(out) == []
