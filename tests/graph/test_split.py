"""One file becomes three splits, and train contains every name."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from allneg.graph import SPLITS, Graph, read_graph
from allneg.recipe import Data


def write(path: Path, rows: list[tuple[str, str, str]]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def some_rows(n_rows: int, n_entities: int) -> list[tuple[str, str, str]]:
    rng = random.Random(1)
    return [
        (
            f"e{rng.randrange(n_entities)}",
            f"r{rng.randrange(4)}",
            f"e{rng.randrange(n_entities)}",
        )
        for _ in range(n_rows)
    ]


def named(graph: Graph, split: str) -> list[tuple[str, str, str]]:
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    return [(entities[h], relations[r], entities[t]) for h, r, t in graph.split(split).tolist()]


@pytest.mark.parametrize("seed", range(5))
def test_every_name_occurs_in_train(tmp_path: Path, seed: int) -> None:
    path = write(tmp_path / "facts.tsv", some_rows(400, 60))
    graph = read_graph(path, Data(split_seed=seed, valid_share=0.2, test_share=0.1))
    assert graph.seen.all()
    assert len(set(graph.train[:, 1].tolist())) == graph.n_relations
    unique = len(set(some_rows(400, 60)))
    assert len(graph.valid) == round(0.2 * unique)
    assert len(graph.test) == round(0.1 * unique)


def test_no_triple_is_lost_or_in_two_splits(tmp_path: Path) -> None:
    rows = some_rows(400, 60)
    graph = read_graph(write(tmp_path / "facts.tsv", rows))
    together = [row for split in SPLITS for row in named(graph, split)]
    assert sorted(together) == sorted(set(rows))


def test_copies_of_a_triple_stay_together(tmp_path: Path) -> None:
    rows = some_rows(400, 60) * 2
    graph = read_graph(write(tmp_path / "facts.tsv", rows), Data(keep_duplicates=True))
    splits = [set(named(graph, split)) for split in SPLITS]
    assert sum(len(graph.split(split)) for split in SPLITS) == 800
    assert sum(map(len, splits)) == len(set(rows)) == len(set.union(*splits))


def test_splits_keep_the_file_order_and_ids_follow_first_appearance(tmp_path: Path) -> None:
    rows = list(dict.fromkeys(some_rows(400, 60)))
    graph = read_graph(write(tmp_path / "facts.tsv", rows))
    for split in SPLITS:
        indices = [rows.index(row) for row in named(graph, split)]
        assert indices == sorted(indices)
    order = list(dict.fromkeys(graph.train[:, [0, 2]].reshape(-1).tolist()))
    assert order == list(range(graph.n_entities))
    assert list(dict.fromkeys(graph.train[:, 1].tolist())) == list(range(graph.n_relations))


def test_the_seed_decides(tmp_path: Path) -> None:
    path = write(tmp_path / "facts.tsv", some_rows(400, 60))
    tests = [named(read_graph(path, Data(split_seed=seed)), "test") for seed in (3, 3, 4)]
    assert tests[0] == tests[1] != tests[2]


def test_what_cannot_be_held_out_is_noted(tmp_path: Path) -> None:
    # Separate pairs and one extra triple: only that one or its neighbour can be held out.
    rows = [(f"e{i}", "r", f"e{i + 1}") for i in range(0, 40, 2)] + [("e0", "r", "e3")]
    graph = read_graph(write(tmp_path / "facts.tsv", rows), Data(valid_share=0.2, test_share=0.2))
    assert graph.seen.all()
    assert any("could be held out" in note for note in graph.notes)
    assert any("split by seed 0" in note for note in graph.notes)
