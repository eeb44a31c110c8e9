"""Files of facts: rows written as .tsv, .csv, .jsonl and .parquet, facts read from all formats."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from allneg.errors import DataError, UsageError, extra, printable
from allneg.exports.writers import csv_line
from allneg.graph.archives import ARCHIVES
from allneg.graph.blocks import USUAL_NAMES, Found, as_list
from allneg.graph.files import TripleFile, split_files
from allneg.graph.graph import Graph, Triples
from allneg.graph.lines import split_line
from allneg.graph.memory import fact_rows
from allneg.predict.query_files import numbered_lines, read_errors
from allneg.recipe import Data
from allneg.runs import files
from allneg.runs.folder import existing_parent

Fact: TypeAlias = tuple[str, str, str]

_LABELS = {"1": True, "true": True, "0": False, "false": False}
_SEPARATORS = {".tsv": ("\t", "tabs"), ".txt": ("\t", "tabs"), ".csv": (",", "commas")}
_BLOCK = 1 << 20  # bytes per read
# As `complete` and `audit` write it; 1 or 0 would be a label.
_PROBABILITY = re.compile(r"[01]\.\d+|\d(\.\d+)?e-\d+")
# Advice on settings of `allneg train`, which commands that read facts do not have.
_ADVICE = re.compile("[;\n][^;\n]*`--set.*", re.DOTALL)


@dataclass(frozen=True)
class GivenFacts:
    """The facts in a file, in their order."""

    rows: list[Fact]
    locations: list[str]  # of each, for messages
    labels: list[bool] | None = None  # None if the file has none


def read_facts(path: Path) -> GivenFacts:
    """The facts in a file of triples of any format, such as those of `complete` and `audit`.

    Lines of text have head, relation and tail, and either a label, or a probability and other
    columns, which are not used.
    """
    if path.is_dir() or path.name.lower().endswith(tuple(ARCHIVES)):
        raise DataError(f"{path}: a folder or an archive; give one file of facts")
    with read_errors(path), split_files(path) as found:
        (file,) = found[""]
        given = _from_lines(file) if file.suffix in _SEPARATORS else _from_blocks(file)
    if not given.rows:
        raise DataError(f"{path.name}: no facts in it")
    return given


def fact_ids(graph: Graph, facts: Any) -> Triples:
    """The ids of facts in a list, a data frame or the file of a path: (n, 3)."""
    if isinstance(facts, str | os.PathLike):
        given = read_facts(Path(facts))
        return ids_of(graph, given.rows, given.locations)
    return ids_of(graph, fact_rows(facts))


def ids_of(graph: Graph, facts: Sequence[Fact], locations: Sequence[str] | None = None) -> Triples:
    """The ids of facts; a `DataError` that gives the location of a fact with an unknown name."""
    names, ids = graph.vocabulary, np.empty((len(facts), 3), dtype=np.int64)
    for number, (head, relation, tail) in enumerate(facts):
        try:
            ids[number] = names.entity(head), names.relation(relation), names.entity(tail)
        except DataError as unknown:
            location = f"fact {number + 1:,}" if locations is None else locations[number]
            raise DataError(f"{location}: {unknown}") from None
    return ids


def _from_lines(file: TripleFile) -> GivenFacts:
    with file.stream() as stream:
        # A compressed file is read in blocks, which are counted.
        text = b"".join(iter(lambda: stream.read(_BLOCK), b"")).decode().removeprefix("\ufeff")
    (separator, by), name = _SEPARATORS[file.suffix], Path(file.where).name
    given, labels, order, width = GivenFacts([], []), list[bool](), [0, 1, 2], 0
    for i, (number, line) in enumerate(numbered_lines(text)):
        values, _ = split_line(line.removesuffix("\r"), separator)
        letters = [USUAL_NAMES.get(value.strip().lower(), "") for value in values[:3]]
        if i == 0 and sorted(letters) == ["h", "r", "t"]:  # the names of columns
            order = [letters.index(letter) for letter in "hrt"]
            continue
        width, where = width or len(values), f"{name}:{number}"
        is_like_first = len(values) == width and "" not in values[:3]
        if not is_like_first or width < 3 or (width > 4 and not _PROBABILITY.fullmatch(values[3])):
            raise DataError(
                f"{where}: expected head, relation, tail, and in all lines or none a label or the "
                f"numbers of `allneg complete`, separated by {by}; found {printable(line)}"
            )
        head, relation, tail = (values[column] for column in order)
        given.rows.append((head, relation, tail))
        given.locations.append(where)
        if width == 4:
            if (label := values[3].lower()) not in _LABELS:
                raise DataError(
                    f"{where}: the label is {printable(values[3])}; write 1, 0, true or false"
                )
            labels.append(_LABELS[label])
    return GivenFacts(given.rows, given.locations, labels or None)


def _from_blocks(file: TripleFile) -> GivenFacts:
    rows: list[Fact] = []
    try:
        for block in file.blocks(Data(), Found()):
            rows += zip(*map(as_list, block[:3]), strict=True)
    except DataError as error:
        raise DataError(_ADVICE.sub("", str(error))) from None
    name = Path(file.where).name
    return GivenFacts(rows, [f"{name}: fact {number:,}" for number in range(1, len(rows) + 1)])


def write_rows(path: Path, kind: type, rows: Iterable[Any]) -> None:
    """Write instances of a data class to a .tsv, .csv, .jsonl or .parquet file, all at once.

    Fields are strings or floats. Only a .csv file begins with their names.
    """
    values = (dict(vars(row)) for row in rows)
    if path.suffix == ".parquet":
        files.write_parts(path, _parquet(kind, list(values)))
    elif path.suffix == ".jsonl":
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in values)
        files.write_parts(path, (line.encode() for line in lines))
    elif path.suffix == ".csv":
        names = [column.name for column in fields(kind)]
        files.write_parts(path, map(csv_line, [names, *(row.values() for row in values)]))
    else:
        lines = ("\t".join(map(str, row.values())) + "\n" for row in values)
        files.write_parts(path, (line.encode() for line in lines))


def check_new_file(path: Path) -> None:
    """Raise a `UsageError` if rows cannot be written to a file, or it exists."""
    if path.suffix not in (".tsv", ".csv", ".jsonl", ".parquet"):
        raise UsageError(f"{path}: write a .tsv, .csv, .jsonl or .parquet file")
    if path.suffix == ".parquet":
        _pyarrow()
    if path.exists():
        raise UsageError(f"{path}: already exists; choose another --out")
    with files.write_errors(path):
        files.need_writable(existing_parent(path))


def _pyarrow() -> Any:
    with extra("tables", "Parquet"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def _parquet(kind: type, rows: list[dict[str, Any]]) -> Iterator[bytes]:
    pyarrow = _pyarrow()
    text, number = pyarrow.string(), pyarrow.float64()
    types = {column.name: text if column.type == "str" else number for column in fields(kind)}
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, pyarrow.schema(types)), sink)
    yield sink.getvalue().to_pybytes()
