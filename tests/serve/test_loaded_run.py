from __future__ import annotations

from pathlib import Path

import pytest

from allneg.errors import DataError, RunError
from allneg.runs import Run
from allneg.serve.loaded_run import LoadedRun, load_runs


def test_runs_of_one_name_get_numbers(toy_run: Run) -> None:
    found = load_runs([toy_run.folder] * 3, {}, "cpu")
    assert list(found) == ["run", "run-2", "run-3"]
    assert [each.id for each in found.values()] == list(found)


def test_labels_that_fit_no_entity_are_a_mistake(toy_run: Run) -> None:
    with pytest.raises(DataError, match="no label belongs to an entity"):
        load_runs([toy_run.folder], {"/m/1": "Denton"}, "cpu")


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run"):
        load_runs([tmp_path], {}, "cpu")


def test_a_card_says_what_the_run_is(opened: LoadedRun) -> None:
    card = opened.card
    assert (card.id, card.data, card.model, card.dim) == ("run", "tiny", "complex", 4)
    assert (card.entities, card.relations, card.train, card.valid, card.test) == (12, 3, 20, 2, 3)
    assert card.mrr == opened.run.report.mrr
    assert card.hits == opened.run.report.hits
    assert card.protocol == opened.run.report.protocol
    assert card.finished
    assert card.epochs == len(opened.run.metrics())


def test_entities_are_found_by_label(opened: LoadedRun) -> None:
    found = opened.entities("french rep", 5)
    assert [(each.name, each.label, each.degree) for each in found.entities] == [
        ("France", "French Republic", 9)
    ]
    assert found.match == "prefix"


def test_relations_that_a_head_has_come_first(opened: LoadedRun) -> None:
    found = opened.relations("", "Paris")
    assert [(each.name, each.typical) for each in found] == [
        ("in", True),
        ("capital_of", True),
        ("borders", False),
    ]
    assert [each.count for each in found] == [12, 3, 5]
    assert [each.name for each in opened.relations("", None)] == [
        "in",
        "borders",
        "capital_of",
    ]


def test_relations_are_found_by_what_is_typed(opened: LoadedRun) -> None:
    assert [each.name for each in opened.relations("cap", None)] == ["capital_of"]
    assert opened.relations("xyz", None) == []


def test_the_map_has_a_place_name_and_colour_for_every_entity(opened: LoadedRun) -> None:
    plain, coloured = opened.map(None, "pca"), opened.map("in", "pca")
    assert sorted(plain.names) == sorted(opened.predictor.graph.vocabulary.entities)
    assert len(plain.points) == len(plain.colours) == 12
    assert (plain.legend, set(plain.colours)) == (["all"], {0})
    assert coloured.points == plain.points
    colour = dict(zip(coloured.names, (coloured.legend[i] for i in coloured.colours), strict=True))
    assert colour["France"] == "Europe"  # in Europe and on Earth, and more are in Europe
    assert colour["Europe"] == "Earth"
    assert colour["Earth"] == "none"


def test_a_large_graph_is_mapped_in_part_and_says_so(
    unlabelled: LoadedRun, monkeypatch: pytest.MonkeyPatch, toy_run: Run
) -> None:
    monkeypatch.setattr("allneg.serve.loaded_run.MAX_POINTS", 4)
    found = LoadedRun.load(toy_run.folder, "few", {}, "cpu").map(None, "pca")
    assert len(found.names) == 4
    assert found.names[0] == "France"
    assert found.note.startswith("the 4 of 12 entities with most facts")
