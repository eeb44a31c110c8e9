"""Small searches on the tiny graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.tuning import Search, Space, read_space

QUICK = """
[model]
dim = 4
[training]
epochs = 6
batch_size = 8
[evaluation]
every = 2
[hardware]
device = "cpu"
threads = 1
"""
GRID = """
"optimizer.learning_rate" = [0.5, 0.1]
"regularizer.weight" = [0.1, 0, 0.01]
"""


@pytest.fixture
def make_space(tmp_path: Path, tiny_folder: Path) -> Callable[..., Space]:
    """A space on the tiny graph: `make_space('"model.dim" = [2, 3]', "training.epochs=4")`."""

    def make(searched: str = GRID, *settings: str) -> Space:
        file = tmp_path / "space.toml"
        file.write_text(f"{QUICK}\n[data]\nname = {str(tiny_folder)!r}\n[search]\n{searched}")
        return read_space(file, settings)

    return make


@pytest.fixture
def make_search(make_space: Callable[..., Space], tmp_path: Path) -> Callable[..., Search]:
    """A search in tmp_path/out: `make_search('"model.dim" = [2, 3]', halving=True)`."""

    def make(
        searched: str = GRID,
        *settings: str,
        out: str = "out",
        n_trials: int | None = None,
        halving: bool = False,
    ) -> Search:
        return Search(make_space(searched, *settings), tmp_path / out, n_trials, halving)

    return make


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits that training ranks from now on."""
    loop = sys.modules["allneg.training.loop"]
    splits: list[str] = []
    evaluate = loop.evaluate

    def recorded(*arguments: Any, **more: Any) -> Any:
        splits.append(arguments[3])
        return evaluate(*arguments, **more)

    monkeypatch.setattr(loop, "evaluate", recorded)
    return splits
