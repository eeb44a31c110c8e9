"""The time that a tuning has used."""

from collections.abc import Callable
from pathlib import Path

from allneg.runs import plain
from allneg.runs.files import read_json, write_json

_WRITE_SECONDS = 2.0  # between two writes


class Clock:
    """The seconds of a tuning, in all sessions.

    A file keeps them, so a session continues where a killed one stopped. Processes that run at the
    same time agree on the time, up to the seconds between two writes.
    """

    def __init__(self, path: Path, now: Callable[[], float], start: float) -> None:
        """`now` is a function such as `time.monotonic`; the session began at `start`."""
        before = float(read_json(path).get("seconds", 0.0)) if plain.exists(path) else 0.0
        self._path, self._now, self._start = path, now, start - before
        self.write()

    @property
    def seconds(self) -> float:
        return self._now() - self._start

    def tick(self) -> None:
        """Write the time if it is due."""
        if self._now() - self._written >= _WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        self._written = self._now()
        write_json(self._path, {"seconds": self.seconds})
