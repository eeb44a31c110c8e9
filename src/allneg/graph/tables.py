"""Parquet, Feather, data frames and other Arrow tables → names; names and ids computed elsewhere.

pyarrow is imported when one of them is read.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from allneg.errors import DataError, extra, printable
from allneg.graph.blocks import (
    BadRows,
    Block,
    Found,
    as_weights,
    checked,
    need_layout,
)
from allneg.graph.graph import Triples
from allneg.recipe import Data

_ROWS = 1 << 18  # per block
_NOT_IN_NAMES = re.compile(b"[\t\n\0]")


def read_parquet(stream: IO[bytes], where: str, settings: Data, found: Found) -> Iterator[Block]:
    """The names in a Parquet file."""
    yield from _blocks(*_open_parquet(stream, where), where, settings, found)


def read_feather(stream: IO[bytes], where: str, settings: Data, found: Found) -> Iterator[Block]:
    """The names in a Feather file, or in an Arrow file or stream."""
    yield from _blocks(*_open_feather(stream, where), where, settings, found)


def read_stream(source: Any, where: str, settings: Data, found: Found) -> Iterator[Block]:
    """The names in an object with `__arrow_c_stream__`, such as a data frame."""
    with extra("tables", where):
        from pyarrow import RecordBatchReader
    try:
        reader = RecordBatchReader.from_stream(source)
    except ValueError:  # ArrowInvalid: one column, such as a Series
        raise DataError(f"{where}: not a table with columns of heads, relations, tails") from None
    yield from _blocks(reader.schema.names, reader, where, settings, found)


def _open_parquet(stream: IO[bytes], where: str) -> tuple[list[str], Iterable[Any]]:
    with extra("tables", f"{where}: Parquet"):
        from pyarrow.parquet import ParquetFile
    file = _opened(ParquetFile, stream, where)
    return file.schema_arrow.names, file.iter_batches(_ROWS)


def _open_feather(stream: IO[bytes], where: str) -> tuple[list[str], Iterable[Any]]:
    with extra("tables", f"{where}: Arrow"):
        from pyarrow import ipc
    is_file = stream.read(6) == b"ARROW1"
    stream.seek(0)
    reader = _opened(ipc.open_file if is_file else ipc.open_stream, stream, where)
    if is_file:
        return reader.schema.names, map(reader.get_batch, range(reader.num_record_batches))
    return reader.schema.names, reader


def _open_del(stream: IO[bytes], where: str) -> tuple[list[str], Iterable[Any]]:
    """LibKGE's files: ids of triples, or ids and names."""
    with extra("tables", f"{where}: LibKGE's format"):
        import pyarrow as pa
        from pyarrow import csv
    types = {"head": pa.int64(), "relation": pa.int64(), "tail": pa.int64()}
    if where.endswith("_ids.del"):
        types = {"id": pa.int64(), "name": pa.string()}
    options = {
        "read_options": csv.ReadOptions(column_names=list(types)),
        "parse_options": csv.ParseOptions(delimiter="\t", quote_char=False),
        "convert_options": csv.ConvertOptions(column_types=types),
    }
    return list(types), _opened(lambda file: csv.open_csv(file, **options), stream, where)


_OPENERS = {
    ".parquet": _open_parquet, ".feather": _open_feather, ".arrow": _open_feather,
    ".del": _open_del,
}  # fmt: skip


def _opened(opener: Any, stream: IO[bytes], where: str) -> Any:
    try:
        return opener(stream)
    except ValueError as error:  # ArrowInvalid
        raise _damaged(where, error) from None


def _damaged(where: str, error: Exception) -> DataError:
    return DataError(f"{where}: damaged or of another format ({str(error).splitlines()[0]})")


def _blocks(
    names: Sequence[str], batches: Iterable[Any], where: str, settings: Data, found: Found
) -> Iterator[Block]:
    # pandas adds its index as a column.
    shown = [name for name in names if not name.startswith("__index_level_")]
    layout, bad, row = need_layout(shown, found, where, settings), BadRows(settings), 0
    columns = [names.index(shown[column]) for column in layout if column is not None]
    for batch in _read(batches, where):
        texts = [_bytes(batch.column(i), names[i], where) for i in columns[:3]]
        legal, weights = [_names(text) for text in texts], None
        if layout.weights is not None:
            values = batch.column(columns[3])
            weights = as_weights([] if values.null_count else values.to_numpy(zero_copy_only=False))
        has_weights = layout.weights is None or (weights is not None and len(weights))
        if has_weights and all(names is not None for names in legal):
            yield Block(legal[0], legal[1], legal[2], weights)
        elif len(batch):
            lists = [_decoded(text) for text in texts]
            given = None if layout.weights is None else batch.column(columns[3]).to_pylist()
            numbers = range(row + 1, row + len(batch) + 1)
            yield checked(lists, given, where, numbers, bad)
        row += len(batch)
    bad.note(where, found)


