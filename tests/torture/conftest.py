"""Disks that fail: one that is full, and one that loses unsynced writes at a power cut."""

from __future__ import annotations

import copy
import errno
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from allneg.runs import disk
from allneg.runs.disk import Bytes

NAMES = ("none", "half", "all", "newest")  # unsynced changes of names that reach the disk
CONTENT = ("nothing", "half", "zeros", "all")  # what unsynced files hold after a power cut


class Disk:
    """The real disk; subclasses change what fails."""

    write = staticmethod(disk.write)
    append = staticmethod(disk.append)
    sync = staticmethod(disk.sync)
    make_folder = staticmethod(disk.make_folder)
    rename = staticmethod(disk.rename)
    remove = staticmethod(disk.remove)
    free_bytes = staticmethod(disk.free_bytes)


def _replace(monkeypatch: pytest.MonkeyPatch, other: Disk) -> None:
    for name in [name for name in vars(Disk) if not name.startswith("_")]:
        monkeypatch.setattr(disk, name, getattr(other, name))


class FullDisk(Disk):
    """Has `room` bytes left; a write that does not fit is cut, as on a real disk."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.failures = 0

    def write(self, path: Path, parts: Iterable[Bytes]) -> None:
        super().write(path, self._fitting(parts))

    def append(self, path: Path, data: bytes) -> None:
        super().append(path, b"".join(self._fitting([data])))

    def free_bytes(self, folder: Path) -> int:
        return 1 << 60  # as with a quota: the disk has room, but not for this user

    def _fitting(self, parts: Iterable[Bytes]) -> Iterator[Bytes]:
        for part in parts:
            fits = min(self.room, len(part))
            self.room -= fits
            yield part[:fits]
            if fits < len(part):
                self.failures += 1
                raise OSError(errno.ENOSPC, "No space left on device")


class PowerCut(Exception):
    """The power fails: no code runs after this, not even to clean up."""


@dataclass
class _File:
    now: bytes
    durable: bytes | None = None  # the content at the last sync; None before the first


@dataclass
class _Folder:
    """Names in a folder. Changes since the last sync may or may not have reached the disk."""

    now: dict[str, Any] = field(default_factory=dict)
    states: list[dict[str, Any]] = field(default_factory=lambda: [{}])  # all since the last sync

    def changed(self) -> None:
        self.states.append(dict(self.now))


class CutDisk(Disk):
    """Works, and records what would be left after a power cut, which comes at call `calls`.

    The content of a file is durable after its sync, the names in a folder after the folder's. Of
    later changes of names, the first few may have reached the disk, or only the newest.
    """

    def __init__(self, root: Path, calls: int) -> None:
        self.root, self.calls_left = root, calls
        self.top = self._existing(root)

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
            folder.states = [dict(folder.now)]
        else:
            file = self._folder(path.parent).now[path.name]
            file.durable = file.now

    def make_folder(self, folder: Path) -> None:
        self._tick()
        super().make_folder(folder)
        parent = self._folder(folder.parent)
        parent.now[folder.name] = _Folder()
        parent.changed()

    def rename(self, old: Path, new: Path) -> None:
        self._tick()
        super().rename(old, new)
        assert old.parent == new.parent
        folder = self._folder(old.parent)
        folder.now[new.name] = folder.now.pop(old.name)
        folder.changed()

    def remove(self, path: Path) -> None:
        if not path.exists():
            return
        self._tick()
        super().remove(path)
        folder = self._folder(path.parent)
        del folder.now[path.name]
        folder.changed()

    def after_the_cut(self, target: Path, names: str, content: str) -> None:
        """Write what is left to `target`.

        `names` selects the unsynced changes of names that reached the disk, one of NAMES;
        `content` is what unsynced files hold, one of CONTENT.
        """
        for path, data in _left(self.top, names, content).items():
            (target / path).write_bytes(data) if data is not None else (target / path).mkdir()

    def all_after_the_cut(self, target: Path, seen: set[Any]) -> Iterator[Path]:
        """Write each possible rest to a folder of its own, except those in `seen`."""
        for names, content in itertools.product(NAMES, CONTENT):
            state = frozenset(_left(self.top, names, content).items())
            if state not in seen:
                seen.add(state)
                folder = target.with_name(f"{target.name}-{names}-{content}")
                self.after_the_cut(folder, names, content)
                yield folder

    def _tick(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise PowerCut

    def _folder(self, path: Path) -> _Folder:
        found = self.top
        for name in path.relative_to(self.root).parts:
            found = found.now[name]
        return found

    def _existing(self, path: Path) -> _Folder:
        """What is on the disk already; it is durable."""
        folder = _Folder()
        for entry in path.iterdir():
            content = b"" if entry.is_dir() else entry.read_bytes()
            folder.now[entry.name] = (
                self._existing(entry) if entry.is_dir() else _File(content, durable=content)
            )
        folder.states = [copy.copy(folder.now)]
        return folder


def _left(folder: _Folder, names: str, content: str, path: str = ".") -> dict[str, bytes | None]:
    """What a power cut leaves of a folder: files with their content, folders with None."""
    found: dict[str, bytes | None] = {path: None}
    for name, entry in _names_left(folder.states, names).items():
        if isinstance(entry, _Folder):
            found |= _left(entry, names, content, f"{path}/{name}")
        elif entry.now == entry.durable or content == "all":
            found[f"{path}/{name}"] = entry.now
        else:
            kept = {"nothing": entry.durable or b"", "half": entry.now[: len(entry.now) // 2]}
            found[f"{path}/{name}"] = kept.get(content, bytes(len(entry.now)))
    return found


def _names_left(states: list[dict[str, Any]], names: str) -> dict[str, Any]:
    if names != "newest":
        return states[{"none": 0, "half": len(states) // 2, "all": -1}[names]]
    first, before, last = states[0], states[max(-2, -len(states))], states[-1]
    gone = before.keys() - last.keys()
    new = {name: entry for name, entry in last.items() if before.get(name) is not entry}
    return {name: entry for name, entry in {**first, **new}.items() if name not in gone}


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], FullDisk]:
    """`full_disk(100)` replaces the disk by one with 100 bytes left."""

    def replace(room: int) -> FullDisk:
        full = FullDisk(room)
        _replace(monkeypatch, full)
        return full

    return replace


@pytest.fixture
def cut_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CutDisk | None]:
    """`cut_disk(action, root, 5)`: the power fails at the fifth call; None if the action ends."""

    def cut(action: Callable[[], object], root: Path, calls: int) -> CutDisk | None:
        other = CutDisk(root, calls)
        with monkeypatch.context() as patched:
            _replace(patched, other)
            try:
                action()
            except PowerCut:
                return other
            return None

    return cut


@pytest.fixture
def as_nobody() -> Callable[[Callable[[], None]], int]:
    """Run an action in a child process without root's rights; the exit code it would give."""

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
