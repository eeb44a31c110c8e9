"""Datasets with known names: where they are, how they are checked, how they are downloaded.

`countries` and `countries-hard` are part of the package. A benchmark is searched in $ALLNEG_DATA,
then in the cache ($ALLNEG_HOME, or the user's cache folder), as a folder NAME or an archive
NAME.tar.xz. If it is missing, it is downloaded from its public origin into the cache.
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from allneg.errors import DataError, printable
from allneg.graph.files import TripleFile, file_sha256, split_files
from allneg.paths import cache_folder, complete_folder, is_offline, locked

ORIGIN = (
    "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding/"
    "617062aaedf53bf4d6b44450a580a96dc30e0632/data"
)
MOST_BYTES = 1 << 30  # of a benchmark file
_PACKAGE = files("allneg.graph")
_COUNTRIES = _PACKAGE / "countries"
PACKAGED = {"countries": _COUNTRIES / "plain", "countries-hard": _COUNTRIES / "hard"}
_TIMEOUT = 30  # seconds without a byte
_RETRIES = 2


@dataclass(frozen=True)
class Content:
    """What is known about a file. All but `git_blob` are of the text with LF line ends."""

    lines: int
    sha256: str | None = None
    git_blob: str | None = None  # SHA-1 of b"blob SIZE\\0" and the content
    characters: int | None = None  # where no hash is known

    def problem(self, file: TripleFile) -> str | None:
        """What differs, or None. An unreadable file is a `DataError`."""
        with file.stream() as stream:
            blocks = iter(partial(stream.read, 1 << 20), b"")
            data = b"".join(islice(blocks, MOST_BYTES >> 20))
        text = data.replace(b"\r\n", b"\n") if b"\r" in data else data
        found = {
            "lines": text.count(b"\n"),
            "sha256": hashlib.sha256(text).hexdigest(),
            "git_blob": self.git_blob and _git_blob(data),
            "characters": self.characters and len(text.decode(errors="replace")),
        }
        for what, value in found.items():
            expected = getattr(self, what)
            if expected is not None and expected != value:
                return f"{what} should be {expected}, but is {value}"
        return None


def _git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Dataset:
    """A benchmark as published."""

    n_entities: int
    n_relations: int
    origin: str  # its folder below ORIGIN
    about: str
    files: Mapping[str, Content]  # by split
    archive_sha256: str | None = None  # of the usual NAME.tar.xz


def _dataset(files: Mapping[str, Any], **about: Any) -> Dataset:
    return Dataset(files={split: Content(**files[split]) for split in files}, **about)


_TABLES = tomllib.loads((_PACKAGE / "benchmarks.toml").read_text(encoding="utf-8"))
DATASETS = {name: _dataset(**table) for name, table in _TABLES.items()}
KNOWN_NAMES = (*PACKAGED, *DATASETS)


def find_dataset(name: str) -> tuple[Path, list[str]]:
    """The checked folder or archive of a benchmark, downloaded if necessary; and notes.

    A wrong file in $ALLNEG_DATA is a `DataError`, because a result on `fb15k` must mean FB15k.
    A wrong file in the cache is downloaded again.
    """
    for path in _candidates(os.environ.get("ALLNEG_DATA"), name):
        if problem := _problem(name, path):
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
    found = _candidates(os.environ.get("ALLNEG_DATA"), name) or _candidates(cache_folder(), name)
    return str(found[0]) if found else None


def _candidates(folder: str | Path | None, name: str) -> list[Path]:
    """The folder and the archive of a dataset, if they exist."""
    paths = (Path(folder, name), Path(folder, f"{name}.tar.xz")) if folder else ()
    return [path for path in paths if path.exists()]


def _problem(name: str, path: Path) -> str | None:
    """Why a folder or an archive is not the benchmark, or None."""
    known = DATASETS[name]
    try:
        if path.is_file() and file_sha256(path) == known.archive_sha256:
            return None
        with split_files(path) as found:  # an archive may have been packed again
            for split, content in known.files.items():
                problem = content.problem(found[split][0]) if split in found else "missing"
                if problem:
                    return f"{split}: {problem}"
    except (DataError, OSError) as error:
        return str(error)
    return None


def _download(name: str, cache: Path) -> Path:
    """Download a benchmark completely or not at all; other processes wait for the first."""
    target = cache / name
    url = f"{ORIGIN}/{DATASETS[name].origin}/"
    if is_offline():
        raise DataError(
            f"{name} would have to be downloaded from {url}, and ALLNEG_OFFLINE forbids it.\n"
            f"Put {name}.tar.xz into a folder and set ALLNEG_DATA to that folder"
        )
    with locked(cache, f".{name}.lock"):
        if target.is_dir() and not _problem(name, target):
            return target  # another process downloaded it
        with complete_folder(target) as folder:
            _download_files(name, url, folder)
            if problem := _problem(name, folder):
                raise DataError(
                    f"{name}: the files from {url} are not the published dataset: {problem}; "
                    "nothing was kept. Try again later, or put the dataset into ALLNEG_DATA"
                )
    return target


def _download_files(name: str, url: str, folder: Path) -> None:
    for split in DATASETS[name].files:
        try:
            download(f"{url}{split}.txt", folder / f"{split}.txt")
        except DataError as error:
            raise DataError(
                f"{name} could not be downloaded from {error}.\nTry again, or put {name}.tar.xz "
                "into a folder and set ALLNEG_DATA to that folder"
            ) from None


def download(url: str, path: Path) -> None:
    """Download a URL of https or http to a new file."""
    try:  # only a download needs these packages
        import pooch
        from requests import RequestException
    except ModuleNotFoundError as error:
        raise DataError(f"{url}: a download needs {error.name}; install {error.name}") from None
    pooch.get_logger().setLevel("WARNING")
    options = {
        "timeout": _TIMEOUT,
        "headers": {"Accept-Encoding": "identity"},
        "hooks": {"response": _check_redirect},  # called for each answer
    }
    downloads = pooch.create(
        path.parent, url, registry={path.name: None}, urls={path.name: url},
        retry_if_failed=_RETRIES,
    )  # fmt: skip
    # pooch reports each block to the progress bar, which is where an endless one stops.
    downloader = pooch.HTTPDownloader(_SizeLimit(), 1 << 18, **options)
    try:
        downloads.fetch(path.name, downloader=downloader)
    except (RequestException, ValueError, DataError) as error:
        # The cause of a failed connection is more readable than its wrapper.
        reason = getattr(error.args[0], "reason", error) if error.args else error
        raise DataError(f"{url}: {reason}") from None


def _check_redirect(response: Any, **_: object) -> None:
    """Raise a `DataError` if an answer redirects from https to anything else."""
    target = urljoin(response.url, response.headers.get("location", ""))
    if urlsplit(response.url).scheme == "https" != urlsplit(target).scheme:
        raise DataError(f"it redirects to {printable(target, 200)}, which is not https")


class _SizeLimit:
    """A silent progress bar for pooch that stops an endless download."""

    total = n_bytes = 0

    def update(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        if self.n_bytes > MOST_BYTES:
            raise DataError(f"it has more than {MOST_BYTES:,} bytes; nothing was kept")

    def reset(self) -> None:
        self.n_bytes = 0

    def close(self) -> None: ...
