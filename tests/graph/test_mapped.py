"""A graph on disk equals the one in memory; the cache holds it completely or not at all."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allneg.errors import DataError, RecipeError, ResourceError
from allneg.graph import (
    SPLITS,
    Graph,
    clean,
    lines,
    mapped,
    number,
    read_graph,
)
from allneg.recipe import Data

TRAIN = b"a\tr\tb\nb\tr\tc\na\tr\tb\nc\ts\ta\nd\tr\ta\n"


SMALL = {
    (number, "_CHUNK"): 2,
    (lines, "_BLOCK"): 16,
    (clean, "_GROUP"): 2,
    (clean, "_NAMES"): 2,
    (mapped, "ROWS"): 2,
}
USUAL = {(module, name): getattr(module, name) for module, name in SMALL}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Chunks of two names and steps of two rows, so every loop runs several times."""
    for (module, name), size in SMALL.items():
        monkeypatch.setattr(module, name, size)
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "home"))


def folder_of(path: Path, ending: str = "txt", **splits: bytes) -> Path:
    path.mkdir(exist_ok=True)
    for split, content in splits.items():
        (path / f"{split}.{ending}").write_bytes(content)
    return path


def graphs_kept(home: Path) -> list[Path]:
    return [path for path in (home / "graphs").iterdir() if path.is_dir()]


def both(source: Path, how: Data | None = None) -> tuple[Graph, Graph]:
    """The graph in memory and the graph on disk."""
    how = how or Data()
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), size in USUAL.items():
            patch.setattr(module, name, size)
        in_memory = read_graph(source, replace(how, store="memory"))
    return in_memory, read_graph(source, replace(how, store="disk"))


def assert_equal(one: Graph, other: Graph) -> None:
    """Equal except for the note on where the graph on disk is."""
    assert one.name == other.name
    assert tuple(one.vocabulary.entities) == tuple(other.vocabulary.entities)
    assert one.vocabulary.relations == other.vocabulary.relations
    for split in SPLITS:
        assert one.split(split).tolist() == other.split(split).tolist()
        assert other.split(split).dtype == np.int64
    assert one.notes == other.notes[1:]


some_names = st.sampled_from(["a", "b", "c", "ä", "a\u0308", " b", "x\u2028y", "long name", "7"])
triples = st.lists(st.tuples(some_names, st.sampled_from("rst"), some_names), max_size=12)


def as_text(found: list[tuple[str, str, str]]) -> bytes:
    return "".join("\t".join(triple) + "\n" for triple in found).encode()


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.tuples(*[triples] * 3), st.booleans(), st.booleans())
def test_any_three_splits_are_the_same_on_disk(
    tmp_path: Path, found: tuple[list[tuple[str, str, str]], ...], drop: bool, keep: bool
) -> None:
    train, valid, test = found
    train = [("first", "r", "second"), *train]
    source = folder_of(
        tmp_path / "toy", train=as_text(train), valid=as_text(valid), test=as_text(test)
    )
    assert_equal(*both(source, Data(header=False, drop_unseen=drop, keep_duplicates=keep)))


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(triples, st.integers(0, 3))
def test_one_file_is_split_the_same_way(
    tmp_path: Path, found: list[tuple[str, str, str]], seed: int
) -> None:
    path = tmp_path / "one.tsv"
    path.write_bytes(as_text([("first", "r", "second"), *found]))
    assert_equal(*both(path, Data(header=False, split_seed=seed, valid_share=0.3, test_share=0.3)))


def test_a_graph_on_disk_is_the_same_without_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(number, "find_spec", lambda _: None)
    monkeypatch.setattr(number, "_ArrowNames", None)
    valid = "ä\tr\tnew\n".encode()
    assert_equal(*both(folder_of(tmp_path / "toy", train=TRAIN, valid=valid)))


def test_compressed_files_and_archives_are_the_same_on_disk(tmp_path: Path) -> None:
    for ending, pack in (("txt.gz", gzip.compress), ("tsv.xz", lzma.compress)):
        assert_equal(*both(folder_of(tmp_path / ending, ending, train=pack(TRAIN))))
    folder = folder_of(tmp_path / "toy", train=TRAIN, valid=b"a\tr\tnew\n")
    assert_equal(*both(Path(shutil.make_archive(str(folder), "gztar", folder))))


