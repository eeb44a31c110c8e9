"""The packaged knowledge base is correct, complete, and as hard as documented."""

from __future__ import annotations

from collections import Counter
from importlib import resources
from itertools import chain

import pytest

Triple = tuple[str, str, str]

SPLITS = ("train", "valid", "test")
INVERSES = {"borders": "borders", "capital_of": "has_capital", "city_in": "contains_city"}
IMPLICATIONS = {"capital_of": "city_in", "official_language": "speaks"}
COMPOSITIONS = {
    ("city_in", "in_subregion"): "city_in_subregion",
    ("in_subregion", "subregion_of"): "in_region",
    ("contains_city", "city_in_subregion"): "in_subregion",
}


def lines(graph: str, split: str) -> list[str]:
    path = resources.files("allneg") / "graph" / "countries" / graph / f"{split}.tsv"
    return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def triples(graph: str, split: str) -> list[Triple]:
    rows = (line.split("\t") for line in lines(graph, split))
    return [(head, relation, tail) for head, relation, tail in rows]


def everything(graph: str) -> list[Triple]:
    return list(chain.from_iterable(triples(graph, split) for split in SPLITS))


def consequences(facts: set[Triple]) -> set[Triple]:
    """What follows from `facts` by one application of the rules."""
    inverses = INVERSES | {two: one for one, two in INVERSES.items()}
    found = {(t, inverses[r], h) for h, r, t in facts if r in inverses}
    found |= {(h, IMPLICATIONS[r], t) for h, r, t in facts if r in IMPLICATIONS}
    for (first, second), whole in COMPOSITIONS.items():
        second_of: dict[str, list[str]] = {}
        for head, relation, tail in facts:
            if relation == second:
                second_of.setdefault(head, []).append(tail)
        found |= {
            (h, whole, end)
            for h, r, middle in facts
            if r == first
            for end in second_of.get(middle, [])
        }
    return found - facts


def closure(facts: set[Triple]) -> set[Triple]:
    """`facts` and everything that follows from them by any number of rules."""
    while new := consequences(facts):
        facts = facts | new
    return facts


@pytest.fixture(params=["plain", "hard"])
def graph(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_splits_have_their_sizes(graph):
    assert [len(triples(graph, split)) for split in SPLITS] == [6330, 791, 791]


def test_there_are_thirteen_relations_and_2189_entities(graph):
    facts = everything(graph)
    assert len({entity for head, _, tail in facts for entity in (head, tail)}) == 2189
    assert Counter(relation for _, relation, _ in facts) == {
        "borders": 648,
        "capital_of": 241,
        "has_capital": 241,
        "city_in": 1287,
        "contains_city": 1287,
        "city_in_subregion": 1287,
        "in_subregion": 243,
        "subregion_of": 22,
        "in_region": 243,
        "in_timezone": 1287,
        "speaks": 532,
        "official_language": 344,
        "uses_currency": 250,
    }


def test_both_graphs_have_the_same_facts():
    assert set(everything("plain")) == set(everything("hard"))


def test_there_are_no_duplicates_and_no_self_loops(graph):
    facts = everything(graph)
    assert len(set(facts)) == len(facts)
    assert [fact for fact in facts if fact[0] == fact[2]] == []


def test_names_are_clean(graph):
    for split in SPLITS:
        for text in lines(graph, split):
            assert text.count("\t") == 2
            for name in text.split("\t"):
                assert name
                assert name == name.strip()
                assert name.isprintable()


def test_train_has_every_entity_and_relation_of_valid_and_test(graph):
    train = triples(graph, "train")
    entities = {entity for head, _, tail in train for entity in (head, tail)}
    relations = {relation for _, relation, _ in train}
    for head, relation, tail in triples(graph, "valid") + triples(graph, "test"):
        assert {head, tail} <= entities
        assert relation in relations


def test_inverse_relations_are_complete(graph):
    facts = set(everything(graph))
    for one, two in INVERSES.items():
        assert {(t, two, h) for h, r, t in facts if r == one} == {f for f in facts if f[1] == two}


def test_composed_relations_follow_from_their_parts():
    facts = set(everything("plain"))
    assert {r for _, r, _ in consequences(facts)} <= {"speaks"}  # official, but hardly spoken
    for whole in ("city_in_subregion", "in_region"):
        without = {fact for fact in facts if fact[1] != whole}
        assert {fact for fact in facts if fact[1] == whole} <= consequences(without)


def test_well_known_facts_are_correct():
    facts = set(everything("plain"))
    assert {tail for head, r, tail in facts if (head, r) == ("Germany", "borders")} == {
        "Austria",
        "Belgium",
        "Czechia",
        "Denmark",
        "France",
        "Luxembourg",
        "Netherlands",
        "Poland",
        "Switzerland",
    }
    assert {tail for head, r, tail in facts if (head, r) == ("Portugal", "borders")} == {"Spain"}
    assert {tail for head, r, tail in facts if (head, r) == ("Iceland", "borders")} == set()
    assert {
        ("Paris", "capital_of", "France"),
        ("France", "speaks", "French"),
        ("France", "uses_currency", "Euro"),
        ("Paris", "in_timezone", "Europe/Paris"),
        ("Lyon", "city_in_subregion", "Western Europe"),
        ("Western Europe", "subregion_of", "Europe"),
        ("United States", "uses_currency", "US Dollar"),
        ("Brazil", "official_language", "Portuguese"),
        ("Astana", "capital_of", "Kazakhstan"),
        ("Nairobi", "city_in_subregion", "Eastern Africa"),
    } <= facts
    assert ("Sydney", "capital_of", "Australia") not in facts


def test_each_country_has_one_subregion_and_at_most_one_capital():
    facts = everything("plain")
    for relation in ("in_subregion", "in_region", "has_capital"):
        heads = Counter(head for head, r, _ in facts if r == relation)
        assert max(heads.values()) == 1


def test_namesakes_are_different_entities():
    facts = set(everything("plain"))
    assert ("Singapore (city)", "capital_of", "Singapore") in facts
    assert ("Hyderabad, Pakistan", "city_in", "Pakistan") in facts
    assert ("Hyderabad, India", "city_in", "India") in facts
    assert ("Suzhou, Anhui", "city_in", "China") in facts
    cities = {head for head, relation, _ in facts if relation == "city_in"}
    countries = {head for head, relation, _ in facts if relation == "in_subregion"}
    others = {
        tail
        for _, relation, tail in facts
        if relation in ("speaks", "official_language", "uses_currency", "in_timezone", "in_region")
    }
    assert not cities & countries
    assert not (cities | countries) & others


def test_no_hard_valid_or_test_fact_follows_from_train():
    given = closure(set(triples("hard", "train")))
    assert sorted(given & set(triples("hard", "valid") + triples("hard", "test"))) == []


def test_most_plain_valid_and_test_facts_follow_from_train():
    # This shows that the rules detect leaks.
    held_out = set(triples("plain", "valid") + triples("plain", "test"))
    given = consequences(set(triples("plain", "train")))
    assert len(given & held_out) == 950


def test_both_graphs_take_less_than_a_megabyte():
    texts = [
        text for graph in ("plain", "hard") for split in SPLITS for text in lines(graph, split)
    ]
    assert sum(len(text.encode()) + 1 for text in texts) < 1_000_000


def test_the_sources_are_named():
    text = (resources.files("allneg") / "graph" / "countries" / "ATTRIBUTION.md").read_text("utf-8")
    assert "GeoNames" in text
    assert "creativecommons.org/licenses/by/4.0" in text
    assert "UNICODE LICENSE V3" in text
