"""Files of triples: their formats, and the splits in a folder or an archive."""

import errno
import hashlib
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Self, TypeAlias

from allneg.errors import DataError, printable
from allneg.graph.archives import (
    ARCHIVES,
    COMPRESSIONS,
    DAMAGE,
    Opener,
    Wrapper,
    compression,
    decompressed,
    limit_bytes,
    open_members,
)
from allneg.graph.blocks import Block, Found, keep_relations
from allneg.graph.graph import SPLITS
from allneg.graph.json_lines import read_json_lines
from allneg.graph.lines import read_lines
from allneg.graph.neo4j import neo4j_files
from allneg.graph.rdf import read_n_triples, read_rdf
from allneg.graph.tables import read_feather, read_parquet
from allneg.recipe import Data

# A reader yields the names in a stream; `Found` gets what else it finds:
# (stream, file name for messages, settings, found).
Reader: TypeAlias = Callable[[IO[bytes], str, Data, Found], Iterator[Block]]

# To add a format, write its reader and add its suffix here.
FORMATS: dict[str, Reader] = {
    ".txt": partial(read_lines, "\t"),
    ".tsv": partial(read_lines, "\t"),
    ".csv": partial(read_lines, ","),
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".nt": read_n_triples,
    ".ttl": partial(read_rdf, "TURTLE"),
    ".nq": partial(read_rdf, "N_QUADS"),
    ".trig": partial(read_rdf, "TRIG"),
    ".rdf": partial(read_rdf, "RDF_XML"),
    ".owl": partial(read_rdf, "RDF_XML"),
    ".parquet": read_parquet,
    ".feather": read_feather,
    ".arrow": read_feather,
}
_TABLES = (".parquet", ".feather", ".arrow")
_RATIO = 5  # bytes of text per compressed byte, roughly
_STEMS = {**{split: split for split in SPLITS}, "validation": "valid", "dev": "valid"}
_SPLIT_FILE = re.compile(
    "({})({})?({})?".format(*("|".join(map(re.escape, x)) for x in (_STEMS, FORMATS, COMPRESSIONS)))
)


@dataclass(frozen=True)
class TripleFile:
    """A file of triples that can be opened several times."""

    where: str  # its name in messages
    suffix: str  # a key of FORMATS
    open: Callable[[], AbstractContextManager[IO[bytes]]]  # decompressed
    n_bytes: int  # of text; estimated for compressed files

    @classmethod
    def named(cls, where: str, open_raw: Opener, size: int, wrap: Wrapper | None = None) -> Self:
        """A file of `size` bytes. Its name gives its format; an unknown suffix means tabs."""
        name = where.lower()
        plain = name.removesuffix(compression(name))
        suffix = next((suffix for suffix in FORMATS if plain.endswith(suffix)), ".tsv")
        ratio = 1 if plain == name else _RATIO
        return cls(where, suffix, lambda: decompressed(open_raw, where, wrap), size * ratio)

    @contextmanager
    def stream(self) -> Iterator[IO[bytes]]:
        """The decompressed bytes; damage becomes a `DataError`."""
        try:
            with self.open() as stream:
                yield stream
        except DAMAGE as error:
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise MemoryError(error.strerror) from None
            if isinstance(error, OSError) and error.errno:
                raise DataError(f"{self.where}: cannot be read ({error.strerror})") from None
            raise DataError(f"{self.where}: damaged or cut off ({error}); get it again") from None

    def blocks(self, settings: Data, found: Found) -> Iterator[Block]:
        """The names in the file, block by block; `found` gets what was changed."""
        with self.stream() as stream:
            blocks = FORMATS[self.suffix](stream, self.where, settings, found)
            yield from keep_relations(blocks, self.where, settings, found)

    def sha256(self) -> str:
        """The hash of the decompressed bytes."""
        with self.stream() as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


Files: TypeAlias = dict[str, list[TripleFile]]
NAMES = ("entities", "relations")
# LibKGE's files of ids, and of ids and names.
_LIBKGE = {split: f"{split}.del" for split in SPLITS} | {
    "entities": "entity_ids.del", "relations": "relation_ids.del",
}  # fmt: skip


