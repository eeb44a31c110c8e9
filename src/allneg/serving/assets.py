"""The page's files, read once: nothing else is ever opened for a client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

_KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
}


@dataclass(frozen=True)
class Asset:
    content: bytes
    kind: str  # the media type


def read_assets() -> dict[str, Asset]:
    """Every file of the page by its exact name, such as `app.js`."""
    return dict(_read(resources.files("allneg.serving") / "static", ""))


def _read(folder: Traversable, inside: str) -> Iterator[tuple[str, Asset]]:
    for each in folder.iterdir():
        name = inside + each.name
        if each.is_dir():
            yield from _read(each, name + "/")
        elif (kind := _KINDS.get(each.name.rpartition(".")[2])) is not None:
            yield name, Asset(each.read_bytes(), kind)
