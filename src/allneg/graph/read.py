"""Files, folders, archives, URLs and objects with triples → a graph."""

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from allneg.errors import DataError, OutOfMemoryError, close_names, printable
from allneg.graph.clean import cleaned
from allneg.graph.datasets import KNOWN_NAMES, PACKAGED, find_dataset
from allneg.graph.files import NAMES, Files, folder_files, split_files
from allneg.graph.graph import Graph
from allneg.graph.mapped import cached_graph
from allneg.graph.memory import object_files, read_given_ids
from allneg.graph.number import read_files
from allneg.graph.urls import fetched, is_url
from allneg.recipe import Data, Recipe

_DEFAULTS = Data()
_LARGE = 1 << 28  # bytes of text; larger texts are stored on disk by default
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def read_graph(
    source: Any, settings: Data | Iterable[str] | Mapping[str, object] = _DEFAULTS
) -> Graph:
    """The graph of a known name, a path, a URL, or triples in memory.

    A path is a folder, an archive, or one file of triples, in one of the FORMATS of
    allneg.graph.files. A folder or an archive contains train, and optionally valid and test. In
    memory, triples are a list of (head, relation, tail), an array, a data frame or another Arrow
    table, or a dict of those by split. One file, table or list is split by `settings`. Names are
    kept exactly; ids are in the order of first appearance, train first. A known name means that
    dataset; write ./NAME for a folder of the same name. The graph's `notes` report what was
    changed or looks unusual. A `Graph` is returned as it is. `settings` are those of `train` that
    begin with data., such as {"data.columns": "who,what,whom"}.
    """
    if isinstance(source, Graph):
        return source
    if not isinstance(settings, Data):
        settings = Recipe().with_settings(settings).data
    try:
        if not isinstance(source, str | os.PathLike):
            return _read_object(source, settings)
        return _read_path(source, settings)
    except MemoryError:
        less = "" if settings.store == "disk" else ", or add `--set data.store=disk`"
        raise OutOfMemoryError(
            f"{source_name(source)}: out of memory while reading the triples; "
            f"free some memory{less}"
        ) from None


def source_name(source: Any) -> str:
    """What a recipe calls its data: the name or path, or the type of an object in memory."""
    if isinstance(source, str | os.PathLike):
        return str(source)
    return source.name if isinstance(source, Graph) else type(source).__name__


def check_source(source: Any) -> None:
    """Raise a `UsageError` unless `source` may be read."""
    if not isinstance(source, str | os.PathLike | Graph):
        object_files(source)


def _read_object(source: Any, settings: Data) -> Graph:
    files = object_files(source)
    if all(kind in files for kind in NAMES):
        read = read_given_ids(source)
    else:
        read = read_files(files, settings)  # type: ignore[arg-type]
    return cleaned(source_name(source), read, settings)


def _read_path(source: str | os.PathLike[str], settings: Data) -> Graph:
    if isinstance(source, str) and source in KNOWN_NAMES:
        if source in PACKAGED:
            return _graph(source, folder_files(PACKAGED[source], source), settings)
        path, notes = find_dataset(source)
        with split_files(path) as files:
            graph = _graph(source, files, settings)
        return replace(graph, notes=(*notes, *graph.notes))
    if isinstance(source, str) and is_url(source):
        path, note = fetched(source)
        with split_files(path) as files:
            graph = _graph(path.name, files, settings)
        return replace(graph, notes=(note, *graph.notes))
    path = Path(source)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, OSError) and error.errno not in _MISSING:
            raise DataError(f"{source}: cannot be read ({error.strerror})") from None
        raise DataError(
            f"{printable(str(source), 200)}: no such file or folder, and no known dataset of that "
            f"name{close_names(str(source), KNOWN_NAMES)}; known: {', '.join(KNOWN_NAMES)}"
        ) from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DataError(f"{path}: neither a file nor a folder")
    if path.suffix == ".toml" and path.is_file():
        raise DataError(f"{path}: TOML is not a format of triples; pass a recipe with --recipe")
    with split_files(path) as files:
        return _graph(path.resolve().name, files, settings)


def _graph(name: str, files: Files, settings: Data) -> Graph:
    def read(folder: Path | None = None) -> Graph:
        return cleaned(name, read_files(files, settings, folder), settings)

    large = sum(file.n_bytes for parts in files.values() for file in parts) >= _LARGE
    if settings.store == "memory" or (settings.store == "auto" and not large):
        return read()
    return cached_graph(name, files, settings, read)
