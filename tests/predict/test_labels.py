from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from allneg.errors import DataError
from allneg.predict.names import read_labels

TEXT = "\ufeff/m/1\tDenton\r\n/m/2\tEl  Paso\n/m/1\tsecond\n/m/3\t" + "x" * 300 + "\n"


@pytest.mark.parametrize(
    "name, pack", [("a.tsv", bytes), ("a.tsv.gz", gzip.compress), ("a.tsv.xz", lzma.compress)]
)
def test_labels_are_read_plain_or_packed(tmp_path: Path, name: str, pack) -> None:
    (tmp_path / name).write_bytes(pack(TEXT.encode()))
    labels = read_labels(tmp_path / name)
    assert labels["/m/1"] == "Denton"
    assert labels["/m/2"] == "El Paso"
    assert len(labels["/m/3"]) == 200
    assert list(labels) == ["/m/1", "/m/2", "/m/3"]


@pytest.mark.parametrize(
    "content, said",
    [
        (b"a\tb\nno tab\n", r"a\.tsv:2: expected name, tab, label; found 'no tab'"),
        (b"\tlabel\n", r"a\.tsv:1: expected"),
        (b"a\t \n", r"a\.tsv:1: expected"),
        (b"a\t\xff\n", r"a\.tsv:1: not UTF-8"),
        (b"a\t" + b"x" * (1 << 20), r"a\.tsv:1: the line has 1,048,576 bytes"),
    ],
)
def test_a_line_that_is_no_label_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.tsv").write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_labels(tmp_path / "a.tsv")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_labels(tmp_path / "none.tsv")
    (tmp_path / "cut.xz").write_bytes(lzma.compress(TEXT.encode())[:40])
    with pytest.raises(DataError, match="cannot be read"):
        read_labels(tmp_path / "cut.xz")