def _read(batches: Iterable[Any], where: str) -> Iterator[Any]:
    try:
        yield from batches
    except (ValueError, OSError) as error:  # of a damaged file
        raise _damaged(where, error) from None


def _bytes(column: Any, name: str, where: str) -> Any:
    """A column of names as UTF-8; whole numbers become their digits."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type) or column.type in (pa.null(), pa.string_view()):
        column = column.cast(pa.string())
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if not is_text and not pa.types.is_binary(column.type):
        raise DataError(
            f"{where}: the column {printable(name)} is {column.type}; convert it to text first"
        )
    return column.cast(pa.large_binary())


def _names(column: Any) -> Any:
    """A column of bytes as text; None if some of them are not legal names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count or pc.min(pc.binary_length(column)).as_py() == 0:
        return None
    if len(column):
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64)[column.offset :][: len(column) + 1]
        if _NOT_IN_NAMES.search(memoryview(data)[ends[0] : ends[-1]]):
            return None
    try:
        return column.cast(pa.large_string())
    except ValueError:  # not UTF-8
        return None


def _decoded(column: Any) -> list[object]:
    """The names in a column of bytes; None for missing ones, bytes for what is not UTF-8."""
    names: list[object] = []
    for name in column.to_pylist():
        try:
            names.append(None if name is None else name.decode())
        except UnicodeDecodeError:
            names.append(name)
    return names


def read_names(stream: IO[bytes], suffix: str, where: str) -> list[str]:
    """The names in a table of ids and names: every id from 0 on, once, in any order."""
    columns, batches = _OPENERS[suffix](stream, where)
    lowered = [column.lower() for column in columns]
    if not {"id", "name"} <= set(lowered):
        raise DataError(f"{where}: expected the columns id and name; found {', '.join(columns)}")
    ids, names = [np.empty(0, dtype=np.int64)], list[object]()
    for batch in _read(batches, where):
        ids.append(_as_ids(batch.column(lowered.index("id")), where))
        names += _decoded(_bytes(batch.column(lowered.index("name")), "name", where))
    numbers = np.concatenate(ids)
    order = np.argsort(numbers, kind="stable")
    if not np.array_equal(numbers[order], np.arange(len(numbers))):
        raise DataError(f"{where}: the column id must have every number from 0 to n - 1 once")
    return checked_names([names[i] for i in order.tolist()], where)


def checked_names(names: Sequence[object], where: str) -> list[str]:
    """A vocabulary that was computed elsewhere; a `DataError` if a name is not legal, or twice."""
    block = checked([list(names)] * 3, None, where, range(len(names)), BadRows(Data()))
    found: list[str] = block.heads
    if len(set(found)) != len(found):
        raise DataError(f"{where}: a name has two ids; names must be unique")
    return found


def read_ids(
    stream: IO[bytes], suffix: str, where: str, settings: Data, found: Found
) -> Iterator[tuple[Triples, Any]]:
    """The ids and weights in a table of triples, as they are."""
    names, batches = _OPENERS[suffix](stream, where)
    layout = need_layout(names, found, where, settings)
    for batch in _read(batches, where):
        weights = None
        if layout.weights is not None:
            weights = as_weights(batch.column(layout.weights).to_pylist())
            if weights is None:
                raise DataError(f"{where}: a weight is not a number above 0")
        columns = [_as_ids(batch.column(column), where) for column in layout[:3]]
        yield np.stack(columns, axis=1), weights


def _as_ids(column: Any, where: str) -> Any:
    import pyarrow as pa

    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(
            f"{where}: expected ids, found {column.type}; without entities and relations in the "
            "folder, names are numbered here"
        )
    return column.to_numpy(zero_copy_only=False).astype(np.int64)
