"""Four real processes for tests, started once.

A task is a function whose first argument is the world it runs in. It runs in as many of the
processes as its mesh has.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import distributed as dist

from allneg.errors import AllnegError
from allneg.recipe import Mesh
from allneg.scoring.distributed import World
from allneg.training.launch import make_world
from processes import forks

SIZE = 4
SECONDS = 60


class Workers:
    """Four processes that wait for tasks."""

    def __init__(self) -> None:
        # Any free port.
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        context = forks("torch._dynamo")
        self._pipes, self._processes, self._meshes = [], [], {"rows=1"}
        for rank in range(SIZE):
            ours, theirs = context.Pipe()
            process = context.Process(target=_run_tasks, args=(rank, self._store.port, theirs))
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def __call__(self, mesh: str, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What `task(world, *arguments)` returns in every process of a mesh, by rank."""
        if mesh not in self._meshes:
            self._meshes.add(mesh)
            for pipe in self._pipes:
                pipe.send((mesh, None, ()))
        pipes = self._pipes[: Mesh.read(mesh).size]
        for pipe in pipes:
            pipe.send((mesh, task, arguments))
        assert all(pipe.poll(SECONDS) for pipe in pipes), "a process does not answer"
        answers = [pipe.recv() for pipe in pipes]
        for rank, (done, answer) in enumerate(answers):
            if not done:
                raise AssertionError(f"process {rank} of {mesh}:\n{answer}")
        return [answer for _, answer in answers]

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(SECONDS)


def _run_tasks(rank: int, port: int, pipe: Connection) -> None:
    gc.freeze()  # else garbage is looked for in all of torch again and again
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE)
    worlds: dict[str, World] = {"rows=1": World()}
    while (message := pipe.recv()) is not None:
        mesh, task, arguments = message
        if task is None:
            worlds[mesh] = make_world(Mesh.read(mesh), rank)
            continue
        try:
            pipe.send((True, task(worlds[mesh], *arguments)))
        except AllnegError as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))
        except Exception:
            pipe.send((False, traceback.format_exc()))
