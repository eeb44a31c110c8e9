"""Large graphs as ids in the cache: read from text once, then mapped from disk.

The folder of a graph is named after its content and the settings of reading. It appears complete
or not at all. Its manifest has the SHA-256 of every file, which is checked on every use.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from allneg.errors import DataError, RecipeError
from allneg.graph.files import TripleFile, file_sha256
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.mapped import MappedNames, append_names, map_triples, write_triples
from allneg.graph.vocabulary import Vocabulary
from allneg.paths import cache_folder, locked, remove, sync
from allneg.recipe import Data

_FORMAT_VERSION = 3
_TEMPORARY = ".tmp-"  # only our own leftovers begin like this
_MANIFEST = "manifest.json"
_NAMES = ("entities.txt", "relations.txt")
_IDS = tuple(f"{split}.ids" for split in SPLITS)
_FILES = (*_NAMES, *_IDS)


def cached_graph(
    name: str, files: Mapping[str, TripleFile], settings: Data, read: Callable[[Path], Graph]
) -> Graph:
    """The graph of these files, mapped from the cache; `read` makes it in a given folder.

    One process reads the text; others wait for it.
    """
    try:
        graphs = cache_folder() / "graphs"
    except RecipeError as error:
        raise RecipeError(f"{error}, or read into memory with data.store=memory") from None
    target = graphs / _key(name, files, settings)
    reason = "" if settings.store == "disk" else "a large text, so "
    notes = [f"{name}: {reason}its ids are stored in {target} and mapped from there (data.store)"]
    found = _load(target)
    if isinstance(found, str):
        if os.path.lexists(target):
            notes.append(f"{target}: damaged ({found}), so the text was read again")
        with locked(graphs, ".lock"):
            for leftover in graphs.glob(_TEMPORARY + "*"):  # of a killed process
                remove(leftover)
            found = _load(target)  # another process may have finished while this one waited
            if isinstance(found, str):
                _make(target, read, lambda: _key(name, files, settings))
                found = _load(target)
    if isinstance(found, str):
        raise DataError(f"{target}: damaged again right after it was written ({found})")
    return replace(found, notes=(*notes, *found.notes))


def _key(name: str, files: Mapping[str, TripleFile], settings: Data) -> str:
    """A hash of the text and of how it is read."""
    options = asdict(settings)
    del options["name"], options["store"]
    # Notes contain file names, so the same text under another path is another graph.
    texts = [(split, file.where, file.suffix, file.sha256()) for split, file in files.items()]
    content = json.dumps([_FORMAT_VERSION, name, texts, options], sort_keys=True)
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


def _make(target: Path, read: Callable[[Path], Graph], key: Callable[[], str]) -> None:
    """Read the text and move the finished folder to `target`, or leave nothing."""
    folder = target.with_name(_TEMPORARY + target.name)
    try:
        (folder / "work").mkdir(parents=True)
        _write(folder, read(folder / "work"), target.name)
        if key() != target.name:
            raise DataError(f"{target}: the text changed while it was read; try again")
        remove(folder / "work")
        remove(target)
        os.rename(folder, target)
        sync(target.parent)
    finally:
        remove(folder)


def _write(folder: Path, graph: Graph, key: str) -> None:
    append_names(folder / _NAMES[0], graph.vocabulary.entities)
    append_names(folder / _NAMES[1], graph.vocabulary.relations)
    for file, split in zip(_IDS, SPLITS, strict=True):
        write_triples(folder / file, graph.split(split))
    manifest = {
        "format_version": _FORMAT_VERSION,
        "key": key,
        "name": graph.name,
        "notes": graph.notes,
        "sha256": {file: file_sha256(folder / file) for file in _FILES},
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))
    for file in (*_FILES, _MANIFEST, "."):
        sync(folder / file)


def _load(folder: Path) -> Graph | str:
    """The graph in a folder, or what is wrong with the folder."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        if manifest["format_version"] != _FORMAT_VERSION or manifest["key"] != folder.name:
            return f"{_MANIFEST} is of another graph or version"
        for file in _FILES:
            if manifest["sha256"][file] != file_sha256(folder / file):
                return f"{file} has changed"
        entities, relations = (MappedNames.open(folder / file) for file in _NAMES)
        train, valid, test = (map_triples(folder / file) for file in _IDS)
        vocabulary, notes = Vocabulary(entities, tuple(relations)), tuple(manifest["notes"])
        return Graph(manifest["name"], vocabulary, train, valid, test, notes)
    except OSError as error:
        return f"{Path(error.filename or folder).name}: {error.strerror}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"{_MANIFEST} is not valid"
