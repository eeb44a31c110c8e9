"""`read_graph` reads folders, archives and files, and notes what it changed."""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from allneg.errors import DataError, ResourceError, UsageError
from allneg.graph import SPLITS, Graph, read_graph
from allneg.graph.archives import ARCHIVES, COMPRESSIONS
from allneg.graph.blocks import Block, Found
from allneg.graph.datasets import DATASETS
from allneg.graph.files import FORMATS
from allneg.recipe import Data
from allneg.training import planned

Read = Callable[..., Graph]

CONTENT = {"train": b"a\tr\tb\nb\tr\tc\n", "valid": b"a\tr\tc\n", "test": b"c\tr\ta\n"}


def is_the_toy(graph: Graph) -> bool:
    ids = graph.train.tolist(), graph.valid.tolist(), graph.test.tolist()
    return ids == ([[0, 0, 1], [1, 0, 2]], [[0, 0, 2]], [[2, 0, 0]])


def pack_tar(path: Path, inside: str = "") -> Path:
    with tarfile.open(path, "w:xz" if path.name.endswith("xz") else "w:gz") as tar:
        # Not in order: train must still be read first.
        for split in ("test", "valid", "train"):
            member = tarfile.TarInfo(f"{inside}{split}.txt")
            member.size = len(CONTENT[split])
            tar.addfile(member, io.BytesIO(CONTENT[split]))
    return path


