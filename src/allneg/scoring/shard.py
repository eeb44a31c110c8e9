"""Which rows of the entity table a process holds. One process is a world of one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shard:
    """Rows `start` to `stop` of `total`."""

    start: int
    stop: int
    total: int

    @classmethod
    def whole(cls, total: int) -> Shard:
        """Every row, held by one process."""
        return cls(0, total, total)

    def __len__(self) -> int:
        return self.stop - self.start
