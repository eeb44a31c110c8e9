from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from allneg.errors import DataError, Diverged, RunError
from allneg.graph import Graph
from allneg.predict.lookup import NameIndex
from allneg.predict.predictor import Predictor
from allneg.runs import Run
from allneg.runs.ensemble import ensemble
from allneg.scoring.tables import Tables
from allneg.serve.loaded_run import LoadedRun, load_runs
from allneg.serve.server import ApiError
from allneg.serve.views import examples, explain, quality


def test_runs_of_one_name_get_numbers(toy_run: Run) -> None:
    found = load_runs([toy_run.folder] * 3, {}, "cpu")
    assert list(found) == ["run", "run-2", "run-3"]
    assert [item.id for item in found.values()] == list(found)


def test_labels_of_no_entity_are_an_error(toy_run: Run) -> None:
    with pytest.raises(DataError, match="no label belongs to an entity"):
        load_runs([toy_run.folder], {"/m/1": "Denton"}, "cpu")


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run"):
        load_runs([tmp_path], {}, "cpu")


@pytest.mark.battery(64)
@pytest.mark.parametrize("has_valid", [True, False])
def test_a_diverged_run_among_others_is_named(
    toy_run: Run, toy_copy: Run, has_valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Run.tables

    def diverged(run: Run) -> Tables:
        found = tables(run)
        if run.folder == toy_copy.folder:
            found.entities.data.fill_(float("nan"))
        return found

    monkeypatch.setattr(Run, "tables", diverged)
    if not has_valid:  # found when examples are chosen
        monkeypatch.setattr(Predictor, "calibration", None)
    with pytest.raises(Diverged, match=f"{toy_copy.folder}: a score is not finite"):
        list(map(examples, load_runs([toy_run.folder, toy_copy.folder], {}, "cpu").values()))


def test_a_close_name_in_another_unicode_form_is_shown_escaped(
    loaded: LoadedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = NameIndex(["Go\u0308ran", "Goranz"], np.ones(2), {})
    monkeypatch.setattr(loaded, "entity_index", index)
    with pytest.raises(ApiError) as caught:
        loaded.entity_id("G\u00f6ran")
    assert caught.value.message == (
        "no entity is called 'G\u00f6ran'; close is 'Go\\u0308ran', which has another Unicode form "
        "(NFC, NFD)"
    )
    assert caught.value.near == ["Go\u0308ran", "Goranz"]


def test_a_card_describes_the_run(loaded: LoadedRun) -> None:
    card = loaded.card
    assert (card.id, card.data, card.model, card.dim) == ("run", "tiny", "complex", 4)
    assert (card.entities, card.relations, card.train, card.valid, card.test) == (12, 3, 20, 2, 3)
    assert card.mrr == loaded.run.report.mrr
    assert card.hits == loaded.run.report.hits
    assert card.protocol == loaded.run.report.protocol
    assert card.finished
    assert card.epochs == len(loaded.run.metrics())


def test_entities_are_found_by_label(loaded: LoadedRun) -> None:
    found = loaded.entities("french rep", 5)
    assert [(item.name, item.label, item.degree) for item in found.entities] == [
        ("France", "French Republic", 9)
    ]
    assert found.match == "prefix"


def test_relations_that_a_head_has_come_first(loaded: LoadedRun) -> None:
    found = loaded.relations("", "Paris")
    assert [(item.name, item.typical) for item in found] == [
        ("in", True),
        ("capital_of", True),
        ("borders", False),
    ]
    assert [item.count for item in found] == [12, 3, 5]
    assert [item.name for item in loaded.relations("", None)] == [
        "in",
        "borders",
        "capital_of",
    ]


def test_relations_are_found_by_what_is_typed(loaded: LoadedRun) -> None:
    assert [item.name for item in loaded.relations("cap", None)] == ["capital_of"]
    assert loaded.relations("xyz", None) == []


def test_the_map_has_a_point_name_and_colour_per_entity(loaded: LoadedRun) -> None:
    plain, coloured = loaded.map(None, "pca"), loaded.map("in", "pca")
    assert sorted(plain.names) == sorted(loaded.predictor.graph.vocabulary.entities)
    assert len(plain.points) == len(plain.colours) == 12
    assert (plain.legend, set(plain.colours)) == (["all"], {0})
    assert coloured.points == plain.points
    colour = dict(zip(coloured.names, (coloured.legend[i] for i in coloured.colours), strict=True))
    assert colour["France"] == "Europe"  # in Europe and on Earth, and more are in Europe
    assert colour["Europe"] == "Earth"
    assert colour["Earth"] == "none"


def test_the_map_of_a_large_graph_shows_a_part_with_a_note(
    unlabelled: LoadedRun, monkeypatch: pytest.MonkeyPatch, toy_run: Run
) -> None:
    monkeypatch.setattr("allneg.serve.loaded_run.MAX_POINTS", 4)
    found = LoadedRun.load(toy_run.folder, "few", {}, "cpu").map(None, "pca")
    assert len(found.names) == 4
    assert found.names[0] == "France"
    assert found.note.startswith("the 4 of 12 entities with most facts")


def test_an_ensemble_is_explored_like_a_run(
    toy_run: Run, tiny_graph: Graph, trained: Callable[..., Run], tmp_path: Path
) -> None:
    other = trained("model.name=rotate")
    ensemble([toy_run.folder, other.folder], out=tmp_path / "both", device="cpu")
    loaded = LoadedRun.load(tmp_path / "both", "both", {}, "cpu")
    card = loaded.card
    assert (card.model, card.dim) == ("ensemble: complex, rotate", 8)
    (answers,) = loaded.predictor.answers([("tail", "France", "borders")], 3)
    assert len(loaded.predicted(("tail", "France", "borders"), answers, 0.0).answers) == 3
    # The cosine of two entities is the mean of the members' cosines.
    spain = tiny_graph.vocabulary.entity("Spain")
    parts = [LoadedRun.load(run.folder, "one", {}, "cpu") for run in (toy_run, other)]
    found = [item.vectors.similarities(0, [spain])[0] for item in (loaded, *parts)]
    assert found[0] == pytest.approx((found[1] + found[2]) / 2, abs=1e-5)
    assert len(loaded.map("borders", "pca").points) == 12
    assert explain(loaded, ("France", "borders", "Spain"), "tail").facts
    shown = quality(loaded).report
    assert shown is not None
    assert shown["mrr"] == pytest.approx(loaded.run.report.mrr)
