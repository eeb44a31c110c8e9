"""A line is three exact names, or an error that gives the place and the reason."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from allneg.errors import DataError, RecipeError
from allneg.graph import Graph, lines, read_graph
from allneg.graph.lines import split_line
from allneg.recipe import Data

Read = Callable[..., Graph]


def test_ids_follow_first_appearance_heads_and_tails_alternating(read: Read) -> None:
    graph = read(b"b\tr\ta\nc\ts\tb\n", b"a\tr\td\n", b"e\tq\ta\n")
    assert graph.vocabulary.entities == ("b", "a", "c", "d", "e")
    assert graph.vocabulary.relations == ("r", "s", "q")
    assert graph.train.tolist() == [[0, 0, 1], [2, 1, 0]]
    assert graph.train.dtype == np.int64
    assert graph.test.tolist() == [[4, 2, 1]]


@pytest.mark.battery(1)
@pytest.mark.parametrize("empty", [b"", b"\n\n", b"   \n\n", b"\xef\xbb\xbf", b"\r\n\r\n"])
def test_a_train_file_without_triples_is_an_error_that_names_the_file(
    read: Read, empty: bytes
) -> None:
    with pytest.raises(DataError, match=r"toy/train\.txt: it has no triples"):
        read(empty)
    assert DataError.exit_code == 3


@pytest.mark.battery(1)
def test_an_empty_or_missing_valid_or_test_is_noted(read: Read) -> None:
    graph = read(b"a\tr\tb\n", valid=b"")
    assert graph.valid.shape == graph.test.shape == (0, 3)
    assert "toy: valid is empty" in graph.notes
    assert "toy: test is empty" in graph.notes


@pytest.mark.battery(2)
@pytest.mark.parametrize("ending", ["txt", "csv"])
@pytest.mark.parametrize("fields, found", [(1, "1 field"), (2, "2 fields"), (4, "4 fields")])
def test_a_line_with_other_than_three_fields_is_an_error(
    read: Read, fields: int, found: str, ending: str
) -> None:
    separator = b"\t" if ending == "txt" else b","
    bad = separator.join([b"\x1b[31mx"] * fields)
    good = separator.join([b"a", b"r", b"b"]) + b"\n"
    with pytest.raises(
        DataError, match=rf"train\.{ending}:3: expected head.*found {found}: "
    ) as caught:
        read(good * 2 + bad + b"\n" + good, ending=ending)
    assert "\x1b" not in str(caught.value)
    assert "x1b[31m" in str(caught.value)


@pytest.mark.battery(2)
def test_a_limited_number_of_bad_lines_is_skipped_and_counted(read: Read) -> None:
    text = b"a\tr\tb\nx\ny\tz\nb\tr\ta\nx\ty\n"
    graph = read(text, skip_bad_lines=3)
    assert graph.facts("train") == [("a", "r", "b"), ("b", "r", "a")]
    reasons = "found 2 fields: 2, found 1 field: 1"
    note = f"skipped bad lines (data.skip_bad_lines): 3 ({reasons})"
    assert any(note in text for text in graph.notes)
    with pytest.raises(DataError, match=r"train\.txt:3: .*bad lines skipped before: 1"):
        read(text, skip_bad_lines=1)


@pytest.mark.battery(73)
@pytest.mark.parametrize("bad", [b"K\xf6ln\tr\tb", b"a\0\tr\tb"])
def test_lines_with_bad_bytes_are_skipped_and_counted_like_other_bad_lines(
    read: Read, bad: bytes
) -> None:
    text = b"a\tr\tb\r\nx\n" + bad + b"\r\n\nb\tr\ta\r\n"
    graph = read(text, skip_bad_lines=2)
    assert graph.facts("train") == [("a", "r", "b"), ("b", "r", "a")]
    assert any("skipped bad lines (data.skip_bad_lines): 2" in note for note in graph.notes)
    assert any("skipped blank lines: 1" in note for note in graph.notes)
    with pytest.raises(DataError, match=r"train\.txt:3: .*bad lines skipped before: 1"):
        read(text, skip_bad_lines=1)


@pytest.mark.battery(3)
@pytest.mark.parametrize(
    "line, which", [(b"\tr\tb", "first"), (b"a\t\tb", "second"), (b"a\tr\t", "third")]
)
def test_an_empty_field_is_a_bad_line(read: Read, line: bytes, which: str) -> None:
    with pytest.raises(DataError, match=rf"train\.txt:2: .*found an empty {which} field"):
        read(b"a\tr\tb\n" + line + b"\n")
    assert len(read(b"a\tr\tb\n" + line + b"\n", skip_bad_lines=1).train) == 1


@pytest.mark.battery(4)
def test_a_byte_order_mark_is_removed_once_and_noted(read: Read) -> None:
    graph = read("\ufeffa\tr\tb\n\ufeffa\tr\tc\n".encode())
    assert graph.vocabulary.entities == ("a", "b", "\ufeffa", "c")
    assert any("byte order mark" in note for note in graph.notes)


@pytest.mark.battery(5)
def test_crlf_ends_a_line_and_a_lone_cr_stays_in_its_name(read: Read) -> None:
    graph = read(b"a\tr\tb\r\nb\tr\tc\na\rz\tr\tb\r\n")
    assert graph.facts("train") == [("a", "r", "b"), ("b", "r", "c"), ("a\rz", "r", "b")]
    assert any(note.endswith("kept carriage returns inside names: 1") for note in graph.notes)


@pytest.mark.battery(5)
def test_lines_that_end_in_cr_alone_are_an_error_with_advice(read: Read) -> None:
    with pytest.raises(DataError, match="end lines with line feeds"):
        read(b"a\tr\tb\rb\tr\tc\r")


@pytest.mark.battery(6)
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"a\tr\tb\r\n" * 7])
def test_bytes_that_are_not_utf8_are_an_error_with_line_and_offset(
    read: Read, start: bytes
) -> None:
    content = start + b"a\tr\tb\nK\xf6ln\tr\tb\n"
    line, offset = content[: content.index(b"\xf6")].count(b"\n") + 1, content.index(b"\xf6")
    with pytest.raises(DataError, match=rf"train\.txt:{line}: not utf-8 at byte {offset} \(0xf6\)"):
        read(content)


@pytest.mark.battery(6)
def test_another_encoding_can_be_set(read: Read) -> None:
    assert read(b"K\xf6ln\tr\tb\n", encoding="latin-1").vocabulary.entities == ("Köln", "b")


@pytest.mark.battery(6)
@pytest.mark.parametrize(
    "wrong", ["no-such-code", "utf-16", "unicode_escape", "raw_unicode_escape", "utf\0"]
)
def test_an_encoding_that_does_not_keep_ascii_is_refused(read: Read, wrong: str) -> None:
    with pytest.raises(RecipeError, match=r"data\.encoding"):
        read(b"a\tr\tb\n", encoding=wrong)


@pytest.mark.battery(7)
def test_a_nul_is_refused(read: Read) -> None:
    with pytest.raises(DataError, match=r"train\.txt:2: .*a NUL character .*'x\\x00y\\tr\\tb'"):
        read(b"a\tr\tb\nx\x00y\tr\tb\n")


@pytest.mark.battery(7)
def test_other_control_characters_are_kept(read: Read) -> None:
    name = "\x1b[2J\x07\x7f\u2028\x85\x1c\x0b"
    assert read(f"{name}\tr\tb\n".encode()).vocabulary.entities == (name, "b")


@pytest.mark.battery(8)
def test_an_endless_line_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    with path.open("wb") as file:
        file.write(b"a\tr\tb\n")
        file.truncate(200 << 20)
        file.seek(0, 2)
        file.write(b"\n")
    tracemalloc.start()
    with pytest.raises(DataError, match=r"train\.txt:2: a line of more than 1,048,576 bytes"):
        read_graph(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.battery(8)
def test_a_long_line_of_multi_byte_characters_is_refused(read: Read) -> None:
    # The limit is in bytes; a limit in characters would accept a truncated line.
    with pytest.raises(DataError, match="a line of more than"):
        read(b"a\tr\t" + "€".encode() * 400_000)


@pytest.mark.battery(9)
def test_look_alike_names_are_kept_apart_and_noted(read: Read) -> None:
    graph = read(" x\tr\tx\né\tr\te\u0301\n".encode())
    assert graph.n_entities == 4
    assert any("only in spaces" in note and "' x' and 'x'" in note for note in graph.notes)
    assert any("Unicode form" in note and r"'e\u0301' and '\xe9'" in note for note in graph.notes)


@pytest.mark.battery(9)
def test_relations_that_differ_only_in_case_are_noted_and_entities_are_not(read: Read) -> None:
    graph = read(b"a\tLikes\tA\nA\tlikes\tb\nb\tSees\ta\n")
    assert [note for note in graph.notes if "lower case" in note] == [
        "toy: relations that differ only in upper and lower case, kept apart: 1, for example "
        "'Likes' and 'likes'"
    ]


@pytest.mark.battery(13)
@pytest.mark.parametrize(
    "start, kind",
    [
        ("a\tr\tb\n".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"\x89PNG\r\n", "a picture"),
        (b"x" * 257 + b"ustar\x00", "a tar archive"),
    ],
)
def test_what_is_not_text_is_recognised(read: Read, start: bytes, kind: str) -> None:
    with pytest.raises(DataError, match=rf"train\.txt: this is {kind}"):
        read(start)


@pytest.mark.battery(13)
def test_utf16_without_a_byte_order_mark_is_recognised(read: Read) -> None:
    with pytest.raises(DataError, match="UTF-16"):
        read("a\tr\tb\n".encode("utf-16-le"))


def test_csv_fields_may_be_quoted(read: Read) -> None:
    graph = read(b'"Washington, D.C.",capital of,"the ""States"""\nx,y,z\n', ending="csv")
    assert graph.facts("train") == [
        ("Washington, D.C.", "capital of", 'the "States"'),
        ("x", "y", "z"),
    ]


