"""Is a file the one we mean? Told by its content, whatever its line ends."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from allneg.errors import DataError
from allneg.graph.files import DAMAGE, TripleFile

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Content:
    """What is known of a file's content; all but `git_blob` with LF at the line ends."""

    lines: int
    sha256: str | None = None
    git_blob: str | None = None  # sha1 of b"blob SIZE\\0" and the content
    characters: int | None = None  # where no hash is known

    def wrong(self, file: TripleFile) -> str | None:
        """What does not fit, or None."""
        try:
            found = _measured(file, blob=self.git_blob is not None)
        except DAMAGE as error:
            return f"it cannot be read ({error})"
        for what in ("lines", "sha256", "git_blob", "characters"):
            expected = getattr(self, what)
            if expected is not None and expected != getattr(found, what):
                return f"{what} should be {expected}, but is {getattr(found, what)}"
        return None


def file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def text_sha256(file: TripleFile) -> str:
    """Of a file's bytes as they are once unpacked."""
    sha256 = hashlib.sha256()
    try:
        for block in _blocks(file):
            sha256.update(block)
    except DAMAGE as error:
        raise DataError(f"{file.where}: cannot be read ({error})") from None
    return sha256.hexdigest()


def _measured(file: TripleFile, blob: bool) -> Content:
    sha256, lines, characters = hashlib.sha256(), 0, 0
    for block in _with_line_feeds(file):
        sha256.update(block)
        lines += block.count(b"\n")
        characters += len(block) - len(block.translate(None, _CHARACTER_STARTS))
    return Content(lines, sha256.hexdigest(), _git_blob(file) if blob else None, characters)


def _git_blob(file: TripleFile) -> str:
    # The size comes first in a blob, so that it takes two passes.
    size = sum(len(block) for block in _blocks(file))
    sha1 = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    for block in _blocks(file):
        sha1.update(block)
    return sha1.hexdigest()


# In UTF-8, every byte that does not continue a character.
_CHARACTER_STARTS = bytes(byte for byte in range(256) if byte & 0xC0 != 0x80)


def _with_line_feeds(file: TripleFile) -> Iterator[bytes]:
    """The file with LF for CRLF, a block at a time."""
    held = b""
    for block in _blocks(file):
        whole = held + block
        # A CR at the very end waits for what follows it.
        held = whole[-1:] if whole.endswith(b"\r") else b""
        yield whole.removesuffix(b"\r").replace(b"\r\n", b"\n")
    yield held


def _blocks(file: TripleFile) -> Iterator[bytes]:
    with file.open() as stream:
        while block := stream.read(_BLOCK):
            yield block
