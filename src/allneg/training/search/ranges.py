"""A space with ranges: its trials are not listed, but asked for one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from allneg.errors import RecipeError, RunError
from allneg.runs.files import read_json, write_json
from allneg.training.search.space import Axes, Range, Space, Trial, loaded, one_trial


@dataclass(frozen=True)
class Ranged:
    """Where trials may be, and how many are to be tried."""

    name: str  # of its file
    tables: Mapping[str, Any]  # what all trials have in common
    axes: Axes
    count: int

    @property
    def corners(self) -> Space:
        """The first and the last trial there could be, and those one setting away from them."""
        axes = {
            name: [axis.low, axis.high] if isinstance(axis, Range) else axis
            for name, axis in self.axes.items()
        }
        trials = {}
        for end in (0, -1):
            corner = {name: values[end] for name, values in axes.items()}
            for name, values in axes.items():
                for value in values:
                    trial = self.trial({**corner, name: value})
                    trials[trial.id] = trial
        return Space(self.name, tuple(self.axes), tuple(trials.values()))

    def trial(self, settings: Mapping[str, Any]) -> Trial:
        return one_trial(self.name, self.tables, settings)

    def space(self, out: Path) -> Space:
        """The trials that were asked for so far."""
        trials = {trial.id: trial for trial in map(self.trial, self.asked(out))}
        return Space(self.name, tuple(self.axes), tuple(trials.values()))

    def asked(self, out: Path) -> list[dict[str, Any]]:
        """The settings of each trial that was asked for, in order."""
        if not (out / "asked.json").exists():
            return []
        said = read_json(out / "asked.json")
        if not isinstance(said, list) or not all(map(self._is_of, said)):
            raise RunError(
                f"{out / 'asked.json'}: not of {self.name}'s settings and ranges; choose another"
                " --out"
            )
        return said

    def _is_of(self, said: object) -> bool:
        """Could these be a trial's settings? The file may have had others when it was asked."""
        if not isinstance(said, dict) or said.keys() != self.axes.keys():
            return False
        return all(_is_on(axis, said[name]) for name, axis in self.axes.items())

    def ask(self, out: Path, settings: Mapping[str, Any]) -> None:
        """Add a trial; the caller holds `asking`."""
        write_json(out / "asked.json", [*self.asked(out), dict(settings)])


def _is_on(axis: Range | list[Any], value: Any) -> bool:
    if not isinstance(axis, Range):
        return value in axis
    kind = int if axis.is_whole else float
    return isinstance(value, kind) and axis.low <= value <= axis.high


def asking(out: Path) -> FileLock:
    """Held by the one process that asks for a trial."""
    return FileLock(out / "locks" / "asked.lock")


def read_ranged(path: Path | str, count: int, settings: tuple[str, ...] = ()) -> Ranged:
    """A space with ranges from a TOML file; as `read_space`."""
    tables, axes = loaded(path, settings)
    name = Path(path).name
    if not any(isinstance(axis, Range) for axis in axes.values()):
        raise RecipeError(
            f"{name}: --trials is for ranges, and every value is listed: leave it out"
        )
    found = Ranged(name, tables, axes, count)
    found.corners  # noqa: B018 (a mistake in one is named before anything is written)
    return found