def test_notes_are_the_same_on_disk(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbfhead,relation,tail\r\na,r,b\n\n"c,d",r,a\nbad\na,r,b\na ,r,b\n'
    source = folder_of(tmp_path / "toy", "csv", train=content)
    in_memory, on_disk = both(source, Data(skip_bad_lines=1))
    assert_equal(in_memory, on_disk)
    assert len(in_memory.notes) == 8


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a\tr\tb\n" * 9 + b"a\tr\n", r"train\.txt:10: expected head, relation, tail"),
        (b"a\tr\tb\n" * 9 + b"\xff\tr\tb\n", r"train\.txt:10: not utf-8 at byte 54"),
        (b"\n\n", "it has no triples"),
        (gzip.compress(TRAIN, mtime=0), "gz"),
    ],
)
def test_errors_are_the_same_on_disk_and_nothing_is_kept(
    tmp_path: Path, content: bytes, message: str
) -> None:
    source = folder_of(tmp_path / "toy", train=content)
    messages = []
    for store in ("memory", "disk"):
        with pytest.raises(DataError, match=message) as caught:
            read_graph(source, Data(store=store))  # type: ignore[arg-type]
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert graphs_kept(tmp_path / "home") == []


def test_a_second_read_uses_the_cache_and_not_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder_of(tmp_path / "toy", train=TRAIN)
    _, first = both(source)
    monkeypatch.setattr("allneg.graph.read.read_files", None)
    again = read_graph(source, Data(store="disk"))
    assert again.notes == first.notes
    assert isinstance(again.train, np.memmap)


@pytest.mark.parametrize("change", [{"columns": "trh"}, {"keep_duplicates": True}])
def test_other_settings_and_another_text_are_another_graph(
    tmp_path: Path, change: dict[str, object]
) -> None:
    source = folder_of(tmp_path / "toy", train=TRAIN)
    both(source)
    assert_equal(*both(source, Data(**change)))  # type: ignore[arg-type]
    (source / "train.txt").write_bytes(TRAIN + b"e\tr\tf\n")
    assert_equal(*both(source))
    assert len(graphs_kept(tmp_path / "home")) == 3


@pytest.mark.parametrize("file", ["train.ids", "entities.txt", "manifest.json"])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "of another version"])
def test_a_damaged_cache_is_reported_and_rebuilt(tmp_path: Path, file: str, damage: str) -> None:
    source = folder_of(tmp_path / "toy", train=TRAIN)
    both(source)
    (kept,) = graphs_kept(tmp_path / "home")
    content = (kept / file).read_bytes()
    if damage == "gone":
        (kept / file).unlink()
    elif damage == "of another version":
        manifest = json.loads((kept / "manifest.json").read_text())
        (kept / "manifest.json").write_text(json.dumps({**manifest, "format_version": 0}))
    else:
        (kept / file).write_bytes(content[:-1] + (b"\x7f" if damage == "changed" else b""))
    in_memory, on_disk = both(source)
    assert "damaged" in on_disk.notes[1]
    assert_equal(in_memory, replace(on_disk, notes=on_disk.notes[1:]))
    assert (kept / file).read_bytes() == content


def test_an_interrupted_reading_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder_of(tmp_path / "toy", train=TRAIN)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mapped, "write_triples", interrupt)
        with pytest.raises(KeyboardInterrupt):
            read_graph(source, Data(store="disk"))
    assert graphs_kept(tmp_path / "home") == []
    assert_equal(*both(source))


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "home" / "graphs" / ".tmp-work-killed"
    left.mkdir(parents=True)
    (left / "train.ids").write_bytes(b"half")
    both(folder_of(tmp_path / "toy", train=TRAIN))
    assert not left.exists()
    assert len(graphs_kept(tmp_path / "home")) == 1


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder_of(tmp_path / "toy", train=TRAIN)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match=r"No space left.*ALLNEG_HOME"):
        read_graph(source, Data(store="disk"))
    assert graphs_kept(tmp_path / "home") == []


