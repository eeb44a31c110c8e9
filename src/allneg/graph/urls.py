"""Triples behind a URL: downloaded once into the cache, and checked on every use."""

import hashlib
import json
from pathlib import Path
from typing import Any

from allneg.errors import DataError, printable
from allneg.graph.datasets import download
from allneg.graph.files import file_sha256
from allneg.paths import cache_folder, complete_folder, is_offline, locked, sync

_MANIFEST = "manifest.json"


def is_url(source: str) -> bool:
    return "://" in source


def fetched(url: str) -> tuple[Path, str]:
    """The file or folder of a URL in the cache, and a note.

    Its folder is named after the URL, and appears complete or not at all.
    """
    downloads = cache_folder() / "urls"
    target = downloads / hashlib.sha256(url.encode()).hexdigest()[:32]
    name = url.rstrip("/").rpartition("/")[2].partition("?")[0] or "data"
    if not _is_complete(target):
        if is_offline():
            raise DataError(f"{url}: not in the cache, and ALLNEG_OFFLINE forbids downloads")
        with locked(downloads, ".lock"):
            if not _is_complete(target):
                _fetch(url, name, target)
    return target / name, f"{url}: read from {target / name}; delete it to download it again"


def _is_complete(folder: Path) -> bool:
    """Whether all files of a download have their SHA-256."""
    try:
        recorded = json.loads((folder / _MANIFEST).read_bytes())["sha256"]
        return bool(recorded) and recorded == _hashes(folder)
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in files
        if path.name != _MANIFEST
    }


def _fetch(url: str, name: str, target: Path) -> None:
    with complete_folder(target) as folder:
        if url.startswith(("http://", "https://")):
            download(url, folder / name)
        else:
            _copy(url, folder / name)
        manifest = {"url": url, "sha256": _hashes(folder)}
        (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))
        sync(folder / _MANIFEST)


def _copy(url: str, target: Path) -> None:
    """Copy a file or a folder of any file system that fsspec knows."""
    try:
        import fsspec
    except ModuleNotFoundError:
        raise DataError(f"{url}: needs fsspec, which is not installed") from None
    try:
        system, path = fsspec.core.url_to_fs(url)
        is_folder = system.isdir(path)
        files: dict[str, Any] = system.find(path, detail=True) if is_folder else {path: None}
        if not is_folder and not system.exists(path):
            raise DataError(f"{url}: no such file or folder")
        for source in files:
            inside = source.removeprefix(path).strip("/")
            if ".." in inside.split("/"):
                raise DataError(f"{url}: refused: {printable(inside)} leads outside of the folder")
            copy = target / inside if is_folder else target
            copy.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(source, str(copy))
    except (ImportError, ValueError) as error:  # a protocol that is unknown, or not installed
        raise DataError(f"{url}: cannot be opened ({error})") from None
    except OSError as error:
        raise DataError(f"{url}: cannot be read ({error.strerror or error})") from None
