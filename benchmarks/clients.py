"""Clients of the service, light enough to leave the CPU to what they ask."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlencode


@dataclass
class Timed:
    """What some clients saw of the service, together."""

    seconds: list[float] = field(default_factory=list)  # of each answer
    client_cpu: float = 0.0  # seconds, of all answers


def ask(port: int, paths: list[Iterator[str]], seconds: float, most: int) -> Timed:
    """A client for each of `paths`, one query after the other, until one limit is reached."""
    found, began = Timed(), time.process_time()
    asyncio.run(_ask(port, paths, seconds, most // len(paths), found))
    found.client_cpu = time.process_time() - began
    return found


def queries(seed: int, n_entities: int, n_relations: int) -> Iterator[str]:
    """The paths of ever new queries."""
    draw = random.Random(seed)
    while True:
        side = draw.choice(("head", "tail"))
        entity, relation = draw.randrange(n_entities), draw.randrange(n_relations)
        query = {side: f"entity {entity}", "relation": f"relation {relation}"}
        yield "/v1/predict?" + urlencode(query)


async def _ask(
    port: int, paths: list[Iterator[str]], seconds: float, each: int, found: Timed
) -> None:
    loop = asyncio.get_running_loop()
    end = time.perf_counter() + seconds
    clients = [_Client(own, end, each, found, loop.create_future()) for own in paths]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
    await asyncio.gather(*(client.done for client in clients))


@dataclass
class _Client(asyncio.Protocol):
    """A connection that stays open; asks again as soon as an answer is whole."""

    paths: Iterator[str]
    end: float
    left: int  # queries
    found: Timed
    done: asyncio.Future[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self.answer += data
        head, found, body = self.answer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.partition(b"content-length: ")[2].split(b"\r")[0]):
            return
        now = time.perf_counter()
        self.found.seconds.append(now - self.began)
        self.left -= 1
        if not head.startswith(b"HTTP/1.1 200 "):
            self.done.set_exception(RuntimeError(self.answer.decode()))
        elif self.left and now < self.end:
            self._next()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _next(self) -> None:
        self.answer = b""
        asked = f"GET {next(self.paths)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self.began = time.perf_counter()
        self.transport.write(asked)
