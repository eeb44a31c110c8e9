"""Where the service listens."""

from __future__ import annotations

import socket

from allneg.errors import RecipeError


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; a `RecipeError` when the port is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Named TCP in full, or asyncio leaves its delay on and each answer waits 40 ms.
        found = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise RecipeError(f"--host {host}: cannot be listened on ({error})") from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        text = f"port {port} on {host}: {error.strerror}; choose another --port"
        raise RecipeError(text) from None
    return found
