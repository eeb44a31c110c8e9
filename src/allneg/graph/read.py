"""Text → ids: `read_graph` takes a name, a folder, an archive or one file of triples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from allneg.errors import DataError, close_names, counted
from allneg.graph.archive import archive_files, is_archive
from allneg.graph.cached import cached_graph
from allneg.graph.datasets import KNOWN_NAMES, embedded, find_dataset
from allneg.graph.duplicates import find_duplicates
from allneg.graph.files import TripleFile, folder_files, one_file, refuse_if_empty
from allneg.graph.graph import SPLITS, Graph, Triples
from allneg.graph.lines import Ids, read_lines
from allneg.graph.mapped import without_rows
from allneg.graph.names import name_notes
from allneg.graph.order import order_notes
from allneg.graph.spilled import read_spilled
from allneg.graph.split import renumbered, split_triples
from allneg.graph.vocabulary import Vocabulary
from allneg.recipe import Data

_USUAL = Data()
_LARGE = 1 << 28  # bytes of text, from which on ids are put on the disk unless settings say


def read_graph(source: str | Path, settings: Data = _USUAL) -> Graph:
    """The graph of a known set's name, a folder, an archive, or one file of triples.

    A folder or an archive (.tar.xz, .tar.gz, .tgz, .zip) holds train, valid and test as .txt,
    .tsv or .csv, perhaps with .gz or .xz; valid and test may be missing. One file is split by
    `settings`. Names are kept exactly; ids follow their first appearance, train first. What was
    mended or looks odd is in the graph's `notes`. A text that is a known set's name means that
    set; write ./NAME for a folder of the same name. The ids and names of a large text stay on the
    disk (`data.store`), and are the same.
    """
    if isinstance(source, str) and source in KNOWN_NAMES:
        return _read_known(source, settings)
    path = Path(source)
    if path.suffix == ".toml" and path.is_file():
        raise DataError(f"{path}: no triples, as it is TOML; a recipe stands after --recipe")
    if path.is_dir() or path.is_file():
        return _read_path(path, path.resolve().name, settings)
    if path.exists():
        raise DataError(f"{path}: neither a file nor a folder")
    raise DataError(
        f"{source}: no such file or folder, and no known set of that name"
        f"{close_names(str(source), KNOWN_NAMES)}; known: {', '.join(KNOWN_NAMES)}"
    )


def _read_known(name: str, settings: Data) -> Graph:
    folder = embedded(name)
    if folder is not None:
        return _graph(name, folder_files(folder, name), settings)
    path, notes = find_dataset(name)
    graph = _read_path(path, name, settings)
    return replace(graph, notes=(*notes, *graph.notes))


def _read_path(path: Path, name: str, settings: Data) -> Graph:
    if path.is_dir():
        return _graph(name, folder_files(path, str(path)), settings)
    if is_archive(path):
        with archive_files(path) as files:
            return _graph(name, files, settings)
    return _graph(name, {"": one_file(path)}, settings)


def _graph(name: str, files: Mapping[str, TripleFile], settings: Data) -> Graph:
    large = sum(file.about_bytes for file in files.values()) >= _LARGE
    if settings.store == "memory" or (settings.store == "auto" and not large):
        return _mended(name, *_read(files, settings), settings)
    return cached_graph(
        name,
        files,
        settings,
        lambda folder: _mended(name, *read_spilled(files, settings, folder), settings),
    )


def _read(
    files: Mapping[str, TripleFile], settings: Data
) -> tuple[dict[str, Triples], Vocabulary, list[str]]:
    """Each split's triples, all names, and notes."""
    entities, relations = Ids(), Ids()
    splits: dict[str, Triples] = {}
    notes: list[str] = []
    for split, file in files.items():
        splits[split], found = read_lines(file, settings, entities, relations)
        refuse_if_empty(split, file, len(splits[split]))
        notes += found
    return splits, Vocabulary(tuple(entities), tuple(relations)), notes


def _mended(
    name: str,
    splits: dict[str, Triples],
    vocabulary: Vocabulary,
    notes: list[str],
    settings: Data,
) -> Graph:
    """The graph of what was read, cut into splits and without what settings leave out."""
    notes = [*notes]
    if "" in splits:
        splits, found = split_triples(splits[""], vocabulary, settings)
        splits, vocabulary = renumbered(splits, vocabulary)
        notes += found
    empty = np.empty((0, 3), dtype=np.int64)
    train, valid, test = (splits.get(split, empty) for split in SPLITS)
    graph = Graph(name, vocabulary, train, valid, test)
    notes += order_notes(graph, settings.columns, name)
    notes += [f"{name}: {split} is empty" for split in SPLITS if not len(graph.split(split))]
    for mend in (_without_duplicates, _without_unseen):
        graph, found = mend(graph, settings)
        notes += found
    notes += [f"{name}: {note}" for note in name_notes(graph.vocabulary)]
    return replace(graph, notes=tuple(notes))


def _without_duplicates(graph: Graph, settings: Data) -> tuple[Graph, list[str]]:
    """The graph with each triple once a split, unless settings keep them; overlaps are noted."""
    found, notes, changed = find_duplicates(graph), [], {}
    for split, places in found.copies.items():
        if len(places):
            kept = settings.keep_duplicates
            notes.append(duplicates_note(graph.name, len(places), split, kept=kept))
            if not kept:
                changed[split] = without_rows(graph.split(split), places)
    for (one, other), shared in found.shared.items():
        if shared:
            said = f"{counted(shared, 'triple')} {'is' if shared == 1 else 'are'}"
            notes.append(f"{graph.name}: {said} in both {one} and {other}")
    return _with_splits(graph, changed), notes


def duplicates_note(name: str, count: int, split: str, kept: bool) -> str:
    said = f"{name}: {counted(count, 'duplicate triple')} in {split}"
    return f"{said} {'is' if count == 1 else 'are'} {'kept' if kept else 'left out'}"


def _without_unseen(graph: Graph, settings: Data) -> tuple[Graph, list[str]]:
    """Counts names that occur in valid or test only; leaves their triples out if settings say."""
    # Train is read first, so that its names are the first ones.
    n_entities = int(max(graph.train[:, 0].max(), graph.train[:, 2].max())) + 1
    n_relations = int(graph.train[:, 1].max()) + 1
    new_entities, new_relations = graph.n_entities - n_entities, graph.n_relations - n_relations
    if not new_entities and not new_relations:
        return graph, []
    changed, counts = {}, []
    for split in ("valid", "test"):
        head, relation, tail = graph.split(split).T
        seen = (head < n_entities) & (relation < n_relations) & (tail < n_entities)
        changed[split] = graph.split(split)[seen]
        counts.append(f"{int((~seen).sum()):,} {split}")
    said = (
        f"{graph.name}: {counted(new_entities, 'entity')} and "
        f"{counted(new_relations, 'relation')} are not in train; "
        f"they touch {' and '.join(counts)} triples, "
    )
    if not settings.drop_unseen:
        return graph, [said + "which are kept"]
    kept = Vocabulary(
        graph.vocabulary.entities[:n_entities], graph.vocabulary.relations[:n_relations]
    )
    return replace(_with_splits(graph, changed), vocabulary=kept), [
        said + "which are left out, names and triples (data.drop_unseen)"
    ]


def _with_splits(graph: Graph, changed: Mapping[str, Triples]) -> Graph:
    splits = {split: changed.get(split, graph.split(split)) for split in SPLITS}
    return replace(graph, train=splits["train"], valid=splits["valid"], test=splits["test"])
