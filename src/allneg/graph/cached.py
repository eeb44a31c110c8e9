"""Graphs too large for memory, as ids in the cache: read from text once, and mapped after that.

A graph's folder is named by what was read and how, and appears whole; a manifest in it has the
size and SHA-256 of every file, which are looked at each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from allneg.errors import DataError, RecipeError, ResourceError
from allneg.graph.content import file_sha256, text_sha256
from allneg.graph.files import TripleFile
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.mapped import MappedNames, append_names, map_triples, write_triples
from allneg.graph.vocabulary import Vocabulary
from allneg.paths import cache_folder
from allneg.recipe import Data

_FORMAT_VERSION = 2
_TEMPORARY = ".tmp-"  # our own leftovers begin so, and may be swept
_MANIFEST = "manifest.json"
_NAMES = ("entities.txt", "relations.txt")


def cached_graph(
    name: str, files: Mapping[str, TripleFile], settings: Data, read: Callable[[Path], Graph]
) -> Graph:
    """The graph of these files, mapped from the cache; `read` makes it, in a folder it is given.

    Only one process reads at a time; the others wait for it.
    """
    # Imported here: it brings asyncio along, which only a large graph should wait for.
    from filelock import FileLock

    graphs = _folder()
    target = graphs / _key(name, files, settings)
    why = "" if settings.store == "disk" else "a large text, so "
    kept = f"{name}: {why}its ids are kept in {target} and mapped from there"
    wrong = _wrong(target) if os.path.lexists(target) else None
    try:
        if wrong or not target.exists():
            graphs.mkdir(parents=True, exist_ok=True)
            with FileLock(graphs / ".lock"):
                _sweep(graphs)
                if _wrong(target):  # else by another process, while this one waited
                    _make(target, read, lambda: _key(name, files, settings))
    except OSError as error:
        raise ResourceError(
            f"{graphs}: cannot be written ({error.strerror or error}); "
            "make room, or set ALLNEG_HOME to another folder"
        ) from None
    again = [f"{target}: damaged ({wrong}), so the text was read again"] if wrong else []
    graph = _open(target)
    return replace(graph, notes=(f"{kept} (data.store)", *again, *graph.notes))


def _folder() -> Path:
    try:
        return cache_folder() / "graphs"
    except ModuleNotFoundError:
        raise RecipeError(
            "the ids are kept in the cache, and nothing says where that is: set ALLNEG_HOME to a "
            "folder, or read into memory with data.store=memory"
        ) from None


def _key(name: str, files: Mapping[str, TripleFile], settings: Data) -> str:
    """One text for what was read and how."""
    how = asdict(settings)
    del how["name"], how["store"]
    # Notes name the files, so that a graph at another place is another one.
    what = [(split, file.where, file.separator, text_sha256(file)) for split, file in files.items()]
    said = json.dumps([_FORMAT_VERSION, name, what, how], sort_keys=True)
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()


def _make(target: Path, read: Callable[[Path], Graph], key: Callable[[], str]) -> None:
    """Read the text, and put the graph at `target` at once, or leave nothing."""
    work = target.with_name(_TEMPORARY + "work-" + target.name)
    whole = target.with_name(_TEMPORARY + target.name)
    try:
        work.mkdir()
        _write(whole, read(work), target.name)
        if key() != target.name:
            raise DataError(f"{target}: the text changed while it was read; try again")
        _remove(target)
        os.rename(whole, target)
        _sync(target.parent)
    finally:
        for each in (work, whole):
            _remove(each)


def _write(folder: Path, graph: Graph, key: str) -> None:
    folder.mkdir()
    names = graph.vocabulary.entities, graph.vocabulary.relations
    for file, some in zip(_NAMES, names, strict=True):
        append_names(folder / file, some)
    for split in SPLITS:
        write_triples(folder / f"{split}.ids", graph.split(split))
    proofs = {path.name: _proof(path) for path in sorted(folder.iterdir())}
    about = {"format_version": _FORMAT_VERSION, "key": key}
    manifest = {**about, "name": graph.name, "notes": graph.notes, "files": proofs}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))
    for path in (*folder.iterdir(), folder):
        _sync(path)


def _open(folder: Path) -> Graph:
    manifest = json.loads((folder / _MANIFEST).read_text())
    entities, relations = (MappedNames.open(folder / file) for file in _NAMES)
    vocabulary, notes = Vocabulary(entities, tuple(relations)), tuple(manifest["notes"])
    train, valid, test = (map_triples(folder / f"{split}.ids") for split in SPLITS)
    return Graph(manifest["name"], vocabulary, train, valid, test, notes)


def _wrong(folder: Path) -> str | None:
    """Why a folder is not a whole graph, or None."""
    wanted = {*_NAMES, *(f"{split}.ids" for split in SPLITS)}
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        for name in sorted(wanted):
            if manifest["files"][name] != _proof(folder / name):
                return f"{name} is not what was written"
        if manifest["format_version"] != _FORMAT_VERSION or not _says_all(manifest):
            return f"{_MANIFEST} does not say what this is"
        if manifest["key"] != folder.name:
            return f"{_MANIFEST} is of another graph"
    except OSError as error:
        return f"{Path(error.filename or folder).name}: {error.strerror}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"{_MANIFEST} does not say what this is"
    return None


def _says_all(manifest: Mapping[str, Any]) -> bool:
    name, notes = manifest["name"], manifest["notes"]
    listed = isinstance(notes, list) and all(isinstance(note, str) for note in notes)
    return isinstance(name, str) and listed


def _proof(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _sweep(graphs: Path) -> None:
    """Remove what a killed process was in the middle of writing. Whoever writes holds the lock."""
    for left in graphs.glob(_TEMPORARY + "*"):
        _remove(left)


def _remove(path: Path) -> None:
    """Whatever is there: a folder, a file, a link that leads nowhere."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
