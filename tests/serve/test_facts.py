from __future__ import annotations

import pytest

from allneg.serve.loaded_run import LoadedRun
from allneg.serve.server import ApiError
from allneg.serve.views import entity_page, explain, fact_group


def test_supporters_have_the_same_answer_in_train_nearest_first(loaded: LoadedRun) -> None:
    found = explain(loaded, ("Portugal", "in", "Europe"), "tail").neighbours
    # Italy (valid) and Sicily (test) are in Europe, too, but not in train.
    assert {item.entity for item in found} == {"France", "Spain", "Paris", "Madrid"}
    assert [item.similarity for item in found] == sorted(
        (item.similarity for item in found), reverse=True
    )
    assert all(item.fact == [item.entity, "in", "Europe"] for item in found)


def test_a_head_is_supported_by_similar_tails(loaded: LoadedRun) -> None:
    found = explain(loaded, ("France", "borders", "Portugal"), "head").neighbours
    assert sorted(item.fact for item in found) == [
        ["France", "borders", "Italy"],
        ["France", "borders", "Spain"],
    ]


def test_facts_between_the_two_have_either_direction(loaded: LoadedRun) -> None:
    found = explain(loaded, ("Italy", "in", "France"), "tail").facts
    assert sorted(found) == [
        ["France", "borders", "Italy", "train"],
        ["Italy", "borders", "France", "valid"],
    ]


def test_a_fact_is_no_reason_for_itself(loaded: LoadedRun) -> None:
    found = explain(loaded, ("Italy", "borders", "France"), "tail").facts
    assert found == [["France", "borders", "Italy", "train"]]


def test_paths_of_two_steps_are_counted_by_their_relations(loaded: LoadedRun) -> None:
    found = explain(loaded, ("Paris", "in", "Europe"), "tail").paths
    ways = {tuple(item.relations): (item.count, item.example) for item in found}
    assert ways == {
        ("capital_of", "in"): (
            1,
            [["Paris", "capital_of", "France"], ["France", "in", "Europe"]],
        ),
        ("in", "in"): (1, [["Paris", "in", "France"], ["France", "in", "Europe"]]),
    }


def test_a_reversed_step_has_a_mark_and_its_fact_as_it_is(loaded: LoadedRun) -> None:
    found = explain(loaded, ("Madrid", "in", "Paris"), "tail").paths
    example = {tuple(item.relations): item.example for item in found}["in", "^in"]
    assert example == [["Madrid", "in", "Europe"], ["Paris", "in", "Europe"]]


def test_an_entity_page_has_its_facts_by_relation_and_direction(loaded: LoadedRun) -> None:
    page = entity_page(loaded, "France")
    assert (page.label, page.degree) == ("French Republic", 9)
    groups = {(item.relation, item.direction): item for item in page.facts}
    assert {key: item.total for key, item in groups.items()} == {
        ("borders", "out"): 2,
        ("borders", "in"): 2,
        ("in", "in"): 2,
        ("in", "out"): 2,
        ("capital_of", "in"): 1,
    }
    splits = {item.name: item.split for item in groups["borders", "in"].entities}
    assert splits == {"Spain": "train", "Italy": "valid"}
    assert len(page.neighbours) == 10
    assert "France" not in {item.name for item in page.neighbours}


def test_the_facts_of_a_relation_come_in_parts(
    loaded: LoadedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allneg.serve.views._MAX_OTHERS", 1)
    group = ("in", "in")
    [first] = [item for item in entity_page(loaded, "Europe").facts if item.direction == "in"]
    assert (first.total, len(first.entities)) == (7, 1)
    parts = [fact_group(loaded, "Europe", group, start, 3) for start in (0, 3, 6, 9)]
    assert [item.total for item in parts] == [7] * 4
    assert [len(item.entities) for item in parts] == [3, 3, 1, 0]
    every = [item for part in parts for item in part.entities]
    assert every[:1] == first.entities
    assert {item.name for item in every} == {
        "France", "Spain", "Paris", "Madrid", "Italy", "Portugal", "Sicily"
    }  # fmt: skip
    assert fact_group(loaded, "Europe", ("borders", "in"), 0, 3).total == 0


def test_the_drawing_holds_known_facts_and_only_new_ones_are_predicted(loaded: LoadedRun) -> None:
    known = set(loaded.graph.facts())
    for name in loaded.vocabulary.entities:
        graph = entity_page(loaded, name).graph
        nodes = [item.name for item in graph.nodes]
        assert nodes[0] == name
        assert len(set(nodes)) == len(nodes) <= 24
        for edge in graph.edges:
            assert {edge.head, edge.tail} <= set(nodes)
            assert name in (edge.head, edge.tail)
            assert ((edge.head, edge.relation, edge.tail) in known) != edge.predicted


def test_neighbours_are_the_cosines_of_rows(loaded: LoadedRun) -> None:
    rows = loaded.predictor.tables.entities.detach().double()
    rows = rows / rows.norm(dim=1, keepdim=True)
    paris = loaded.entity_id("Paris")
    for item in loaded.neighbours("Paris", 11):
        cosine = float(rows[paris] @ rows[loaded.entity_id(item.name)])
        assert item.similarity == pytest.approx(cosine, abs=1e-5)


def test_unknown_names_are_errors_with_close_names(loaded: LoadedRun) -> None:
    with pytest.raises(ApiError, match="no entity is called 'Frence'") as caught:
        explain(loaded, ("Frence", "in", "Europe"), "tail")
    assert caught.value.code == "unknown_entity"
    assert caught.value.near == ["France"]
    with pytest.raises(ApiError, match="no relation is called 'border'") as caught:
        explain(loaded, ("France", "border", "Spain"), "tail")
    assert (caught.value.code, caught.value.near) == ("unknown_relation", ["borders"])
