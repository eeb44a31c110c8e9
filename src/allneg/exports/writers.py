"""Named rows as the bytes of files, block by block, so that a table need not fit in memory."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.lib.format
import numpy.typing as npt

from allneg.errors import extra
from allneg.graph.graph import SPLITS, Graph

Block = npt.NDArray[np.floating]


@dataclass(frozen=True)
class NamedRows:
    """A table whose rows have names."""

    names: Sequence[str]
    width: int
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterable[Block]]

    def named_blocks(self) -> Iterator[tuple[Sequence[str], Block]]:
        start = 0
        for block in self.blocks():
            yield self.names[start : start + len(block)], block
            start += len(block)


def names(rows: NamedRows) -> Iterator[bytes]:
    """One name per line; no name contains a line feed."""
    for start in range(0, len(rows.names), 1 << 14):
        yield "".join(f"{name}\n" for name in rows.names[start : start + (1 << 14)]).encode()


def npy(rows: NamedRows) -> Iterator[bytes]:
    """NumPy's format; `names` has the names."""
    yield from array([len(rows.names), rows.width], rows.dtype, rows.blocks())


def array(shape: Sequence[int], dtype: np.dtype[Any], blocks: Iterable[Block]) -> Iterator[bytes]:
    header = io.BytesIO()
    about = {"descr": dtype.str, "fortran_order": False, "shape": tuple(shape)}
    numpy.lib.format.write_array_header_1_0(header, about)
    yield header.getvalue()
    for block in blocks:
        yield np.ascontiguousarray(block).tobytes()


def csv_table(rows: NamedRows) -> Iterator[bytes]:
    """A header, then a name and its numbers per line."""
    yield csv_line(["name", *range(rows.width)])
    for some, block in rows.named_blocks():
        texts = _numbers(block, ",")
        yield "".join(
            _quoted(n) + f",{text}\n" for n, text in zip(some, texts, strict=True)
        ).encode()


def word2vec(rows: NamedRows) -> Iterator[bytes]:
    """The text format of word2vec: the two sizes, then a token and its numbers per line.

    Spaces separate the numbers, so those in a name become `_`. A token that exists gets one more.
    """
    yield f"{len(rows.names)} {rows.width}\n".encode()
    taken: set[str] = set()
    for some, block in rows.named_blocks():
        lines = []
        for name, text in zip(some, _numbers(block, " "), strict=True):
            token = re.sub(r"\s", "_", name)
            while token in taken:
                token += "_"
            taken.add(token)
            lines.append(f"{token} {text}\n")
        yield "".join(lines).encode()


def parquet(rows: NamedRows) -> Iterator[bytes]:
    """Columns `name` and `vector`, a list of fixed size."""
    with extra("tables", "Parquet"):
        import pyarrow
        import pyarrow.parquet

    number = pyarrow.from_numpy_dtype(rows.dtype)
    kind = pyarrow.list_(number, rows.width)
    schema = pyarrow.schema([("name", pyarrow.string()), ("vector", kind)])
    sink = _Sink()
    with pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(sink, "w"), schema) as writer:
        for some, block in rows.named_blocks():
            flat = pyarrow.array(block.reshape(-1))
            vectors = pyarrow.FixedSizeListArray.from_arrays(flat, type=kind)
            writer.write_table(pyarrow.table([list(some), vectors], schema=schema))
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """Collects what is written until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def taken(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data


def neo4j_nodes(rows: NamedRows) -> Iterator[bytes]:
    """Nodes for `neo4j-admin database import`; a vector is an array separated by semicolons."""
    yield csv_line(["name:ID", "embedding:float[]", ":LABEL"])
    for some, block in rows.named_blocks():
        pairs = zip(some, _numbers(block, ";"), strict=True)
        yield "".join(f"{_quoted(name)},{text},Entity\n" for name, text in pairs).encode()


def neo4j_relationships(graph: Graph) -> Iterator[bytes]:
    """The triples of all splits for `neo4j-admin database import`."""
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    yield csv_line([":START_ID", ":END_ID", ":TYPE", "split"])
    for split in SPLITS:
        triples = graph.split(split)
        for start in range(0, len(triples), 1 << 16):
            block = triples[start : start + (1 << 16)].tolist()
            yield b"".join(
                csv_line([entities[h], entities[t], relations[r], split]) for h, r, t in block
            )


def json_text(value: Any) -> Iterator[bytes]:
    yield (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _numbers(block: Block, separator: str) -> Iterator[str]:
    """The numbers of each row, with as many digits as it takes to read them back exactly."""
    digits = "%.9g" if block.dtype == np.float32 else "%.17g"
    form = separator.join([digits] * block.shape[1])
    return (form % tuple(row) for row in block.tolist())


def csv_line(fields: Iterable[object]) -> bytes:
    """A line of a CSV file, as in RFC 4180."""
    return (",".join(_quoted(str(field)) for field in fields) + "\n").encode()


def _quoted(field: str) -> str:
    """One field of a CSV file; quotes are doubled."""
    if not re.search('[",\r\n]', field):
        return field
    return '"' + field.replace('"', '""') + '"'
