"""The options and the order of the tests. shared_fixtures.py has the fixtures."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

os.environ["OMP_WAIT_POLICY"] = "passive"  # torch's threads do not spin: others need the cores
os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # the processes of tests compile each file once

import pytest

gc.disable()  # until all tests are collected: nothing of it is garbage
TESTS = Path(__file__).parent
sys.path += [str(TESTS), str(TESTS.with_name("scripts"))]  # for interpreter, build_site and others
sys.dont_write_bytecode = False  # workers keep rewritten tests for the next time
os.fsync = lambda handle: None  # no power is cut here; a training waits for a disk 30 times

TOGETHER = ("tests/browser/", "tests/many/")
# Tests that take seconds each, most of them with other processes; the longest are first.
LONG = tuple(
    f"tests/{part}"
    for part in (
        "browser",
        "many",
        "cli/test_re",
        "cli/test_se",
        "cli/test_tu",
        "benchmarks",
        "tuning",
        "serve/test_server",
        "torture/test_resume",
        "test_docs",
        "training",
    )
)


# A shell starts background jobs with SIGINT ignored; tests send it to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    # The process that starts workers needs no torch, and starts them seconds earlier.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("shared_fixtures")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    import torch

    # Long files first, so that several workers end at about the same time.
    items.sort(
        key=lambda item: next(
            (i for i, part in enumerate(LONG) if item.nodeid.startswith(part)), len(LONG)
        )
    )
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="gpu: there is no CUDA device"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Each full collection of garbage would visit all collected tests, for 0.2 seconds."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # else libraries warn at exit that objects are left


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file runs in one worker, and so does a folder whose files share slow fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    config.option.loadscopereorder = False
    return Scheduling(config, log)
