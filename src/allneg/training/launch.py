"""The processes that torchrun started, as one world; a lone process is a world of one."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from allneg.errors import ResourceError
from allneg.hardware import find_device
from allneg.mesh import Mesh
from allneg.recipe import Hardware
from allneg.scoring.distributed import NO_GROUP, Group, Pending, World

_PATIENCE = timedelta(minutes=30)  # with a process that reads or saves while others wait
_SECONDS_A_LOOK = 0.02
_DUE = 1 << 16  # above every signal's number


@contextlib.contextmanager
def launched(settings: Hardware) -> Iterator[World]:
    """The world this process is part of, in the mesh that a recipe asks for."""
    size = n_launched()
    mesh = Mesh.of(settings.mesh, size)
    if size == 1:
        yield World()
        return
    device = find_device(settings.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # What is on the GPU goes by NCCL; processes agree on the rest by gloo, and no GPU waits.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        store, rank, _ = next(rendezvous("env://", timeout=_PATIENCE))
        store = fresh(store, rank, size)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
        world = joined(mesh, rank)
    except (RuntimeError, ValueError) as error:
        what = str(error).partition("\n")[0]
        raise ResourceError(f"the {size} processes do not find each other ({what})") from None
    yield world
    # Not where something went wrong: others may have gone, and nobody should wait for them.
    dist.destroy_process_group()


def fresh(store: Store, rank: int, size: int) -> Store:
    """A part of a store in which nothing is left of earlier attempts to train.

    torchrun starts processes anew, and not its store, where they would find the addresses of
    those that have ended. So each says hello by a name never used before, until the first one,
    which counts the attempts, has welcomed it.
    """
    if rank:
        name = uuid.uuid4().hex
        store.set(f"hello/{rank}", name)
        attempt = int(store.get(f"welcome/{name}"))
        store.set(f"here/{attempt}/{rank}", "")
        return PrefixStore(f"attempt/{attempt}", store)
    attempt, awaited = store.add("attempts", 1), set(range(1, size))
    end = time.monotonic() + _PATIENCE.total_seconds()
    while awaited:
        if time.monotonic() > end:
            raise RuntimeError(f"{len(awaited)} have not come")
        for each in list(awaited):
            if store.check([f"here/{attempt}/{each}"]):
                awaited.remove(each)
            elif store.check([f"hello/{each}"]):
                store.set(f"welcome/{store.get(f'hello/{each}').decode()}", str(attempt))
        time.sleep(_SECONDS_A_LOOK)
    return PrefixStore(f"attempt/{attempt}", store)


def joined(mesh: Mesh, rank: int) -> World:
    """The world of the process with this rank, once a process group is there.

    Every process calls this, in the same order of meshes. Those with the same rows have
    neighbouring ranks, and so tend to be on one machine: they have by far the most to tell each
    other, the gradient of every row.
    """
    rows, batch = range(mesh.rows), range(mesh.batch)
    return World(
        _group([[row * mesh.batch + column for row in rows] for column in batch], rank),
        _group([[row * mesh.batch + column for column in batch] for row in rows], rank),
        _group([list(range(mesh.size))], rank),
    )


def _group(all_ranks: list[list[int]], rank: int) -> Group:
    """The group of `rank`, of several that are made together."""
    mine = NO_GROUP
    for ranks in all_ranks:
        if len(ranks) > 1:
            processes = dist.new_group(ranks, timeout=_PATIENCE)
            if rank in ranks:
                mine = Group(ranks.index(rank), len(ranks), processes)
    return mine


class Decision:
    """What processes do together after a step: end by a signal that any got, save when it is time.

    Asked after one step, it is answered after the next: nobody waits for the answer. A lone
    process has it at once.
    """

    def __init__(self, world: World, stopped_by: Callable[[], int]) -> None:
        self.world, self._stopped_by = world, stopped_by
        self._number, self._sum = torch.tensor(0), Pending()

    def __call__(self, is_due: bool) -> tuple[int, bool]:
        """The number of a signal, or 0, and whether to save, by the first process's clock."""
        mine = self._stopped_by()
        if self.world.size == 1:
            return mine, is_due
        self._sum.wait()
        answer = int(self._number)
        # What is about to be saved is not asked for once more.
        asks = is_due and self.world.is_rank_zero and answer < _DUE
        self._number = torch.tensor(mine + _DUE * asks)
        self._sum = self.world.everyone.start_max(self._number)
        return answer % _DUE, answer >= _DUE


def n_launched() -> int:
    """How many processes were started together."""
    return _number("WORLD_SIZE", 1)


def is_first() -> bool:
    """Is this process to lead those that were started together?"""
    return _number("RANK", 0) == 0


def may_restart() -> bool:
    """Will torchrun start this anew after a failure?"""
    return _number("TORCHELASTIC_MAX_RESTARTS", 0) > 0


def _number(name: str, otherwise: int) -> int:
    return int(os.environ.get(name, otherwise))
