"""Datasets with known names: where they are, how they are checked, how they are downloaded.

`countries` and `countries-hard` are part of the package. A benchmark is searched in $ALLNEG_DATA,
then in the cache ($ALLNEG_HOME, or the user's cache folder), as a folder NAME or an archive
NAME.tar.xz. If it is missing, it is downloaded from its public origin into the cache.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from allneg.errors import DataError
from allneg.graph import benchmarks
from allneg.graph.archive import archive_files
from allneg.graph.benchmarks import DATASETS, Dataset
from allneg.graph.files import TripleFile, file_sha256, folder_files
from allneg.paths import cache_folder, locked

PACKAGED = {"countries": "plain", "countries-hard": "hard"}
KNOWN_NAMES = (*PACKAGED, *DATASETS)
_TIMEOUT = 30  # seconds without a byte
_RETRIES = 2


def packaged_folder(name: str) -> Traversable:
    return files("allneg.graph") / "countries" / PACKAGED[name]


def find_dataset(name: str) -> tuple[Path, list[str]]:
    """The checked folder or archive of a benchmark, downloaded if necessary; and notes.

    A wrong file in $ALLNEG_DATA is a `DataError`, because a result on `fb15k` must mean FB15k.
    A wrong file in the cache is downloaded again.
    """
    for path in _in_allneg_data(name):
        problem = _problem(name, path)
        if problem:
            raise DataError(
                f"{path}: not the published {name}: {problem}; remove it from ALLNEG_DATA, or "
                "read it by its path"
            )
        return path, []
    cache, damaged = cache_folder(), []
    for path in _candidates(cache, name):
        problem = _problem(name, path)
        if not problem:
            return path, []
        damaged.append(f"{path}: damaged, or of another version ({problem})")
    try:
        return _download(name, cache), [f"{text}; downloaded again" for text in damaged]
    except DataError as error:
        raise DataError("\n".join([*damaged, str(error)])) from None


def dataset_location(name: str) -> str | None:
    """Where a dataset is now, unchecked, or None."""
    if name in PACKAGED:
        return "in the package"
    found = _in_allneg_data(name) or _candidates(cache_folder(), name)
    return str(found[0]) if found else None


def is_offline() -> bool:
    return os.environ.get("ALLNEG_OFFLINE", "0") not in ("", "0")


def _in_allneg_data(name: str) -> list[Path]:
    folder = os.environ.get("ALLNEG_DATA")
    return _candidates(Path(folder), name) if folder else []


def _candidates(folder: Path, name: str) -> list[Path]:
    unpacked, archive = folder / name, folder / f"{name}.tar.xz"
    return [*([unpacked] if unpacked.is_dir() else []), *([archive] if archive.is_file() else [])]


def _problem(name: str, path: Path) -> str | None:
    """Why a folder or an archive is not the benchmark, or None."""
    known = DATASETS[name]
    try:
        if path.is_dir():
            return _content_problem(known, folder_files(path, str(path)))
        if file_sha256(path) == known.archive_sha256:
            return None
        with archive_files(path) as members:  # it may have been packed again
            return _content_problem(known, members)
    except (DataError, OSError) as error:
        return str(error)


def _content_problem(known: Dataset, found: Mapping[str, TripleFile]) -> str | None:
    for split, content in known.files.items():
        problem = content.problem(found[split]) if split in found else "missing"
        if problem:
            return f"{split}: {problem}"
    return None


def _download(name: str, cache: Path) -> Path:
    """Download a benchmark into the cache: complete and checked, or not at all.

    One process downloads; others wait for it.
    """
    target, partial = cache / name, cache / f".{name}.partial"
    url = f"{benchmarks.ORIGIN}/{DATASETS[name].origin}/"
    if is_offline():
        raise DataError(
            f"{name} would have to be downloaded from {url}, and ALLNEG_OFFLINE forbids it.\n"
            f"Put {name}.tar.xz into a folder and set ALLNEG_DATA to that folder"
        )
    with locked(cache, f".{name}.lock"):
        if target.is_dir() and not _problem(name, target):
            return target  # another process downloaded it
        shutil.rmtree(partial, ignore_errors=True)
        try:
            _download_files(name, url, partial)
            problem = _problem(name, partial)
            if problem:
                raise DataError(
                    f"{name}: the files from {url} are not the published dataset: {problem}; "
                    "nothing was kept. Try again later, or put the dataset into ALLNEG_DATA"
                )
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target


def _download_files(name: str, url: str, folder: Path) -> None:
    instead = f"put {name}.tar.xz into a folder and set ALLNEG_DATA to that folder"
    try:  # only a download needs these packages
        import pooch
        from requests import RequestException
    except ModuleNotFoundError as error:
        raise DataError(f"to download {name}, install {error.name}; or {instead}") from None
    pooch.get_logger().setLevel("WARNING")
    headers = {"Accept-Encoding": "identity"}
    registry = {f"{split}.txt": None for split in DATASETS[name].files}
    downloads = pooch.create(folder, url, registry=registry, retry_if_failed=_RETRIES)
    for file in registry:
        # pooch reports each block to the progress bar, which is where an endless one stops.
        downloader = pooch.HTTPDownloader(_SizeLimit(), 1 << 18, timeout=_TIMEOUT, headers=headers)
        try:
            downloads.fetch(file, downloader=downloader)
        except (RequestException, ValueError, DataError) as error:
            # The cause of a failed connection is more readable than its wrapper.
            reason = getattr(error.args[0], "reason", error) if error.args else error
            raise DataError(
                f"{name} could not be downloaded from {url}{file}: {reason}.\n"
                f"Try again, or {instead}"
            ) from None


class _SizeLimit:
    """A silent progress bar for pooch that stops an endless download."""

    total = n_bytes = 0

    def update(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        if self.n_bytes > benchmarks.MOST_BYTES:
            raise DataError(f"it has more than {benchmarks.MOST_BYTES:,} bytes; nothing was kept")

    def reset(self) -> None:
        self.n_bytes = 0

    def close(self) -> None: ...
