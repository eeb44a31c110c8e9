"""What Windows lacks, taken away here."""

from __future__ import annotations

import locale
import mmap
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from allneg.cli.reports import stop_signal
from allneg.cli.workers import Worker
from allneg.graph.mapped import map_triples, release
from allneg.graph.vectors import read_vectors
from allneg.hardware import memory
from allneg.paths import sync


def test_pages_are_not_released_where_that_is_impossible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.arange(6).tofile(tmp_path / "ids")
    monkeypatch.delattr(mmap, "MADV_DONTNEED")
    triples = map_triples(tmp_path / "ids")
    release(triples)
    assert triples.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_memory_is_unknown_without_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sysconf_names")
    assert memory(torch.device("cpu")) is None


def test_folders_are_not_synced_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, flags = tmp_path / "file", list[int]()
    file.write_text("text")
    original = os.open
    with monkeypatch.context() as patched:
        patched.setattr(os, "name", "nt")
        patched.setattr(os, "open", lambda path, how: flags.append(how) or original(path, how))  # type: ignore[func-returns-value]
        sync(tmp_path)
        sync(file)
    assert flags == [os.O_RDWR]


@pytest.mark.parametrize(
    "name, text", [("a.vec", "1 2\nTomé 1 2\n"), ("a.csv", "name,0,1\nTomé,1,2\n")]
)
def test_vectors_are_utf8_where_other_files_are_not(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    usual = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")  # as Windows, which has code pages
    try:
        names, vectors = read_vectors(tmp_path / name)
    finally:
        locale.setlocale(locale.LC_CTYPE, usual)
    assert (names, vectors.tolist()) == (["Tomé"], [[1.0, 2.0]])


def test_workers_get_ctrl_c_from_the_console_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    worker = Worker(cast(Any, SimpleNamespace(send_signal=sent.append)), cast(Any, None))
    worker.stop(signal.SIGINT)
    monkeypatch.setattr(os, "name", "nt")
    worker.stop(signal.SIGINT)
    worker.stop(signal.SIGTERM)
    assert sent == [signal.SIGINT, signal.SIGTERM]


def test_the_launcher_of_windows_is_not_a_lost_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    with stop_signal(parent=-1) as stopped_by:
        assert stopped_by() == signal.SIGTERM
        monkeypatch.setattr(os, "name", "nt")
        assert stopped_by() == 0
