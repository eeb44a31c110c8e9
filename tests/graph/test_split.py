"""One file becomes three splits, and train contains every name."""

from __future__ import annotations

import random
from hashlib import blake2b
from pathlib import Path

import pytest

from allneg.errors import DataError, UsageError
from allneg.graph import SPLITS, read_graph
from allneg.graph.check import graph_hashes
from allneg.graph.split_file import split_file
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


@pytest.mark.parametrize("seed", range(5))
def test_every_name_occurs_in_train(tmp_path: Path, seed: int) -> None:
    path = write(tmp_path / "facts.tsv", some_rows(400, 60))
    graph = read_graph(path, Data(split_seed=seed, valid_share=0.2, test_share=0.1))
    assert graph.seen.all()
    assert len(set(graph.train[:, 1].tolist())) == graph.n_relations


def test_no_triple_is_lost_or_in_two_splits(tmp_path: Path) -> None:
    rows = some_rows(400, 60)
    graph = read_graph(write(tmp_path / "facts.tsv", rows))
    together = [row for split in SPLITS for row in graph.facts(split)]
    assert sorted(together) == sorted(set(rows))
    assert graph.facts() == together
    assert graph.facts("test", "train") == graph.facts("test") + graph.facts("train")


def test_copies_of_a_triple_stay_together(tmp_path: Path) -> None:
    rows = some_rows(400, 60) * 2
    graph = read_graph(write(tmp_path / "facts.tsv", rows), Data(keep_duplicates=True))
    splits = [set(graph.facts(split)) for split in SPLITS]
    assert sum(len(graph.split(split)) for split in SPLITS) == 800
    assert sum(map(len, splits)) == len(set(rows)) == len(set.union(*splits))


def test_splits_keep_the_file_order_and_ids_follow_first_appearance(tmp_path: Path) -> None:
    rows = list(dict.fromkeys(some_rows(400, 60)))
    graph = read_graph(write(tmp_path / "facts.tsv", rows))
    for split in SPLITS:
        indices = [rows.index(row) for row in graph.facts(split)]
        assert indices == sorted(indices)
    order = list(dict.fromkeys(graph.train[:, [0, 2]].reshape(-1).tolist()))
    assert order == list(range(graph.n_entities))
    assert list(dict.fromkeys(graph.train[:, 1].tolist())) == list(range(graph.n_relations))


def test_the_seed_decides(tmp_path: Path) -> None:
    path = write(tmp_path / "facts.tsv", some_rows(400, 60))
    tests = [read_graph(path, Data(split_seed=seed)).facts("test") for seed in (3, 3, 4)]
    assert tests[0] == tests[1] != tests[2]


@pytest.mark.parametrize("relations", [{}, {"r2": (0.0, 0.5)}])
def test_each_relation_has_its_shares(
    tmp_path: Path, relations: dict[str, tuple[float, float]]
) -> None:
    path = write(tmp_path / "facts.tsv", list(dict.fromkeys(some_rows(20_000, 300))))
    graph = split_file(path, tmp_path / "out", Data(valid_share=0.2), relations)
    for relation, name in enumerate(graph.vocabulary.relations):
        counts = [(graph.split(split)[:, 1] == relation).sum() for split in SPLITS]
        shares = [count / sum(counts) for count in counts[1:]]
        assert shares == pytest.approx(relations.get(name, (0.2, 0.1)), abs=0.03)


@pytest.mark.parametrize("keep", [False, True])
def test_appended_lines_move_no_earlier_triple(tmp_path: Path, keep: bool) -> None:
    # The new lines repeat old triples, name old entities, and name new ones.
    rows = some_rows(600, 100)
    new = [*rows[:20], *some_rows(100, 120), *((f"n{i}", "new", f"e{i}") for i in range(100))]
    before, after = (
        read_graph(write(tmp_path / "facts.tsv", lines), Data(keep_duplicates=keep))
        for lines in (rows, rows + new)
    )
    for split in SPLITS:
        assert set(before.facts(split)) <= set(after.facts(split))


def test_a_larger_share_only_adds(tmp_path: Path) -> None:
    path = write(tmp_path / "facts.tsv", some_rows(600, 100))
    small = read_graph(path, Data(valid_share=0.1, test_share=0.1))
    large = read_graph(path, Data(valid_share=0.3, test_share=0.2))
    for split in ("valid", "test"):
        assert set(small.facts(split)) < set(large.facts(split))


