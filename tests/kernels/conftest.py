"""Without a GPU, Triton's programs run in its interpreter, slowly and on a CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parent))  # for distance_checks


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled libraries stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLNEG_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _repeatable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    torch.manual_seed(0)
    yield
    torch.set_num_threads(1)