@pytest.mark.parametrize(
    "ending, pack",
    [("txt", bytes), ("tsv", bytes), ("txt.gz", gzip.compress), ("tsv.xz", lzma.compress)],
)
def test_a_folder_may_contain_compressed_text(
    tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    for split, content in CONTENT.items():
        (tmp_path / f"{split}.{ending}").write_bytes(pack(content))
    graph = read_graph(str(tmp_path))
    assert is_the_toy(graph)
    assert graph.name == tmp_path.name
    assert graph.notes == ()


@pytest.mark.parametrize("name", ["x.tar.xz", "x.tar.gz", "x.tgz", "x.zip"])
@pytest.mark.parametrize("inside", ["", "some/folder/"])
def test_an_archive_is_read_in_place(tmp_path: Path, name: str, inside: str) -> None:
    if name == "x.zip":
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("__MACOSX/._train.txt", b"\0\0")
            for split, content in CONTENT.items():
                archive.writestr(f"{inside}{split}.tsv", content)
    else:
        pack_tar(tmp_path / name, inside)
    assert is_the_toy(read_graph(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("cut", [0, 20, 60, -90])
@pytest.mark.parametrize("name", ["x.tar.xz", "x.tar.gz"])
def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path, name: str, cut: int) -> None:
    path = pack_tar(tmp_path / name)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"x\.tar"):
        read_graph(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_compressed_file_that_is_cut_off_is_refused(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    ending = "gz" if pack is gzip.compress else "xz"
    packed = pack(b"".join(b"%d\tr\t%d\n" % (i, i * i) for i in range(5000)))
    (tmp_path / f"train.txt.{ending}").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match=rf"train\.txt\.{ending}: damaged or cut off"):
        read_graph(tmp_path)


@pytest.mark.parametrize("name", ["valid", "validation", "dev"])
def test_valid_has_several_usual_names(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.txt").write_bytes(CONTENT["train"])
    (tmp_path / f"{name}.txt").write_bytes(CONTENT["valid"])
    assert len(read_graph(tmp_path).valid) == len(CONTENT["valid"].splitlines())


def test_two_files_for_one_split_are_refused(tmp_path: Path) -> None:
    for ending in ("txt", "tsv"):
        (tmp_path / f"train.{ending}").write_bytes(CONTENT["train"])
    with pytest.raises(DataError, match=r"'train\.tsv' and 'train\.txt' are both train"):
        read_graph(tmp_path)


def test_a_folder_without_train_is_an_error_that_lists_its_files(tmp_path: Path) -> None:
    (tmp_path / "triples.doc").touch()
    with pytest.raises(DataError, match=r"no train file.*found 'triples\.doc'"):
        read_graph(tmp_path)


def test_a_format_is_added_by_a_reader_and_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_reversed(
        stream: IO[bytes], where: str, settings: Data, found: Found
    ) -> Iterator[Block]:
        tails, relations, heads = zip(*(line.decode().split() for line in stream), strict=True)
        found.notes.append(f"{where}: read")
        yield Block(list(heads), list(relations), list(tails))

    monkeypatch.setitem(FORMATS, ".rev", read_reversed)
    (tmp_path / "one.rev.gz").write_bytes(gzip.compress(b"b r a\nc r b\n"))
    graph = read_graph(tmp_path / "one.rev.gz", Data(valid_share=0, test_share=0))
    assert graph.train.tolist() == [[0, 0, 1], [1, 0, 2]]
    assert graph.notes[0].endswith("one.rev.gz: read")


def test_messages_and_docs_list_every_format(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    with pytest.raises(DataError, match="no train file") as caught:
        read_graph(tmp_path)
    for suffix in (*FORMATS, *COMPRESSIONS):
        assert suffix in str(caught.value)
        assert f"`{suffix}`" in page
    for suffix in ARCHIVES:
        assert f"`{suffix}`" in page


def test_an_unknown_name_suggests_close_ones() -> None:
    with pytest.raises(DataError, match=r"'fb15k237': no such file.*close names: 'fb15k-237'"):
        read_graph("fb15k237")


def test_a_folder_of_folders_is_an_error_that_lists_them(tmp_path: Path) -> None:
    (tmp_path / "fb15k").mkdir()
    with pytest.raises(
        DataError, match="no train file in it, only folders; found 'fb15k'; choose one"
    ):
        read_graph(tmp_path)


def test_a_recipe_given_as_data_is_an_error_that_names_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('# a, b, c\n[data]\nname = "wn18"\n')
    with pytest.raises(DataError, match=r"mine\.toml: TOML is not .*--recipe"):
        read_graph(path)


@pytest.mark.battery(10)
def test_duplicates_are_removed_and_counted(read: Read) -> None:
    train, test = b"a\tr\tb\nb\tr\ta\na\tr\tb\na\tr\tb\n", b"b\tr\tb\nb\tr\tb\n"
    graph = read(train, test=test)
    assert graph.train.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert graph.test.tolist() == [[1, 0, 1]]
    assert "toy: 2 duplicate triples in train are removed" in graph.notes
    assert "toy: 1 duplicate triple in test is removed" in graph.notes
    kept = read(train, test=test, keep_duplicates=True)
    assert len(kept.train) == 4
    assert "toy: 2 duplicate triples in train are kept" in kept.notes


def test_settings_of_a_split_have_no_effect_on_data_with_splits() -> None:
    splits = {"train": [("a", "r", "b"), ("b", "r", "a")], "test": [("a", "r", "a")]}
    noted = read_graph(splits, {"data.valid_share": 0.3, "data.split_seed": 4}).notes
    assert "dict: data.valid_share has no effect, since the splits are given" in noted
    assert "dict: data.split_seed has no effect, since the splits are given" in noted
    plain = read_graph(splits, {"data.valid_share": 0.0}).notes  # no split is asked for
    assert not any("no effect" in note for note in plain)


@pytest.mark.battery(11)
def test_triples_in_two_splits_are_counted(read: Read) -> None:
    graph = read(b"a\tr\tb\nb\tr\ta\nc\tr\ta\n", b"a\tr\tb\na\tr\tc\n", b"a\tr\tb\nc\tr\ta\n")
    assert [note for note in graph.notes if "both" in note] == [
        "toy: 1 triple is in both train and valid",
        "toy: 2 triples are in both train and test",
        "toy: 1 triple is in both valid and test",
    ]


UNSEEN = (b"a\tr\tb\n", b"b\tr\ta\nb\tr\tc\n", b"b\ts\ta\nd\ts\td\nb\tr\tb\n")


@pytest.mark.battery(12)
def test_unseen_names_are_kept_and_counted(read: Read) -> None:
    graph = read(*UNSEEN)
    assert (graph.n_entities, graph.n_relations) == (4, 2)
    assert (len(graph.valid), len(graph.test)) == (2, 3)
    assert graph.seen.tolist() == [True, True, False, False]
    assert graph.notes == (
        "toy: 2 entities and 1 relation are not in train; "
        "they occur in 1 valid and 2 test triples, which are kept",
    )


@pytest.mark.battery(12)
def test_unseen_names_are_removed_by_setting(read: Read) -> None:
    graph = read(*UNSEEN, drop_unseen=True)
    assert graph.vocabulary.entities == ("a", "b")
    assert graph.vocabulary.relations == ("r",)
    assert graph.valid.tolist() == [[1, 0, 0]]
    assert graph.test.tolist() == [[1, 0, 1]]
    assert graph.notes[0].endswith("which are removed, as are the names (data.drop_unseen)")


def ring(order: str, n_entities: int = 30) -> bytes:
    """Two relations around a ring, with columns in the given order."""
    rows = []
    for i in range(n_entities):
        for relation, step in ((0, 1), (1, 2)):
            fields = {"h": i, "r": relation, "t": (i + step) % n_entities}
            rows.append("\t".join(str(fields[letter]) for letter in order) + "\n")
    return "".join(rows).encode()


@pytest.mark.battery(14)
@pytest.mark.parametrize("order, other", [("htr", "htr"), ("rht", "rht"), ("rth", "rht")])
def test_columns_in_another_order_are_noticed(read: Read, order: str, other: str) -> None:
    # Names are numbers as in OpenKE's files, where relations and entities share them.
    with pytest.raises(DataError, match=rf"30 relations but only 2 .*\n.*data\.columns={other}"):
        read(ring(order))
    assert read(ring(order), columns=order).n_relations == 2


@pytest.mark.battery(14)
def test_a_wrong_setting_of_the_columns_is_noticed(read: Read) -> None:
    with pytest.raises(DataError, match=r"data\.columns=hrt"):
        read(ring("hrt"), columns="htr")
    assert read(ring("hrt")).n_relations == 2


@pytest.mark.battery(14)
def test_many_relations_with_few_tails_are_only_noted(read: Read) -> None:
    text = "".join(
        f"gene{i}\tassay{j}\t{'yes' if i % j else 'no'}\n" for i in range(9) for j in range(1, 7)
    )
    notes = read(text.encode()).notes
    assert any("6 relations but only 2 tails; if" in note for note in notes)


@pytest.mark.battery(14)
def test_a_count_in_the_first_line_is_noticed(read: Read) -> None:
    with pytest.raises(
        DataError, match=r"train\.txt:1: .*found 1 field: '60'; if it is a count, .*columns"
    ):
        read(b"60\n" + ring("htr"))


def test_the_packaged_datasets_are_read_by_name() -> None:
    for name in ("countries", "countries-hard"):
        graph = read_graph(name)
        assert graph.name == name
        assert all(len(graph.split(split)) > 100 for split in SPLITS)
        assert graph.seen.all()


@pytest.mark.parametrize("name", ["fb15k", "wn18", "fb15k-237", "wn18rr"])
@pytest.mark.usefixtures("shared_data")
def test_the_published_datasets_have_their_published_sizes(name: str) -> None:
    graph, known = read_graph(name), DATASETS[name]
    assert (graph.n_entities, graph.n_relations) == (known.n_entities, known.n_relations)
    for split in SPLITS:
        assert len(graph.split(split)) == known.files[split].lines


def test_ids_equal_those_of_a_plain_loop_on_a_published_dataset(shared_data: Path) -> None:
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    graph = read_graph("wn18rr")
    with tarfile.open(shared_data / "wn18rr.tar.xz") as tar:
        for split in SPLITS:
            member = tar.extractfile(f"{split}.txt")
            assert member is not None
            rows = [line.split("\t") for line in member.read().decode().splitlines()]
            ids = [
                [
                    entities.setdefault(head, len(entities)),
                    relations.setdefault(relation, len(relations)),
                    entities.setdefault(tail, len(entities)),
                ]
                for head, relation, tail in rows
            ]
            assert graph.split(split).tolist() == ids


def test_reading_does_not_import_torch() -> None:
    code = "import sys, allneg.graph.check; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_one_file_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "facts.tsv.gz"
    path.write_bytes(gzip.compress(b"".join(CONTENT.values())))
    graph = read_graph(path, Data(valid_share=0, test_share=0))
    assert len(graph.train) == 4
    assert graph.name == "facts.tsv.gz"


@pytest.mark.battery(76)
@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")])
def test_memory_that_runs_out_while_text_is_read_is_a_resource_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*arguments: object) -> Iterator[Block]:
        raise error
        yield

    (tmp_path / "train.txt").write_text("a\tr\tb\n")
    monkeypatch.setitem(FORMATS, ".txt", full)
    with pytest.raises(ResourceError, match=r"out of memory .* `--set data\.store=disk`") as caught:
        read_graph(tmp_path)
    assert caught.value.exit_code == 6


@pytest.mark.battery(77)
@pytest.mark.parametrize("data", [None, b"toy", 7, object()])
def test_what_has_no_triples_is_no_data(data: Any) -> None:
    """The text of other objects was used as a path."""
    with pytest.raises(UsageError, match=rf"or a data frame, not {type(data).__name__}"):
        read_graph(data)
    with pytest.raises(UsageError, match="the data must be"):
        planned(data)


@pytest.mark.battery(77)
def test_a_text_too_long_for_a_path_is_no_known_data() -> None:
    with pytest.raises(DataError, match="no such file or folder") as caught:
        read_graph("a\tr\tb\n" * 1000)
    assert len(str(caught.value)) < 500