def file_sha256(path: Path) -> str:
    """The hash of a file as it is on disk."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_files(folder: Traversable, where: str) -> Files:
    """The files of a folder, by split; "" for parts of one list of triples.

    Each split is a file or a folder of parts. "entities" and "relations" are tables of names, for
    triples of ids, as LibKGE also writes them; "nodes" are files of Neo4j.
    """
    try:
        entries = {entry.name: entry for entry in folder.iterdir()}
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror})") from None
    files = {name: entry for name, entry in entries.items() if entry.is_file()}
    folders = {name: _STEMS[name] for name in entries if name in _STEMS and name not in files}
    if entries and not files and "train" not in folders.values():
        raise DataError(
            f"{where}: no train file in it, only folders{_examples(entries)}; choose one of them"
        )

    def triple_file(name: str) -> TripleFile:
        file = files[name]
        if isinstance(file, Path):
            return _loose_file(file, f"{where}/{name}")
        # Files inside a zipped package have no size, but are small.
        return TripleFile.named(f"{where}/{name}", lambda: file.open("rb"), 0)

    found = {split: _parts(Path(where, name)) for name, split in folders.items()}
    names = {kind: [f"{kind}{end}" for end in _TABLES if f"{kind}{end}" in files] for kind in NAMES}
    if all(names.values()):
        found |= {kind: [triple_file(paths[0])] for kind, paths in names.items()}
    if "train" in found:
        return {split: found[split] for split in (*SPLITS, *NAMES) if split in found}
    if not any(map(_SPLIT_FILE.fullmatch, files)):
        if files.keys() >= {"train.del", *map(_LIBKGE.__getitem__, NAMES)}:
            ids = {kind: name for kind, name in _LIBKGE.items() if name in files}
            return {kind: [replace(triple_file(name), suffix=".del")] for kind, name in ids.items()}
        others = files.keys() - {path for paths in names.values() for path in paths}
        if parts := sorted(filter(_is_part, others), key=_natural):
            return {"": [triple_file(name) for name in parts], **found}
        if neo4j := neo4j_files(map(triple_file, sorted(files))):
            return neo4j
    chosen = choose_splits(files, where)
    return {split: [triple_file(name)] for split, name in chosen.items()} | found


def _parts(folder: Path) -> list[TripleFile]:
    """The files of a split that is a folder of parts."""
    names = sorted((path.name for path in folder.iterdir()), key=_natural)
    parts = [_loose_file(folder / name, f"{folder}/{name}") for name in names if _is_part(name)]
    if not parts:
        raise DataError(f"{folder}: no parts in it, such as part-0.parquet{_examples(names)}")
    return parts


def _is_part(name: str) -> bool:
    """Is a file a part, as Spark, Dask and DuckDB name them?"""
    plain = name.lower().removesuffix(compression(name))
    is_table = plain.endswith(_TABLES)
    is_hidden = name.startswith((".", "_"))
    return not is_hidden and (is_table or (name[:4] == "part" and plain.endswith(tuple(FORMATS))))


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts part.10 after part.9."""
    return [(int(text), "") if text.isdecimal() else (0, text) for text in re.split(r"(\d+)", name)]


def _loose_file(path: Path, where: str) -> TripleFile:
    """A file outside of an archive; if it is compressed, its bytes are counted."""
    size = path.stat().st_size
    limit = limit_bytes(path, most=None) if compression(where) else None
    return TripleFile.named(where, lambda: path.open("rb"), size, limit)


def choose_splits(names: Iterable[str], where: str) -> dict[str, str]:
    """Which names of a folder or an archive are train, valid and test; train is required."""
    names = sorted(names)
    chosen: dict[str, str] = {}
    for name in names:
        match = _SPLIT_FILE.fullmatch(name.rpartition("/")[2])
        if not match:
            continue
        split = _STEMS[match[1]]
        if split in chosen:
            raise DataError(
                f"{where}: {printable(chosen[split])} and {printable(name)} are both {split}; "
                "keep one of them"
            )
        chosen[split] = name
    if "train" not in chosen and "run.json" in names:
        raise DataError(f"{where}: a run, not a graph; give the data that it was trained on")
    if "train" not in chosen:
        raise DataError(
            f"{where}: no train file; name it {' or '.join(f'train{end}' for end in FORMATS)}, "
            f"optionally with {' or '.join(COMPRESSIONS)}{_examples(names)}"
        )
    return {split: chosen[split] for split in SPLITS if split in chosen}


def _examples(names: Iterable[str]) -> str:
    names = sorted(names)
    if not names:
        return "; it is empty"
    shown = ", ".join(printable(name) for name in names[:3])
    return f"; found {shown}{' and more' if len(names) > 3 else ''}"


@contextmanager
def split_files(path: Path) -> Iterator[Files]:
    """The files of a folder or an archive by split, open in this context; "" is a single file."""
    suffix = next((suffix for suffix in ARCHIVES if path.name.lower().endswith(suffix)), None)
    if path.is_dir():
        yield folder_files(path, str(path))
        return
    if suffix is None:
        yield {"": [_loose_file(path, str(path))]}
        return
    try:
        with ExitStack() as stack:
            members = open_members(path, suffix, stack)
            # A .gz member may be larger than its header states, so its bytes are counted.
            limit = limit_bytes(path)
            yield {
                split: [TripleFile.named(f"{path}:{name}", *members[name], limit)]
                for split, name in choose_splits(members, str(path)).items()
            }
    except (*DAMAGE, ValueError, struct.error) as error:  # the last two: of invalid fields
        raise DataError(f"{path}: not a complete archive ({error}); get it again") from None
