"""Disks that fail: one that gets full, and one that forgets at a power cut what was not synced."""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from allneg.runs import disk as seam
from allneg.runs.disk import Bytes, Disk


@pytest.fixture
def put_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Disk], None]:
    """Put another disk in the real one's place, for this test."""

    def replaced(disk: Disk) -> None:
        monkeypatch.setattr(seam, "disk", disk)

    return replaced


class FullDisk(Disk):
    """Has room for so many bytes more; what does not fit is cut, as on a real one."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.failures = 0

    def write(self, path: Path, parts: Iterable[Bytes]) -> None:
        super().write(path, self._fitting(parts))

    def append(self, path: Path, data: bytes) -> None:
        super().append(path, b"".join(self._fitting([data])))

    def free_bytes(self, folder: Path) -> int:
        return 1 << 60  # as a quota does: the disk has room, but not for us

    def _fitting(self, parts: Iterable[Bytes]) -> Iterator[Bytes]:
        for part in parts:
            fits = min(self.room, len(part))
            self.room -= fits
            yield part[:fits]
            if fits < len(part):
                self.failures += 1
                raise OSError(errno.ENOSPC, "No space left on device")


class PowerCut(Exception):
    """The lights go out: nobody gets to save or to tidy up."""


@dataclass
class _File:
    now: bytes
    lasting: bytes | None = None  # what a sync put down; None before the first


@dataclass
class _Folder:
    """Names in a folder. Changes not yet synced may or may not have got to the disk."""

    now: dict[str, Any] = field(default_factory=dict)
    lasting: list[dict[str, Any]] = field(default_factory=lambda: [{}])  # every state since a sync

    def changed(self) -> None:
        self.lasting.append(dict(self.now))


class CutDisk(Disk):
    """Does what it is asked, and keeps in mind what would be left if the power went.

    The power goes at call number `calls`. A file's content lasts once it is synced, a folder's
    names once the folder is; of the changes of names since then, the first few may have got
    through, or only the newest.
    """

    def __init__(self, root: Path, calls: int) -> None:
        self.root, self.left = root, calls
        self.top = self._seen(root)

    def write(self, path: Path, parts: Iterable[Bytes]) -> None:
        self._tick()
        content = b"".join(parts)
        super().write(path, [content])
        folder = self._folder(path.parent)
        folder.now.pop(path.name, None)
        folder.changed()
        folder.now[path.name] = _File(content)
        folder.changed()

    def append(self, path: Path, data: bytes) -> None:
        self._tick()
        super().append(path, data)
        folder = self._folder(path.parent)
        if path.name not in folder.now:
            folder.now[path.name] = _File(b"")
            folder.changed()
        folder.now[path.name].now += data

    def sync(self, path: Path) -> None:
        self._tick()
        if path == self.root.parent:
            return
        if path.is_dir():
            folder = self._folder(path)
            folder.lasting = [dict(folder.now)]
        else:
            file = self._folder(path.parent).now[path.name]
            file.lasting = file.now

    def make_folder(self, folder: Path) -> None:
        self._tick()
        super().make_folder(folder)
        parent = self._folder(folder.parent)
        parent.now[folder.name] = _Folder()
        parent.changed()

    def replace(self, old: Path, new: Path) -> None:
        self._tick()
        super().replace(old, new)
        self._renamed(old, new)

    def rename(self, old: Path, new: Path) -> None:
        self._tick()
        super().rename(old, new)
        self._renamed(old, new)

    def remove(self, path: Path) -> None:
        if not path.exists():
            return
        self._tick()
        super().remove(path)
        folder = self._folder(path.parent)
        del folder.now[path.name]
        folder.changed()

    def after_the_cut(self, place: Path, names: str, content: str) -> None:
        """Write what is left to `place`.

        `names` says which of the changes not synced got through: "none", "half", "all", "newest";
        `content` what is in files not synced: "nothing", "half", "zeros" or "all".
        """
        _restored(self.top, place, names, content)

    def _tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerCut

    def _renamed(self, old: Path, new: Path) -> None:
        assert old.parent == new.parent
        folder = self._folder(old.parent)
        folder.now[new.name] = folder.now.pop(old.name)
        folder.changed()

    def _folder(self, path: Path) -> _Folder:
        found = self.top
        for name in path.relative_to(self.root).parts:
            found = found.now[name]
        return found

    def _seen(self, path: Path) -> _Folder:
        """What is on the disk already, which is taken to last."""
        folder = _Folder()
        for each in path.iterdir():
            content = b"" if each.is_dir() else each.read_bytes()
            folder.now[each.name] = (
                self._seen(each) if each.is_dir() else _File(content, lasting=content)
            )
        folder.lasting = [copy.copy(folder.now)]
        return folder


def _restored(folder: _Folder, place: Path, names: str, content: str) -> None:
    place.mkdir()
    for name, each in _left(folder.lasting, names).items():
        if isinstance(each, _Folder):
            _restored(each, place / name, names, content)
        elif each.now == each.lasting or content == "all":
            (place / name).write_bytes(each.now)
        else:
            kept = {"nothing": each.lasting or b"", "half": each.now[: len(each.now) // 2]}
            (place / name).write_bytes(kept.get(content, bytes(len(each.now))))


def _left(states: list[dict[str, Any]], names: str) -> dict[str, Any]:
    if names != "newest":
        return states[{"none": 0, "half": len(states) // 2, "all": -1}[names]]
    first, before, last = states[0], states[max(-2, -len(states))], states[-1]
    gone = before.keys() - last.keys()
    new = {name: each for name, each in last.items() if before.get(name) is not each}
    return {name: each for name, each in {**first, **new}.items() if name not in gone}


@pytest.fixture
def full_disk(put_in: Callable[[Disk], None]) -> Callable[[int], FullDisk]:
    """`full_disk(100)` is in place, with room for 100 bytes."""

    def placed(room: int) -> FullDisk:
        disk = FullDisk(room)
        put_in(disk)
        return disk

    return placed


@pytest.fixture
def cut_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CutDisk | None]:
    """`cut_disk(action, root, 5)`: the power goes at the fifth call; None if the action ends."""

    def cut(action: Callable[[], object], root: Path, calls: int) -> CutDisk | None:
        disk = CutDisk(root, calls)
        with monkeypatch.context() as patched:
            patched.setattr(seam, "disk", disk)
            try:
                action()
            except PowerCut:
                return disk
            return None

    return cut


@pytest.fixture
def as_nobody() -> Callable[[Callable[[], None]], int]:
    """Run something in a child process without root's rights; its exit code, as a command's."""

    def run(action: Callable[[], None]) -> int:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                if os.getuid() == 0:
                    os.setgid(65534)
                    os.setuid(65534)
                action()
                code = 0
            except BaseException as error:
                code = getattr(error, "exit_code", 98)
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return run
