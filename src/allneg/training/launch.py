"""The processes that torchrun starts; without torchrun there is one process."""

import contextlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import torch
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from allneg.errors import ResourceError, UsageError, printable
from allneg.hardware import find_device
from allneg.recipe import Hardware, Mesh
from allneg.scoring.distributed import NO_GROUP, Group, Pending, World

_TIMEOUT = timedelta(minutes=30)  # one process may read or save while the others wait
_POLL_SECONDS = 0.02
_TORCHRUN = "start the processes with `torchrun`, or unset the variable"
_SAVE = 1 << 16  # greater than every signal number


@contextlib.contextmanager
def join_processes(settings: Hardware, given: Mapping[str, object]) -> Iterator[World]:
    """The world of this process, in the mesh of the settings.

    `given` are the arguments that all processes must have in common.
    """
    size = n_processes()
    mesh = Mesh.of(settings.mesh, size)
    if size == 1:
        yield World()
        return
    device = find_device(settings.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # NCCL sends GPU tensors; gloo sends CPU tensors, so that no GPU waits for them.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        store, rank, _ = next(rendezvous("env://", timeout=_TIMEOUT))
        store = attempt_store(store, rank, size)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
        everyone = World(everyone=Group(rank, size, dist.group.WORLD))
        _check_equal(everyone.gather_texts(json.dumps(given, default=str)))
        world = make_world(mesh, rank)
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ResourceError(f"the {size} processes cannot connect ({reason})") from None
    yield world
    # Not after an error: other processes may have ended, and this call would wait for them.
    dist.destroy_process_group()


def _check_equal(arguments: list[str]) -> None:
    """Raise a `UsageError` in every process if one of them has other arguments than rank zero."""
    first, *others = map(json.loads, arguments)
    for rank, other in enumerate(others, start=1):
        for name in first | other:
            if (ours := other.get(name)) != (expected := first.get(name)):
                raise UsageError(
                    f"process {rank} has {name} {ours}, but process 0 has {expected}; "
                    "start all processes with the same command"
                )


def attempt_store(store: Store, rank: int, size: int) -> Store:
    """A part of the store for this attempt to train, without keys of earlier attempts.

    torchrun restarts processes but keeps its store, with the addresses of the ended processes.
    So rank zero counts the attempts. Every other process registers under a new random name and
    waits until rank zero replies to this name with the number of the attempt.
    """
    if rank:
        name = uuid.uuid4().hex
        store.set(f"name/{rank}", name)
        attempt = int(store.get(f"reply/{name}"))
        store.set(f"ready/{attempt}/{rank}", "")
        return PrefixStore(f"attempt/{attempt}", store)
    attempt, missing = store.add("attempts", 1), set(range(1, size))
    end = time.monotonic() + _TIMEOUT.total_seconds()
    while missing:
        if time.monotonic() > end:
            raise RuntimeError(f"{len(missing)} of them did not start")
        for other in list(missing):
            if store.check([f"ready/{attempt}/{other}"]):
                missing.remove(other)
            elif store.check([f"name/{other}"]):
                store.set(f"reply/{store.get(f'name/{other}').decode()}", str(attempt))
        time.sleep(_POLL_SECONDS)
    return PrefixStore(f"attempt/{attempt}", store)


def make_world(mesh: Mesh, rank: int) -> World:
    """The world of one rank; every process calls this, in the same order of meshes.

    Processes with the same rows have neighbouring ranks, so they tend to be on one machine: they
    exchange the gradient of every row, which is most of the traffic.
    """
    rows, batch = range(mesh.rows), range(mesh.batch)
    return World(
        _group([[row * mesh.batch + column for row in rows] for column in batch], rank),
        _group([[row * mesh.batch + column for column in batch] for row in rows], rank),
        _group([list(range(mesh.size))], rank),
    )


def _group(all_ranks: list[list[int]], rank: int) -> Group:
    """Create all groups, since every process must, and return that of `rank`."""
    own = NO_GROUP
    for ranks in all_ranks:
        if len(ranks) > 1:
            processes = dist.new_group(ranks, timeout=_TIMEOUT)
            if rank in ranks:
                own = Group(ranks.index(rank), len(ranks), processes)
    return own


class StepDecision:
    """What all processes do after a step: stop if any of them received a signal, or save.

    With several processes the decision of one step takes effect after the next step, so that
    no process waits for it.
    """

    def __init__(self, world: World, stopped_by: Callable[[], int]) -> None:
        self.world, self._stopped_by = world, stopped_by
        self._number, self._pending = torch.tensor(0), Pending()

    def __call__(self, is_due: bool) -> tuple[int, bool]:
        """A signal number or 0, and whether to save; `is_due` of rank zero counts."""
        signal_number = self._stopped_by()
        if self.world.size == 1:
            return signal_number, is_due
        self._pending.wait()
        decision = int(self._number)
        # A save that is about to happen is not requested again.
        save = is_due and self.world.is_rank_zero and decision < _SAVE
        self._number = torch.tensor(signal_number + _SAVE * save)
        self._pending = self.world.everyone.start_max(self._number)
        return decision % _SAVE, decision >= _SAVE


def n_processes() -> int:
    """The number of processes that torchrun started together."""
    if not (size := _launcher_number("WORLD_SIZE", 1)):
        raise UsageError(f"WORLD_SIZE is 0; {_TORCHRUN}")
    return size


def is_rank_zero() -> bool:
    rank, size = _launcher_number("RANK", 0), n_processes()
    if rank >= size:
        raise UsageError(f"RANK is {rank}, but WORLD_SIZE is {size}; {_TORCHRUN}")
    return rank == 0


def may_restart() -> bool:
    """Whether torchrun restarts the processes after a failure."""
    return _launcher_number("TORCHELASTIC_MAX_RESTARTS", 0) > 0


def _launcher_number(variable: str, default: int) -> int:
    """A number that torchrun sets for its processes."""
    text = os.environ.get(variable, str(default))
    if not re.fullmatch("[0-9]{1,9}", text):
        raise UsageError(f"{variable} is {printable(text)}, not a number; {_TORCHRUN}")
    return int(text)
