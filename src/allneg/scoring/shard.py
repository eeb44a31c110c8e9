"""Which rows of the entity table a process holds, and whom it adds its numbers to.

One process is a world of one: its shard holds every row, and the sums over processes vanish.
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
class Group:
    """Processes that add their numbers up. Alone, there is nothing to add.

    Every process of a group calls the same methods in the same order, with tensors of one shape.
    """

    rank: int = 0  # this process's place among them
    size: int = 1
    processes: dist.ProcessGroup | None = field(default=None, compare=False, repr=False)

    def part(self, total: int) -> tuple[int, int]:
        """Where this process's share of `total` things starts and stops: as even as can be."""
        return self.rank * total // self.size, (self.rank + 1) * total // self.size

    def widest(self, total: int) -> int:
        """The most things that a process of the group has of `total`."""
        return -(-total // self.size)

    def sum(self, each: Tensor) -> Tensor:
        """`each`, summed over the processes in its place."""
        self.begin_sum(each).wait()
        return each

    def begin_sum(self, each: Tensor) -> Pending:
        """Begin to sum `each` in its place; it must rest until that has ended."""
        return self._begin(each, dist.ReduceOp.SUM)

    def most(self, each: Tensor) -> Tensor:
        """`each`, replaced in its place by the largest of the processes'."""
        self.begin_most(each).wait()
        return each

    def begin_most(self, each: Tensor) -> Pending:
        """Begin what `most` does; `each` must rest until that has ended."""
        return self._begin(each, dist.ReduceOp.MAX)

    def first(self, each: Tensor) -> Tensor:
        """`each`, replaced by that of the group's first process."""
        if self.processes is not None:
            with _peers_named():
                dist.broadcast(each, group_src=0, group=self.processes)
        return each

    def stack(self, each: Tensor) -> Tensor:
        """Every process's tensor, by rank: (…) -> (size, …)."""
        if self.processes is None:
            return each.unsqueeze(0)
        out = each.new_empty(self.size, *each.shape)
        with _peers_named():
            dist.all_gather(list(out.unbind(0)), each.contiguous(), group=self.processes)
        return out

    def _begin(self, each: Tensor, how: dist.ReduceOp.RedOpType) -> Pending:
        if self.processes is None:
            return Pending()
        assert each.is_contiguous()
        with _peers_named():
            return Pending(dist.all_reduce(each, how, group=self.processes, async_op=True))


@dataclass(frozen=True)
class Pending:
    """A sum under way; none, where a process is alone."""

    work: dist.Work | None = None

    def wait(self) -> None:
        if self.work is not None:
            with _peers_named():
                self.work.wait()


NO_GROUP = Group()


@dataclass(frozen=True)
class World:
    """All processes of a training, a grid of rows × batch, as one of them sees it."""

    rows: Group = NO_GROUP  # processes with other rows, which see the same queries
    batch: Group = NO_GROUP  # processes with the same rows, which see other queries
    everyone: Group = NO_GROUP

    @property
    def size(self) -> int:
        return self.everyone.size

    @property
    def rank(self) -> int:
        return self.everyone.rank

    @property
    def is_rank_zero(self) -> bool:
        """Is this the process that speaks, and writes what all have in common?"""
        return self.rank == 0

    def most(self, number: int) -> int:
        """The largest of all processes' numbers."""
        return int(self.everyone.most(torch.tensor(number)))

    def broadcast(self, text: str) -> str:
        """The first process's text."""
        if self.size == 1:
            return text
        data = text.encode() if self.is_rank_zero else b""
        length = self.most(len(data))
        each = torch.frombuffer(bytearray(data.ljust(length, b"\0")), dtype=torch.uint8)
        return self.everyone.most(each).numpy().tobytes().decode()

    def texts(self, text: str) -> list[str]:
        """Every process's text, by rank."""
        data = text.encode()
        length = self.most(len(data))
        each = torch.frombuffer(bytearray(data.ljust(length)), dtype=torch.uint8)
        return [some.numpy().tobytes().decode() for some in self.everyone.stack(each)]

    def raise_together(self, work: Callable[[], T]) -> T:
        """What `work` gives; where a process meets a problem in it, every process has one."""
        met: AllnegError | None = None
        try:
            done = work()
        except AllnegError as problem:
            met = problem
        if not (code := self.most(met.exit_code if met else 0)):
            return done
        said = self.texts(str(met) if met else "")
        raise met or error_for_exit_code(code, next(text for text in said if text.strip()).rstrip())

    def on_rank_zero(self, work: Callable[[], object]) -> None:
        """Do something in the first process, while the others wait; a problem there is all's."""
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
        """Every row, held by one process."""
        return cls(0, total, total)

    @classmethod
    def of(cls, total: int, world: World) -> Shard:
        """This process's share of the rows."""
        if total < world.rows.size:
            raise RecipeError(
                f"hardware.mesh: {total} entities are too few for {world.rows.size} processes "
                "to hold a row each; say another --mesh"
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

    def holds(self, ids: Tensor) -> Tensor:
        """Which of some entities have their row here."""
        return (ids >= self.start) & (ids < self.stop)

    def local(self, ids: Tensor) -> Tensor:
        """Where the entities' rows are in this shard; any place for those it does not hold."""
        return (ids - self.start).clamp(0, len(self) - 1)


@contextlib.contextmanager
def _peers_named() -> Iterator[None]:
    """Say in a line that another process has gone, which shows as a broken connection."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        # gloo begins with the place in its source, and ends with advice.
        what = re.sub(r"^\[\S+\] ", "", str(error)).partition("\n")[0].partition(". ")[0]
        raise ResourceError(
            f"another process of this training does not answer any more ({what}).\n"
            "What was saved is kept; start the processes again, and `allneg resume` goes on."
        ) from None
