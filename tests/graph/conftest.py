"""Graphs written to files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from allneg.graph import Graph, read_graph
from allneg.recipe import Data


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Graph]:
    """Read a folder with the given contents: `read(train=b"a\\tr\\tb\\n", skip_bad_lines=1)`."""

    def written_and_read(
        train: bytes, valid: bytes | None = None, test: bytes | None = None, **settings: object
    ) -> Graph:
        ending = settings.pop("ending", "txt")
        folder = tmp_path / "toy"
        folder.mkdir(exist_ok=True)
        for split, content in (("train", train), ("valid", valid), ("test", test)):
            if content is not None:
                (folder / f"{split}.{ending}").write_bytes(content)
        return read_graph(folder, Data(**settings))  # type: ignore[arg-type]

    return written_and_read
