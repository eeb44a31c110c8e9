"""`read_graph`: a known name, a folder, an archive or one file of triples → a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from allneg.errors import DataError, close_names
from allneg.graph.archive import archive_files, archive_suffix
from allneg.graph.cached import cached_graph
from allneg.graph.clean import cleaned
from allneg.graph.datasets import KNOWN_NAMES, PACKAGED, find_dataset, packaged_folder
from allneg.graph.files import TripleFile, folder_files, one_file
from allneg.graph.graph import Graph
from allneg.graph.numbering import read_in_memory, read_on_disk
from allneg.recipe import Data

_DEFAULTS = Data()
_LARGE = 1 << 28  # bytes of text; larger texts are stored on disk by default


def read_graph(source: str | Path, settings: Data = _DEFAULTS) -> Graph:
    """The graph of a known name, a folder, an archive, or one file of triples.

    A folder or an archive contains train, and optionally valid and test, in one of the FORMATS
    of allneg.graph.files. One file is split by `settings`. Names are kept exactly; ids follow
    their first appearance, train first. The graph's `notes` report what was changed or looks
    unusual. A known name means that dataset; write ./NAME for a folder of the same name. The
    ids and names of a large text stay on disk (`data.store`); they are the same.
    """
    if isinstance(source, str) and source in KNOWN_NAMES:
        if source in PACKAGED:
            return _graph(source, folder_files(packaged_folder(source), source), settings)
        path, notes = find_dataset(source)
        graph = _read_path(path, source, settings)
        return replace(graph, notes=(*notes, *graph.notes))
    path = Path(source)
    if path.suffix == ".toml" and path.is_file():
        raise DataError(f"{path}: TOML is not a format of triples; pass a recipe with --recipe")
    if path.is_dir() or path.is_file():
        return _read_path(path, path.resolve().name, settings)
    if path.exists():
        raise DataError(f"{path}: neither a file nor a folder")
    raise DataError(
        f"{source}: no such file or folder, and no known dataset of that name"
        f"{close_names(str(source), KNOWN_NAMES)}; known: {', '.join(KNOWN_NAMES)}"
    )


def _read_path(path: Path, name: str, settings: Data) -> Graph:
    if path.is_dir():
        return _graph(name, folder_files(path, str(path)), settings)
    if archive_suffix(path):
        with archive_files(path) as files:
            return _graph(name, files, settings)
    return _graph(name, {"": one_file(path)}, settings)


def _graph(name: str, files: Mapping[str, TripleFile], settings: Data) -> Graph:
    large = sum(file.n_bytes for file in files.values()) >= _LARGE
    if settings.store == "memory" or (settings.store == "auto" and not large):
        return cleaned(name, *read_in_memory(files, settings), settings)
    return cached_graph(
        name,
        files,
        settings,
        lambda folder: cleaned(name, *read_on_disk(files, settings, folder), settings),
    )