@pytest.mark.parametrize(
    "line, message",
    [
        (b'"x,y,z', r"train\.csv:2: .*quotes that do not match"),
        (b'"x\ty",r,z', r"train\.csv:2: .*a tab inside a name"),
        (b"x\ty,r,z", r"train\.csv:2: .*a tab inside a name"),
    ],
)
@pytest.mark.battery(71)
def test_unclosed_quotes_and_tabs_in_csv_are_bad_lines(
    read: Read, line: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(b"a,b,c\n" + line + b"\n", ending="csv")
    assert len(read(b"a,b,c\n" + line + b"\n", ending="csv", skip_bad_lines=1).train) == 1


@pytest.mark.battery(72)
@pytest.mark.parametrize("ending", ["txt", "csv"])
@pytest.mark.parametrize(
    "line, suffix",
    [
        ('{"head": "a", "tail": "b"}', "jsonl"),
        ("<http://x/a> <http://x/r> <http://x/b> .", "nt"),
        ('_:b0 <http://x/r> "a, b" .', "nt"),
        ("@prefix x: <http://x/> .", "ttl"),
        ('<?xml version="1.0"?>', "rdf"),
    ],
)
def test_other_syntaxes_are_named(tmp_path: Path, ending: str, line: str, suffix: str) -> None:
    (tmp_path / f"all.{ending}").write_text(line + "\n")
    with pytest.raises(DataError, match=rf"rename the file to end in \.{suffix}"):
        read_graph(tmp_path / f"all.{ending}")


@pytest.mark.battery(72)
def test_n_triples_with_tabs_are_refused(read: Read) -> None:
    """Their lines have three fields, but the dot would become part of the tail."""
    with pytest.raises(DataError, match=r"train\.txt: this is N-Triples"):
        read(b"# names\n<a>\t<r>\t<b> .\n<b>\t<r>\t<a> .\n", skip_bad_lines=1)
    assert read(b"<a>\t<r>\t<b>\n").facts("train") == [("<a>", "<r>", "<b>")]


@pytest.mark.parametrize("names", [b"Head,Relation,Tail", b"from,type,to", b"source,rel,target"])
def test_a_line_of_column_names_is_skipped_and_noted(read: Read, names: bytes) -> None:
    graph = read(names + b"\na,r,b\n", ending="csv")
    assert graph.facts("train") == [("a", "r", "b")]
    assert any("names the columns" in note for note in graph.notes)


def test_column_names_in_another_order_are_followed(read: Read) -> None:
    text = b"head\ttail\trelation\na\tb\tr\n"
    assert (
        read(text).facts("train") == read(text, columns="htr").facts("train") == [("a", "r", "b")]
    )
    with pytest.raises(DataError, match=r"add `--set data\.columns=htr`"):
        read(text, columns="trh")


@pytest.mark.parametrize(
    "content, ending, advice",
    [
        (b"a r b\n", "txt", "by spaces: use tabs"),
        (b"a;r;b\n", "csv", "by semicolons: use commas"),
        (b"a b;r;c\n", "tsv", "by semicolons: use tabs"),
        (b"# my data\n", "tsv", "comments are not supported: remove them"),
        (b"a,r,b\n", "txt", "rename the file to .csv"),
        (b"a\tr\tb\n", "csv", "rename the file to .tsv"),
    ],
)
def test_another_separator_is_recognised(
    read: Read, content: bytes, ending: str, advice: str
) -> None:
    with pytest.raises(DataError, match=advice):
        read(content, ending=ending)


def test_columns_must_be_three_letters(read: Read) -> None:
    with pytest.raises(RecipeError, match=r"data\.columns"):
        read(b"a\tr\tb\n", columns="hr")


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64, 1 << 22])
@pytest.mark.parametrize("ending", ["txt", "csv"])
def test_blocks_of_any_size_read_the_same_as_a_plain_loop(
    read: Read, monkeypatch: pytest.MonkeyPatch, block: int, ending: str
) -> None:
    rng = random.Random(0)
    separator, letters = ("\t", "aé€😀\r ") if ending == "txt" else (",", "aé€😀 ")
    rows = []
    for _ in range(300):
        fields = ["".join(rng.choices(letters, k=rng.randint(1, 3))) for _ in range(3)]
        if ending == "csv" and rng.random() < 0.2:
            fields[0] = f'"{fields[0]},""{fields[0]}"'
        # A CR at the end would become part of the line end.
        rows.append(separator.join(fields).rstrip("\r") + "x" + rng.choice(["\n", "\r\n", "\n\n"]))
    text = "".join(rows).rstrip("\n")
    plain = [
        tuple(split_line(line.removesuffix("\r"), separator)[0])
        for line in text.split("\n")
        if line
    ]
    monkeypatch.setattr(lines, "_BLOCK", block)
    graph = read(text.encode(), ending=ending, keep_duplicates=True)
    assert graph.facts("train") == plain


def test_memory_is_bounded_by_the_ids_and_a_few_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_BLOCK", 1 << 16)
    n_lines = 100_000
    with (tmp_path / "train.tsv").open("w") as file:
        file.writelines(f"entity/{i % 97}\trelation\tentity/{i % 89}\n" for i in range(n_lines))
    (tmp_path / "valid.tsv").write_text("entity/1\trelation\tentity/2\n")
    tracemalloc.start()
    graph = read_graph(tmp_path, Data(keep_duplicates=True))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(graph.train) == n_lines
    assert peak < 5 * graph.train.nbytes + (4 << 20)