def test_the_first_triple_of_a_name_is_in_train_and_noted(tmp_path: Path) -> None:
    rows = [(f"e{i}", "r", f"e{i + 1}") for i in range(40)]  # each names an entity
    graph = read_graph(write(tmp_path / "facts.tsv", rows), Data(valid_share=0.2, test_share=0.2))
    assert len(graph.train) == 40
    assert any("split by a hash and seed 0" in note for note in graph.notes)
    assert any("the first of an entity or a relation" in note for note in graph.notes)


def naive_number(triple: tuple[str, str, str], seed: int) -> float:
    """The number that decides, in plain Python. It must be the same in every version."""
    head, relation, tail = (
        int.from_bytes(blake2b(name.encode(), digest_size=8, key=b"%d" % seed).digest(), "little")
        for name in triple
    )
    x = head * 0x9E3779B97F4A7C15 + relation * 0xC2B2AE3D27D4EB4F + tail * 0x165667B19E3779F9
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        x %= 2**64
        x = (x ^ (x >> shift)) * factor
    return x % 2**64 / 2**64


def test_the_hash_is_that_of_every_version(tmp_path: Path) -> None:
    rows = [(f"e{i % 17}", "gehört zu", f"é{i % 19}") for i in range(17 * 19)]
    graph = read_graph(write(tmp_path / "facts.tsv", rows), Data(split_seed=5, test_share=0.2))
    seen: set[str] = set()
    expected: dict[str, list[tuple[str, str, str]]] = {split: [] for split in SPLITS}
    for row in rows:
        u = naive_number(row, seed=5)
        split = "test" if u < 0.2 else "valid" if u >= 0.9 else "train"
        expected["train" if set(row) - seen else split].append(row)
        seen.update(row)
    assert {split: graph.facts(split) for split in SPLITS} == expected
    assert [len(rows) for rows in expected.values()] == [225, 33, 65]


def test_the_files_have_what_training_on_the_file_uses(tmp_path: Path) -> None:
    path = tmp_path / "facts.csv"
    rows = [('"a, b"' if head == "e1" else head, *rest) for head, *rest in some_rows(400, 60)]
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    split_file(path, tmp_path / "deep" / "out", Data(split_seed=2), {})
    whole, parts = read_graph(path, Data(split_seed=2)), read_graph(tmp_path / "deep" / "out")
    assert graph_hashes(whole) == graph_hashes(parts)


@pytest.mark.parametrize(
    "text", ["a\tr\tb\r\r\n", "h\tr\tt\nh\tr\tt\na\tr\tb\n", "\ufeff\ufeffa\tr\tb\n"]
)
def test_names_that_would_change_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "facts.tsv").write_bytes(text.encode())
    with pytest.raises(DataError, match="cannot hold all names exactly"):
        split_file(tmp_path / "facts.tsv", tmp_path / "out", Data(), {})
    assert list(tmp_path.iterdir()) == [tmp_path / "facts.tsv"]


def test_nothing_is_written_if_something_is_wrong(tmp_path: Path) -> None:
    path, out = write(tmp_path / "facts.tsv", some_rows(40, 9)), tmp_path / "out"
    for source, error, message in (
        (tmp_path, DataError, "not a file"),
        (write(tmp_path / "none.tsv", []), DataError, "no triples"),
        (path, DataError, "no relation is called 'r9'"),
    ):
        with pytest.raises(error, match=message):
            split_file(source, out, Data(), {"r9": (0.1, 0.1)})
        assert not list(tmp_path.glob("*out*"))
    out.mkdir()
    with pytest.raises(UsageError, match="already exists"):
        split_file(path, out, Data(), {})


def test_weights_are_refused_until_the_columns_leave_them_out(tmp_path: Path) -> None:
    path, out = tmp_path / "facts.csv", tmp_path / "out"
    path.write_text("head,relation,tail,weight\na,r,b,2\n")
    with pytest.raises(DataError, match=r"leave them out by `--set data\.columns=HEAD,RELATION,TA"):
        split_file(path, out, Data(), {})
    graph = split_file(path, out, Data(columns="head,relation,tail"), {})
    assert graph.weights is None
    assert (out / "train.txt").read_text() == "a\tr\tb\n"
