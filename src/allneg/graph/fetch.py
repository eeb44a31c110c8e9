"""Files from the web into the cache: all of them, checked, or none."""

from __future__ import annotations

import http.client
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from allneg.errors import DataError, ResourceError

_SECONDS = 30  # without a byte
_TRIES = 3  # each goes on where the last was cut off
_BLOCK = 1 << 18
_MOST_BYTES = 1 << 30  # a file


def fetch_folder(
    name: str,
    urls: Mapping[str, str],
    cache: Path,
    wrong: Callable[[Path], str | None],
) -> Path:
    """The folder `cache/name` with each file of `urls`, once `wrong` finds nothing amiss in it.

    Only one process fetches; the others wait for it. Files grow in a folder beside, where a
    later call finds what an interrupted one has got.
    """
    # Imported here: it brings asyncio along, which only a download should wait for.
    from filelock import FileLock

    target, parts = cache / name, cache / f".{name}.parts"
    if is_offline() and (not target.is_dir() or wrong(target)):
        raise DataError(
            f"{name} would have to be fetched from {_host(urls)}, and ALLNEG_OFFLINE forbids it.\n"
            f"Put {name}.tar.xz into a folder and set ALLNEG_DATA to that folder"
        )
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f".{name}.lock"):
            if target.is_dir() and not wrong(target):
                return target  # by another process, while this one waited
            parts.mkdir(exist_ok=True)
            resumed = any(parts.iterdir())
            _fetch_all(name, urls, parts)
            problem = wrong(parts)
            if problem and resumed:
                # What was there may have been the beginning of something else.
                _empty(parts)
                _fetch_all(name, urls, parts)
                problem = wrong(parts)
            if problem:
                _empty(parts)
                raise DataError(
                    f"{name}: what came from {_host(urls)} is not the published set: {problem}; "
                    "nothing was kept. Try again later, or put the set into ALLNEG_DATA"
                )
            shutil.rmtree(target, ignore_errors=True)
            parts.rename(target)
    except OSError as error:
        raise ResourceError(
            f"{cache}: cannot be written ({error.strerror or error}); "
            "make room, or set ALLNEG_HOME to another folder"
        ) from None
    return target


def is_offline() -> bool:
    return os.environ.get("ALLNEG_OFFLINE", "0") not in ("", "0")


def _fetch_all(name: str, urls: Mapping[str, str], folder: Path) -> None:
    for file, url in urls.items():
        _fetch(name, url, folder / file)


def _fetch(name: str, url: str, target: Path) -> None:
    """One whole file at `target`; what is fetched so far lies in `target` with .part behind."""
    if target.exists():
        return  # whole, from an earlier call; the check of the folder has the last word
    part = target.with_name(target.name + ".part")
    for _ in range(_TRIES):
        cut = _go_on(name, url, part)
        if cut is None:
            part.rename(target)
            return
    raise _failure(name, url, f"{cut}; what came is kept, and the next try goes on from there")


def _go_on(name: str, url: str, part: Path) -> str | None:
    """Fetch what `part` lacks; how it was cut off, or None."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity", "User-Agent": "allneg"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        answer = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=_SECONDS
        )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:
            # The part is as long as the file, or longer: it began as something else.
            part.unlink()
            return _go_on(name, url, part)
        raise _failure(name, url, f"{error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _failure(name, url, str(getattr(error, "reason", error))) from None
    with answer:
        place = answer.headers.get("Content-Range", "")
        goes_on = answer.status == 206 and place.startswith(f"bytes {have}-")
        try:
            with part.open("ab" if goes_on else "wb") as out:
                return _pour(answer, out)
        except _TooLarge as large:
            part.unlink()
            raise _failure(name, url, f"{large}; nothing was kept") from None


class _TooLarge(Exception):
    pass


def _pour(answer: http.client.HTTPResponse, out: IO[bytes]) -> str | None:
    length = answer.headers.get("Content-Length") or ""
    expected = int(length) if length.isdecimal() else None
    got = 0
    while True:
        try:
            block = answer.read(_BLOCK)
        except (OSError, http.client.HTTPException) as error:
            return f"cut off after {got:,} bytes ({error})"
        if not block:
            break
        got += len(block)
        if out.tell() + len(block) > _MOST_BYTES:
            raise _TooLarge(f"it has more than {_MOST_BYTES:,} bytes")
        out.write(block)
    if expected is not None and got < expected:
        return f"cut off: {got:,} of {expected:,} bytes came"
    return None


def _failure(name: str, url: str, reason: str) -> DataError:
    return DataError(
        f"{name} could not be fetched from {url}: {reason}.\n"
        f"Try again, or put {name}.tar.xz into a folder and set ALLNEG_DATA to that folder"
    )


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _host(urls: Mapping[str, str]) -> str:
    return urllib.parse.urlsplit(next(iter(urls.values()))).netloc
