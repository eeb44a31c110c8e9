"""Graphs written to files, and the published datasets if present."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from allneg.graph import Graph, read_graph
from allneg.recipe import Data

SHARED = Path(__file__).parents[3] / "shared" / "data"


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


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Path:
    if not (SHARED / "wn18rr.tar.xz").exists():
        pytest.skip("the published datasets are not next to the repository (../shared/data)")
    monkeypatch.setenv("ALLNEG_DATA", str(SHARED))
    return SHARED
