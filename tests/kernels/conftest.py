"""Without a GPU, Triton's programs run through its interpreter, slowly and on a CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# The tests of several kernels share what check_engine.py says.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def _home_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is compiled here is kept apart from the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLNEG_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _small_and_repeatable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
