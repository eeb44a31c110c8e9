"""The five benchmarks as published: sizes, origin, and hashes of their content."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import islice
from typing import Any

from allneg.graph.files import TripleFile

ORIGIN = (
    "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding/"
    "617062aaedf53bf4d6b44450a580a96dc30e0632/data"
)
MOST_BYTES = 1 << 30  # of a benchmark file


@dataclass(frozen=True)
class Content:
    """What is known about a file. All but `git_blob` are of the text with LF line ends."""

    lines: int
    sha256: str | None = None
    git_blob: str | None = None  # SHA-1 of b"blob SIZE\\0" and the content
    characters: int | None = None  # where no hash is known

    def problem(self, file: TripleFile) -> str | None:
        """What differs, or None. An unreadable file is a `DataError`."""
        with file.stream() as stream:
            blocks = iter(partial(stream.read, 1 << 20), b"")
            data = b"".join(islice(blocks, MOST_BYTES >> 20))
        text = data.replace(b"\r\n", b"\n")
        blob = b"blob %d\0" % len(data) + data
        found = {
            "lines": text.count(b"\n"),
            "sha256": hashlib.sha256(text).hexdigest(),
            "git_blob": self.git_blob and hashlib.sha1(blob, usedforsecurity=False).hexdigest(),
            "characters": self.characters and len(text.decode(errors="replace")),
        }
        for what, value in found.items():
            expected = getattr(self, what)
            if expected is not None and expected != value:
                return f"{what} should be {expected}, but is {value}"
        return None


@dataclass(frozen=True)
class Dataset:
    """A benchmark as published."""

    n_entities: int
    n_relations: int
    origin: str  # its folder below ORIGIN
    about: str
    files: Mapping[str, Content]  # by split
    archive_sha256: str | None = None  # of the usual NAME.tar.xz


def _dataset(files: Mapping[str, Any], **about: Any) -> Dataset:
    return Dataset(files={split: Content(**content) for split, content in files.items()}, **about)


_TABLES = tomllib.loads((resources.files("allneg.graph") / "benchmarks.toml").read_text())
DATASETS = {name: _dataset(**table) for name, table in _TABLES.items()}
