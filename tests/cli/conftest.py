"""Workers that start fast."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from allneg.cli import workers
from processes import ForkedPopen


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork workers, and ask often whether they have ended."""
    monkeypatch.setattr(workers, "subprocess", SimpleNamespace(Popen=ForkedPopen, DEVNULL=None))
    monkeypatch.setattr(workers, "TRIAL_POLL_SECONDS", 0.05)
