"""Which rows of the entity table a process holds, and how processes communicate.

A single process holds every row, and sums over processes do nothing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from allneg.errors import AllnegError, RecipeError, ResourceError, error_for_exit_code

T = TypeVar("T")


@dataclass(frozen=True)
class Pending:
    """A collective operation that has started; in a single process there is none."""

    work: dist.Work | None = None

    def wait(self) -> None:
        if self.work is not None:
            with _lost_peer_named():
                self.work.wait()


@dataclass(frozen=True)
class Group:
    """Processes that exchange tensors. All of them call the same methods in the same order."""

    rank: int = 0
    size: int = 1
    processes: dist.ProcessGroup | None = field(default=None, compare=False, repr=False)

    def part(self, total: int) -> tuple[int, int]:
        """Start and stop of this process's share of `total` items, as even as possible."""
        return self.rank * total // self.size, (self.rank + 1) * total // self.size

    def largest_part(self, total: int) -> int:
        """The most items of `total` that a process of the group has."""
        return -(-total // self.size)

    def start_sum(self, tensor: Tensor) -> Pending:
        """Start to sum a tensor over the processes, in place; do not use it until that is done."""
        return self._start(tensor, dist.ReduceOp.SUM)

    def start_max(self, tensor: Tensor) -> Pending:
        """As `start_sum`, for the largest value."""
        return self._start(tensor, dist.ReduceOp.MAX)

    def sum(self, tensor: Tensor) -> Tensor:
        self.start_sum(tensor).wait()
        return tensor

    def max(self, tensor: Tensor) -> Tensor:
        self.start_max(tensor).wait()
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Replace a tensor in place by that of the group's first process."""
        if self.processes is not None:
            with _lost_peer_named():
                dist.broadcast(tensor, group_src=0, group=self.processes)
        return tensor

    def all_gather(self, tensor: Tensor) -> Tensor:
        """Every process's tensor, by rank: (…) -> (size, …)."""
        if self.processes is None:
            return tensor.unsqueeze(0)
        out = tensor.new_empty(self.size, *tensor.shape)
        with _lost_peer_named():
            dist.all_gather(list(out.unbind(0)), tensor.contiguous(), group=self.processes)
        return out

    def _start(self, tensor: Tensor, operation: dist.ReduceOp.RedOpType) -> Pending:
        if self.processes is None:
            return Pending()
        assert tensor.is_contiguous()
        with _lost_peer_named():
            return Pending(dist.all_reduce(tensor, operation, group=self.processes, async_op=True))


NO_GROUP = Group()


@dataclass(frozen=True)
class World:
    """The groups of one process in the grid of rows × batch."""

    rows: Group = NO_GROUP  # processes with other rows and the same queries
    batch: Group = NO_GROUP  # processes with the same rows and other queries
    everyone: Group = NO_GROUP

    @property
    def size(self) -> int:
        return self.everyone.size

    @property
    def rank(self) -> int:
        return self.everyone.rank

    @property
    def is_rank_zero(self) -> bool:
        """Is this the process that reports, and writes what all have in common?"""
        return self.rank == 0

    def max(self, number: int) -> int:
        """The largest of all processes' numbers."""
        return int(self.everyone.max(torch.tensor(number)))

    def broadcast(self, text: str) -> str:
        """The text of rank zero."""
        return self.gather_texts(text)[0] if self.size > 1 else text

    def gather_texts(self, text: str) -> list[str]:
        """Every process's text, by rank."""
        data = text.encode()
        length = self.max(len(data))
        padded = torch.frombuffer(bytearray(data.ljust(length, b"\0") or b"\0"), dtype=torch.uint8)
        rows = self.everyone.all_gather(padded)
        return [row.numpy().tobytes().rstrip(b"\0").decode() for row in rows]

    def raise_together(self, work: Callable[[], T]) -> T:
        """What `work` returns; an error in one process is raised in all of them."""
        raised: AllnegError | None = None
        try:
            result = work()
        except AllnegError as error:
            raised = error
        if not (code := self.max(raised.exit_code if raised else 0)):
            return result
        messages = self.gather_texts(str(raised) if raised else "")
        raise raised or error_for_exit_code(code, next(text for text in messages if text.strip()))

    def on_rank_zero(self, work: Callable[[], object]) -> None:
        """Do something on rank zero while the others wait; all raise its error."""
        self.raise_together(work if self.is_rank_zero else lambda: None)


SINGLE_PROCESS = World()


@dataclass(frozen=True)
class Shard:
    """Rows `start` to `stop` of `total`."""

    start: int
    stop: int
    total: int
    world: World = SINGLE_PROCESS

    @classmethod
    def whole(cls, total: int) -> Shard:
        """Every row, in one process."""
        return cls(0, total, total)

    @classmethod
    def of(cls, total: int, world: World) -> Shard:
        """This process's share of the rows."""
        if total < world.rows.size:
            raise RecipeError(
                f"hardware.mesh: {total} entities are too few for {world.rows.size} processes "
                "with at least one row each; choose another --mesh"
            )
        return cls(*world.rows.part(total), total, world)

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def rows(self) -> Group:
        return self.world.rows

    @property
    def batch(self) -> Group:
        return self.world.batch

    @property
    def is_part(self) -> bool:
        """Do other processes hold some of the rows?"""
        return self.rows.size > 1

    def holds(self, ids: Tensor) -> Tensor:
        """Which of some entities have their row here."""
        return (ids >= self.start) & (ids < self.stop)

    def local(self, ids: Tensor) -> Tensor:
        """The entities' rows in this shard; for those it does not hold, any valid row."""
        return (ids - self.start).clamp(0, len(self) - 1)

    def columns(self, ids: Tensor) -> Tensor:
        """The entities' columns among the scores of this shard; -1 for those it does not hold."""
        return torch.where(self.holds(ids), ids - self.start, -1) if self.is_part else ids

    def held_pairs(self, pairs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Of pairs of a query and an entity, those with a column in this shard: query, column."""
        if not self.is_part:
            return pairs
        here = self.holds(pairs[1])
        return pairs[0][here], pairs[1][here] - self.start


@contextlib.contextmanager
def _lost_peer_named() -> Iterator[None]:
    """Turn a broken connection into an error that says that another process has ended."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        # gloo's messages begin with a source location and end with advice.
        what = re.sub(r"^\[\S+\] ", "", str(error)).partition("\n")[0].partition(". ")[0]
        raise ResourceError(
            f"another process of this training no longer responds ({what}).\n"
            "Saved checkpoints are kept. Start the processes again, or run `allneg resume`."
        ) from None
