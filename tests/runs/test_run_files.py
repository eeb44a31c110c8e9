from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from allneg.errors import ResourceError, RunError
from allneg.runs.files import (
    read_json,
    read_tensors,
    write_json,
    write_parts,
    write_tensors,
    write_text,
)


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_write_that_fails_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(path: Path, parts: Iterator[bytes]) -> None:
        for _ in parts:
            full()

    monkeypatch.setattr("allneg.runs.disk.write", fill)
    threads = threading.active_count()
    with pytest.raises(ResourceError, match="the disk is full") as error:
        write_tensors(tmp_path / "rows", {"a": torch.zeros(2)})
    assert threading.active_count() == threads, error  # it still refers to all frames


def test_a_text_is_replaced_completely(tmp_path: Path) -> None:
    path = tmp_path / "note"
    write_text(path, "old\n")
    write_text(path, "new é\n")
    assert path.read_bytes() == "new é\n".encode()
    assert [entry.name for entry in tmp_path.iterdir()] == ["note"]


def test_two_processes_can_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "note"

    def parts() -> Iterator[bytes]:
        yield b"by the "
        child = os.fork()
        if child == 0:
            try:
                write_text(path, "by the child")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert path.read_text() == "by the child"
        yield b"parent"

    write_parts(path, parts())
    assert path.read_text() == "by the parent"
    assert [entry.name for entry in tmp_path.iterdir()] == ["note"]


@pytest.mark.battery(25)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "note"
    write_text(path, "old")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(ResourceError, match="note: the disk is full") as caught:
        write_text(path, "new")
    assert caught.value.exit_code == 6
    assert path.read_text() == "old"


@pytest.mark.battery(28)
def test_an_error_names_the_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "inside"  # a path that even root cannot write
    with pytest.raises(ResourceError, match=r"file/inside: cannot be written"):
        write_text(inside, "")
    with pytest.raises(ResourceError, match=r"file/inside: cannot be written"):
        write_tensors(inside, {"a": torch.zeros(2)})


def test_tensors_survive(tmp_path: Path) -> None:
    rows = torch.arange(12.0).view(3, 4)
    write_tensors(tmp_path / "rows", {"turned": rows.T, "step": torch.tensor(3)})
    back = read_tensors(tmp_path / "rows")
    assert back["turned"].equal(rows.T)
    assert back["step"].equal(torch.tensor(3))


def test_weights_have_the_permissions_of_other_files(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "")
    write_tensors(tmp_path / "rows", {"a": torch.zeros(1)})
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("text", "rows")}
    assert len(modes) == 1


@pytest.mark.parametrize("content", [b"{", b"\xff", b"", b"[" * 100_000])
def test_an_error_names_the_file_that_is_not_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(RunError, match=r"a\.json: not JSON"):
        read_json(tmp_path / "a.json")


def test_an_error_names_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"a\.json: cannot be read"):
        read_json(tmp_path / "a.json")
    with pytest.raises(RunError, match="rows: cannot be read"):
        read_tensors(tmp_path / "rows")


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x80\x04K\x01."])
def test_an_error_names_the_file_that_is_not_safetensors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows").write_bytes(content)
    with pytest.raises(RunError, match="rows: not a whole safetensors file"):
        read_tensors(tmp_path / "rows")


def test_json_is_indented_and_keeps_unicode(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"name": "Å"})
    assert (tmp_path / "a.json").read_text() == '{\n  "name": "Å"\n}\n'
