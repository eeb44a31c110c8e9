"""Seconds by phase, of functions that are replaced by timed ones."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any


class Clock:
    """Seconds by phase. A phase inside another one does not count for the outer one."""

    def __init__(self, began: float | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._open, self._last = ["other"], time.perf_counter() if began is None else began

    def switch(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._last
        self._last = now

    def restart(self) -> None:
        self.seconds, self._last = {}, time.perf_counter()

    def phase(self, name: str, work: Callable[[], Any]) -> Any:
        self.switch()
        self._open.append(name)
        try:
            return work()
        finally:
            self.switch()
            self._open.pop()

    def time_function(self, name: str, place: str, wait: Callable[[], object] = int) -> None:
        """Count the calls of `place`, such as package.module:Class.method, as a phase.

        `wait` is called at the end of each, for devices that work in the background.
        """
        module, _, path = place.partition(":")
        owner: Any = importlib.import_module(module)
        *outer, last = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        function = getattr(owner, last)

        def timed(*args: Any, **kwargs: Any) -> Any:
            def work() -> Any:
                result = function(*args, **kwargs)
                wait()
                return result

            return self.phase(name, work)

        setattr(owner, last, timed)
