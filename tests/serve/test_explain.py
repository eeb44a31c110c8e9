from __future__ import annotations

import pytest

from allneg.serve.entity import entity_page
from allneg.serve.errors import ApiError
from allneg.serve.explain import explain
from allneg.serve.loaded_run import LoadedRun


def test_supporters_have_the_same_answer_in_train_nearest_first(opened: LoadedRun) -> None:
    found = explain(opened, ("Portugal", "in", "Europe"), "tail").neighbours
    # Italy (valid) and Sicily (test) are in Europe too, but the model has not learned it so.
    assert {each.entity for each in found} == {"France", "Spain", "Paris", "Madrid"}
    assert [each.similarity for each in found] == sorted(
        (each.similarity for each in found), reverse=True
    )
    assert all(each.fact == [each.entity, "in", "Europe"] for each in found)


def test_a_head_is_supported_by_tails_like_the_asked_one(opened: LoadedRun) -> None:
    found = explain(opened, ("France", "borders", "Portugal"), "head").neighbours
    assert sorted(each.fact for each in found) == [
        ["France", "borders", "Italy"],
        ["France", "borders", "Spain"],
    ]


def test_facts_join_the_two_in_either_direction(opened: LoadedRun) -> None:
    found = explain(opened, ("Italy", "borders", "France"), "tail").facts
    assert sorted(found) == [
        ["France", "borders", "Italy", "train"],
        ["Italy", "borders", "France", "valid"],
    ]


def test_paths_of_two_steps_are_counted_by_their_relations(opened: LoadedRun) -> None:
    found = explain(opened, ("Paris", "in", "Europe"), "tail").paths
    ways = {tuple(each.relations): (each.count, each.example) for each in found}
    assert ways == {
        ("capital_of", "in"): (
            1,
            [["Paris", "capital_of", "France"], ["France", "in", "Europe"]],
        ),
        ("in", "in"): (1, [["Paris", "in", "France"], ["France", "in", "Europe"]]),
    }


def test_a_reversed_step_has_a_mark_and_its_fact_as_it_is(opened: LoadedRun) -> None:
    found = explain(opened, ("Madrid", "in", "Paris"), "tail").paths
    example = {tuple(each.relations): each.example for each in found}["in", "^in"]
    assert example == [["Madrid", "in", "Europe"], ["Paris", "in", "Europe"]]


def test_an_entity_page_has_its_facts_by_relation_and_direction(opened: LoadedRun) -> None:
    page = entity_page(opened, "France")
    assert (page.label, page.degree) == ("French Republic", 9)
    groups = {(each.relation, each.direction): each for each in page.facts}
    assert {key: each.total for key, each in groups.items()} == {
        ("borders", "out"): 2,
        ("borders", "in"): 2,
        ("in", "in"): 2,
        ("in", "out"): 2,
        ("capital_of", "in"): 1,
    }
    splits = {each.name: each.split for each in groups["borders", "in"].entities}
    assert splits == {"Spain": "train", "Italy": "valid"}
    assert len(page.neighbours) == 10
    assert "France" not in {each.name for each in page.neighbours}


def test_the_drawing_holds_known_facts_and_only_new_ones_are_predicted(opened: LoadedRun) -> None:
    known = {
        (opened.name(h), opened.predictor.graph.vocabulary.relations[r], opened.name(t))
        for h, r, t in opened.facts.triples.tolist()
    }
    for name in opened.predictor.graph.vocabulary.entities:
        graph = entity_page(opened, name).graph
        nodes = [each.name for each in graph.nodes]
        assert nodes[0] == name
        assert len(set(nodes)) == len(nodes) <= 24
        for edge in graph.edges:
            assert {edge.head, edge.tail} <= set(nodes)
            assert name in (edge.head, edge.tail)
            assert ((edge.head, edge.relation, edge.tail) in known) != edge.predicted


def test_neighbours_are_the_cosines_of_rows(opened: LoadedRun) -> None:
    rows = opened.predictor.tables.entities.detach().double()
    rows = rows / rows.norm(dim=1, keepdim=True)
    paris = opened.entity_id("Paris")
    for each in opened.neighbours("Paris", 11).neighbours:
        cosine = float(rows[paris] @ rows[opened.entity_id(each.name)])
        assert each.similarity == pytest.approx(cosine, abs=1e-5)


def test_unknown_names_are_refused_with_names_like_them(opened: LoadedRun) -> None:
    with pytest.raises(ApiError, match="no entity is called 'Frence'") as refused:
        explain(opened, ("Frence", "in", "Europe"), "tail")
    assert refused.value.code == "unknown_entity"
    assert refused.value.near == ["France"]
    with pytest.raises(ApiError, match="no relation is called 'border'") as refused:
        explain(opened, ("France", "border", "Spain"), "tail")
    assert (refused.value.code, refused.value.near) == ("unknown_relation", ["borders"])