def test_an_unknown_cache_folder_is_an_error_that_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ALLNEG_HOME")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(RecipeError, match=r"set ALLNEG_HOME.*data\.store=memory"):
        read_graph(folder_of(tmp_path / "toy", train=TRAIN), Data(store="disk"))


def test_a_large_text_is_stored_on_disk_and_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder_of(tmp_path / "toy", train=TRAIN)
    assert not isinstance(read_graph(source).train, np.memmap)
    monkeypatch.setattr("allneg.graph.read._LARGE", len(TRAIN))
    graph = read_graph(source)
    assert isinstance(graph.train, np.memmap)
    assert sum("data.store" in note for note in graph.notes) == 1
    assert "a large text" in graph.notes[0]
    assert not isinstance(read_graph(source, Data(store="memory")).train, np.memmap)
    on_request = read_graph(source, Data(store="disk"))
    assert on_request.notes[0].startswith("toy: its ids are stored in ")


def test_writing_into_mapped_triples_leaves_the_file_alone(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "toy", train=TRAIN)
    graph = read_graph(source, Data(store="disk"))
    graph.train[0] = 99
    assert_equal(*both(source))


def test_mapped_names_are_a_sequence(tmp_path: Path) -> None:
    path = tmp_path / "names"
    wanted = ["a", "ä b", "x\u2028y", "\ud800", "last"]
    mapped.append_names(path, wanted[:2])
    mapped.append_names(path, wanted[2:])
    found = mapped.MappedNames.open(path)
    assert len(found) == 5
    assert list(found) == wanted
    assert [found[index] for index in range(-5, 5)] == wanted * 2
    assert list(found[1:4]) == wanted[1:4]
    assert list(found[3:1]) == []
    assert found[::-2] == ("last", "x\u2028y", "a")
    assert "ä b" in found
    with pytest.raises(IndexError):
        found[5]


@pytest.mark.battery(18)
def test_the_cache_entry_of_another_graph_is_not_used(tmp_path: Path) -> None:
    mine = folder_of(tmp_path / "mine", train=TRAIN)
    other = folder_of(tmp_path / "other", train=b"x\tr\ty\n")
    first = read_graph(mine, Data(store="disk"))
    (entry,) = (tmp_path / "home" / "graphs").glob("[!.]*")
    read_graph(other, Data(store="disk"))
    (foreign,) = set((tmp_path / "home" / "graphs").glob("[!.]*")) - {entry}
    shutil.rmtree(entry)
    shutil.copytree(foreign, entry)
    again = read_graph(mine, Data(store="disk"))
    assert tuple(again.vocabulary.entities) == tuple(first.vocabulary.entities)
    assert any("is of another graph or version" in note for note in again.notes)


@pytest.mark.battery(18)
@pytest.mark.parametrize("what", ["a file", "a broken link", "a deep manifest"])
def test_anything_in_the_way_of_a_cache_entry_is_replaced(tmp_path: Path, what: str) -> None:
    folder = folder_of(tmp_path / "mine", train=TRAIN)
    first = read_graph(folder, Data(store="disk"))
    (entry,) = (tmp_path / "home" / "graphs").glob("[!.]*")
    if what == "a deep manifest":
        (entry / "manifest.json").write_text("[" * 100_000)
    else:
        shutil.rmtree(entry)
        if what == "a file":
            entry.write_text("?")
        else:
            entry.symlink_to(tmp_path / "nowhere")
    entry.with_name(f".tmp-{entry.name}").write_text("a file")
    again = read_graph(folder, Data(store="disk"))
    assert tuple(again.vocabulary.entities) == tuple(first.vocabulary.entities)
    assert entry.is_dir()


@pytest.mark.battery(18)
def test_a_text_that_changes_while_it_is_read_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write = folder_of(tmp_path / "mine", train=TRAIN), mapped._write

    def changed(*arguments: Any) -> None:
        folder_of(folder, train=b"x\tr\ty\n")
        write(*arguments)

    monkeypatch.setattr(mapped, "_write", changed)
    with pytest.raises(DataError, match="changed while it was read"):
        read_graph(folder, Data(store="disk"))
    assert not list((tmp_path / "home" / "graphs").glob("[!.]*"))
