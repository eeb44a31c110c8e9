"""The sets known by name: where each is looked for, and how it is known to be the right one.

`countries` and `countries-hard` lie in the package. The five benchmarks are looked for in
$ALLNEG_DATA, then in the cache ($ALLNEG_HOME, or the user's cache folder), each as a folder NAME
or an archive NAME.tar.xz; what is nowhere is fetched from its public origin into the cache.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from allneg.errors import DataError
from allneg.graph import benchmarks
from allneg.graph.archive import archive_files
from allneg.graph.benchmarks import DATASETS, Dataset
from allneg.graph.content import file_sha256
from allneg.graph.fetch import fetch_folder
from allneg.graph.files import TripleFile, folder_files
from allneg.paths import cache_folder

EMBEDDED = {"countries": "plain", "countries-hard": "hard"}
KNOWN_NAMES = (*EMBEDDED, *DATASETS)


def embedded(name: str) -> Traversable | None:
    """The folder of a set that lies in the package, or None."""
    return files("allneg.graph") / "countries" / EMBEDDED[name] if name in EMBEDDED else None


def find_dataset(name: str) -> tuple[Path, list[str]]:
    """A benchmark's folder or archive, checked and fetched if need be, and notes.

    What $ALLNEG_DATA holds under the name must be the benchmark, or it is a `DataError`: a number
    on `fb15k` has to mean FB15k. What the cache holds and is not it is fetched again.
    """
    own = os.environ.get("ALLNEG_DATA")
    for path in _candidates(Path(own), name) if own else ():
        wrong = _wrong(name, path)
        if wrong:
            raise DataError(
                f"{path}: not the published {name}: {wrong}; take it out of ALLNEG_DATA, or "
                "read it by its path"
            )
        return path, []
    cache = cache_folder()
    damaged = []
    for path in _candidates(cache, name):
        wrong = _wrong(name, path)
        if not wrong:
            return path, []
        damaged.append(f"{path}: damaged, or of another version ({wrong})")
    try:
        return _fetch(name, cache), [f"{text}; fetched again" for text in damaged]
    except DataError as problem:
        raise DataError("\n".join([*damaged, str(problem)])) from None


def place(name: str) -> str | None:
    """Where a set lies now, unchecked, or None."""
    if name in EMBEDDED:
        return "in the package"
    own = os.environ.get("ALLNEG_DATA")
    found = _candidates(Path(own), name) if own else []
    found = found or _candidates(cache_folder(), name)
    return str(found[0]) if found else None


def _candidates(folder: Path, name: str) -> list[Path]:
    unpacked, archive = folder / name, folder / f"{name}.tar.xz"
    return [*([unpacked] if unpacked.is_dir() else []), *([archive] if archive.is_file() else [])]


def _wrong(name: str, path: Path) -> str | None:
    """Why what lies at `path` is not the benchmark, or None."""
    dataset = DATASETS[name]
    try:
        if path.is_dir():
            return _wrong_files(dataset, folder_files(path, str(path)))
        if file_sha256(path) == dataset.archive_sha256:
            return None
        # Packed anew, perhaps: then the content decides.
        with archive_files(path) as members:
            return _wrong_files(dataset, members)
    except (DataError, OSError) as problem:
        return str(problem)


def _wrong_files(dataset: Dataset, found: Mapping[str, TripleFile]) -> str | None:
    for split, content in dataset.files.items():
        if split not in found:
            return f"it has no {split}"
        wrong = content.wrong(found[split])
        if wrong:
            return f"{split}: {wrong}"
    return None


def _fetch(name: str, cache: Path) -> Path:
    dataset = DATASETS[name]
    urls = {
        f"{split}.txt": f"{benchmarks.ORIGIN}/{dataset.origin}/{split}.txt"
        for split in dataset.files
    }
    return fetch_folder(name, urls, cache, partial(_wrong, name))
