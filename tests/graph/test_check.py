"""What `check` finds in graphs small enough to count by hand, and in published datasets."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from allneg.graph import Graph, Vocabulary, read_graph
from allneg.graph import check as check_module
from allneg.graph.check import check, graph_hashes
from allneg.graph.graph import triple_keys

Read = Callable[..., Graph]


def test_counts_are_those_of_a_graph_counted_by_hand(read: Read) -> None:
    graph = read(
        b"a\tr\tb\na\tr\tb\nb\tr\ta\nc\ts\tc\n",
        b"a\tr\tb\nc\tr\td\n",
        b"b\tr\ta\nc\tr\td\nd\tu\td\n",
        keep_duplicates=True,
    )
    found = check(graph)
    assert found.triples == {"train": 4, "valid": 2, "test": 3}
    assert found.duplicates == {"train": 1, "valid": 0, "test": 0}
    assert found.overlaps == {"train and valid": 1, "train and test": 1, "valid and test": 1}
    assert found.self_loops == {"train": 1, "valid": 0, "test": 1}
    assert (found.unseen_entities, found.unseen_relations) == (1, 1)
    assert found.unseen_triples == {"valid": 1, "test": 2}
    assert list(found.by_relation.items()) == [
        ("r", {"train": 3, "valid": 2, "test": 2}),
        ("s", {"train": 1, "valid": 0, "test": 0}),
        ("u", {"train": 0, "valid": 0, "test": 1}),
    ]


def test_the_json_document_contains_names(read: Read) -> None:
    document = check(read(b"a\tr\tb\nb\ts\ta\nc\tq\td\nd\tq\tc\n")).to_json()
    assert document["inverse"] == [{"first": "r", "second": "s", "triples": 1, "share": 1.0}]
    assert document["symmetric"] == [{"first": "q", "second": "q", "triples": 2, "share": 1.0}]
    assert document["duplicate_relations"] == []
    assert document["category_by_relation"] == {"r": "1-1", "s": "1-1", "q": "1-1"}
    assert json.loads(json.dumps(document)) == document


def test_categories_depend_on_the_averages_of_train(read: Read) -> None:
    # 1.5 tails per head and 1.0 heads per tail; "n" means at least 1.5
    one_to_many = b"a\tx\tb\na\tx\tc\nd\tx\te\n"
    many_to_one = b"b\ty\ta\nc\ty\ta\ne\ty\td\n"
    both = b"a\tz\tb\na\tz\tc\nd\tz\tb\nd\tz\tc\n"
    nearly = b"a\tw\tb\na\tw\tc\nd\tw\te\nf\tw\tg\n"
    graph = read(
        one_to_many + many_to_one + both + nearly, b"a\tx\te\nd\tx\tb\n", b"a\tv\tb\na\tv\tc\n"
    )
    found = dict(zip(graph.vocabulary.relations, graph.categories, strict=True))
    assert found == {"x": "1-n", "y": "n-1", "z": "n-n", "w": "1-1", "v": "1-n"}


def test_categories_are_the_same_when_triple_keys_would_overflow() -> None:
    rng = np.random.default_rng(0)
    train = rng.integers(0, (9, 4, 3), (60, 3))
    train[train[:, 1] == 3, 0] = 0  # one head, several tails

    def categories(n_entities: int) -> tuple[str, ...]:
        names = Vocabulary(range(n_entities), ("a", "b", "c", "d"))  # type: ignore[arg-type]
        return Graph("toy", names, train, train[:0], train[:0]).categories

    assert categories(1 << 32) == categories(9)
    assert len(set(categories(9))) > 1


def random_graph(seed: int) -> Graph:
    """Few entities and many relations, so that relations share many pairs; with self-loops."""
    rng = np.random.default_rng(seed)
    triples = np.stack([rng.integers(0, top, 160) for top in (6, 9, 6)], axis=1)
    # Relation 7 is relation 8 backwards.
    extra = triples[triples[:, 1] == 8][:, [2, 1, 0]].copy()
    extra[:, 1] = 7
    triples = np.concatenate([triples[triples[:, 1] != 7], extra])
    names = tuple(map(str, range(6))), tuple(map(str, range(9)))
    return Graph("random", Vocabulary(*names), triples[:120], triples[120:140], triples[140:])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("at_once", [1, 50, 1 << 22])
def test_relation_overlaps_equal_those_of_a_plain_loop(
    monkeypatch: pytest.MonkeyPatch, seed: int, at_once: int
) -> None:
    monkeypatch.setattr(check_module, "_MOST_MATCHES", at_once)
    graph = random_graph(seed)
    pairs = defaultdict(set)
    for split in ("train", "valid", "test"):
        for h, r, t in graph.split(split).tolist():
            if h != t:
                pairs[r].add((h, t))
    inverse, symmetric, duplicate = set(), set(), set()
    for one in sorted(pairs):
        for two in sorted(pairs):
            larger = max(len(pairs[one]), len(pairs[two]))
            mirrored = len(pairs[one] & {(t, h) for h, t in pairs[two]})
            same = len(pairs[one] & pairs[two])
            if one <= two and mirrored / larger >= 0.5:
                (symmetric if one == two else inverse).add((one, two, mirrored, mirrored / larger))
            if one < two and same / larger >= 0.5:
                duplicate.add((one, two, same, same / larger))
    found = check(graph)
    for overlaps, plain in (
        (found.inverse, inverse),
        (found.symmetric, symmetric),
        (found.duplicate_relations, duplicate),
    ):
        assert {
            (int(overlap.first), int(overlap.second), overlap.triples, overlap.share)
            for overlap in overlaps
        } == plain
        assert [overlap.triples for overlap in overlaps] == sorted(
            (row[2] for row in plain), reverse=True
        )
    assert ("7", "8") in {(overlap.first, overlap.second) for overlap in found.inverse}
    leaked = {
        (h, r, t)
        for h, r, t in graph.test.tolist()
        if h != t
        for other_h, other, other_t in graph.train.tolist()
        for one, two, *_ in ((r, other), (other, r))
        if ((other_h, other_t) == (t, h) and any(e[:2] == (one, two) for e in inverse | symmetric))
        or ((other_h, other_t) == (h, t) and any(e[:2] == (one, two) for e in duplicate))
    }
    assert found.leaked["test"] == len(leaked)


def test_a_graph_with_empty_splits_is_checked(read: Read) -> None:
    found = check(read(b"a\tr\ta\n"))
    assert found.leaked == {"valid": 0, "test": 0}
    assert found.symmetric == ()
    assert found.triples == {"train": 1, "valid": 0, "test": 0}


def test_triple_keys_are_unique_for_any_number_of_names() -> None:
    rng = random.Random(0)
    few = [[rng.choice([0, 1, 3_999_999]), rng.randrange(3), rng.choice([0, 2])] for _ in range(60)]
    parts = [np.array(few[:40]), np.array(few[40:])]
    for n_relations in (3, 1 << 21):
        keys = np.concatenate(triple_keys(parts, 4_000_000, n_relations)).tolist()
        assert len(set(keys)) == len({tuple(triple) for triple in few})
        assert [keys.index(key) for key in keys] == [few.index(triple) for triple in few]


def test_hashes_change_with_any_id_or_name(read: Read) -> None:
    first = graph_hashes(read(b"a\tr\tb\nb\tr\ta\n"))
    assert graph_hashes(read(b"a\tr\tb\nb\tr\ta\n")) == first
    other = graph_hashes(read(b"b\tr\ta\na\tr\tb\n"))
    assert [key for key in first if first[key] != other[key]] == ["entities"]
    other = graph_hashes(read(b"a\tr\tb\nb\tr\tb\n"))
    assert [key for key in first if first[key] != other[key]] == ["train"]


@pytest.mark.usefixtures("shared_data")
def test_the_published_datasets_show_their_known_leaks() -> None:
    wn18, wn18rr = (check(read_graph(name)) for name in ("wn18", "wn18rr"))
    # Dettmers et al. (2018): 94 % of WN18's test by an inverse rule; none inverse in WN18RR.
    assert round(wn18.leaked["test"] / wn18.triples["test"], 2) == 0.94
    assert len(wn18.inverse) == 7
    assert wn18rr.inverse == ()
    assert sum(wn18.self_loops.values()) == 9
    assert wn18rr.unseen_entities == 384
    assert wn18rr.unseen_triples == {"valid": 210, "test": 210}
