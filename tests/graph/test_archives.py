"""A dangerous archive is refused, and nothing is ever written to disk."""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from allneg.errors import DataError
from allneg.graph import archives, lines, read_graph
from allneg.recipe import Data

TRAIN = b"a\tr\tb\n"


def tar_with(path: Path, member: tarfile.TarInfo, content: bytes = b"") -> Path:
    """An archive with a valid train file and then `member`."""
    with tarfile.open(path, "w:gz") as tar:
        good = tarfile.TarInfo("train.txt")
        good.size = len(TRAIN)
        tar.addfile(good, io.BytesIO(TRAIN))
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return path


def everything(folder: Path) -> list[Path]:
    return sorted(folder.parent.rglob("*"))


@pytest.mark.battery(15)
@pytest.mark.parametrize("name", ["../v.txt", "/etc/v.txt", "x/../../v.txt", "..\\v.txt"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_name_that_leads_outside_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / ("x.tar.gz" if kind == "tar" else "x.zip")
    if kind == "tar":
        tar_with(path, tarfile.TarInfo(name), TRAIN)
    else:
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("train.txt", TRAIN)
            packed.writestr(name, TRAIN)
    before = everything(tmp_path)
    with pytest.raises(DataError, match=r"refused: .*leads outside"):
        read_graph(path)
    assert everything(tmp_path) == before


@pytest.mark.battery(15)
def test_a_compressed_member_of_an_archive_has_a_size_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(lines: int) -> Path:
        path = tmp_path / f"{lines}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("train.txt.gz", gzip.compress(TRAIN * lines))
        return path

    assert len(read_graph(packed(10)).train) == 1
    monkeypatch.setattr(archives, "_FREE_BYTES", 1000)
    with pytest.raises(DataError, match="refused: it would unpack to more than"):
        read_graph(packed(1 << 20))


@pytest.mark.battery(15)
@pytest.mark.parametrize(
    "fields",
    [
        {"GNU.sparse.map": "abc"},
        {"GNU.sparse.size": "abc"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
        {"GNU.sparse.realsize": "zz"},
    ],
)
def test_a_tar_with_invalid_headers_is_refused(tmp_path: Path, fields: dict[str, str]) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("train.txt")
        member.size, member.pax_headers = len(TRAIN), fields
        tar.addfile(member, io.BytesIO(TRAIN))
    with pytest.raises(DataError, match="not a complete archive"):
        read_graph(path)


@pytest.mark.battery(15)
@pytest.mark.parametrize(
    "index, byte", [(6, 99), (46, 0xFF)]
)  # requires version 9.9; invalid UTF-8
def test_a_zip_with_an_invalid_directory_is_refused(tmp_path: Path, index: int, byte: int) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("train.txt", TRAIN)
        packed.writestr("\u00e9.txt", TRAIN)  # with the flag for a UTF-8 name
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")  # the last of the directory
    data[entry + index] = byte
    path.write_bytes(data)
    with pytest.raises(DataError, match="not a complete archive"):
        read_graph(path)


@pytest.mark.battery(15)
@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_a_link_or_device_in_a_tar_is_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("valid.txt")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(DataError, match=r"'valid\.txt' is a link or a device"):
        read_graph(tar_with(tmp_path / "x.tar.gz", member))


@pytest.mark.battery(15)
def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("valid.txt")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        packed.writestr("train.txt", TRAIN)
        packed.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match=r"'valid\.txt' is a link or a device"):
        read_graph(tmp_path / "x.zip")


@pytest.mark.battery(15)
def test_an_archive_that_declares_more_than_ten_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_MOST_RATIO", 1 << 60)
    header = tarfile.TarInfo("train.txt")
    header.size = (10 << 30) + 1
    with gzip.open(tmp_path / "x.tar.gz", "wb") as file:
        file.write(header.tobuf())
    with pytest.raises(DataError, match="more than 10,737,418,240 bytes"):
        read_graph(tmp_path / "x.tar.gz")


@pytest.mark.battery(15)
def test_an_archive_that_unpacks_to_hundreds_of_times_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_FREE_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("train.txt", TRAIN * (1 << 18))
    with pytest.raises(DataError, match="would unpack to more than"):
        read_graph(tmp_path / "x.zip")


@pytest.mark.battery(15)
def test_an_overlong_header_is_refused_unread(tmp_path: Path) -> None:
    header = tarfile.TarInfo("train.txt")
    header.type, header.size = tarfile.XHDTYPE, 1 << 32
    with gzip.open(tmp_path / "x.tar.gz", "wb") as file:
        file.write(header.tobuf())
    with pytest.raises(DataError, match="overlong header"):
        read_graph(tmp_path / "x.tar.gz")


@pytest.mark.battery(13)
def test_a_file_that_is_only_named_like_an_archive_is_refused(tmp_path: Path) -> None:
    for name in ("x.zip", "x.tar.xz", "x.tgz"):
        (tmp_path / name).write_bytes(TRAIN)
        with pytest.raises(DataError, match="not a complete archive"):
            read_graph(tmp_path / name)


def test_a_damaged_member_of_a_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("train.txt", TRAIN * 100)
    content = bytearray(path.read_bytes())
    content[content.index(TRAIN)] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.zip:train\.txt: damaged"):
        read_graph(path)


@pytest.mark.battery(74)
@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_a_file_twice_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x.tar.gz" if kind == "tar" else "x.zip")
    if kind == "tar":
        tar_with(path, tarfile.TarInfo("train.txt"), b"c\tr\td\n")
    else:
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("train.txt", TRAIN)
            packed.writestr("train.txt", b"c\tr\td\n")
    with pytest.raises(DataError, match=r"refused: 'train\.txt' occurs twice"):
        read_graph(path)


@pytest.mark.battery(75)
@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_compressed_text_that_unpacks_to_hundreds_of_times_its_size_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compress: Callable[[bytes], bytes],
    in_folder: bool,
) -> None:
    monkeypatch.setattr(archives, "_FREE_BYTES", 1000)
    monkeypatch.setattr(lines, "_BLOCK", 1 << 16)
    path = tmp_path / ("train.txt.gz" if compress is gzip.compress else "train.txt.xz")
    source = tmp_path if in_folder else path
    path.write_bytes(compress(TRAIN * 100_000))
    with pytest.raises(DataError, match=r"would unpack to more than [\d,]+ bytes; if you trust"):
        read_graph(source, Data(store="memory"))
    path.write_bytes(compress(TRAIN * 100))
    assert read_graph(source).n_entities == 2
