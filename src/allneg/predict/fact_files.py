"""Rows of facts as .tsv, .jsonl and .parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from allneg.errors import UsageError, extra
from allneg.runs import files


def write_rows(path: Path, kind: type, rows: Iterable[Any]) -> None:
    """Write instances of a data class to a .tsv, .jsonl or .parquet file, which appears complete.

    Fields are strings or floats.
    """
    values = (dict(vars(row)) for row in rows)
    if path.suffix == ".parquet":
        files.write_parts(path, _parquet(kind, list(values)))
    elif path.suffix == ".jsonl":
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in values)
        files.write_parts(path, (line.encode() for line in lines))
    else:
        lines = ("\t".join(map(str, row.values())) + "\n" for row in values)
        files.write_parts(path, (line.encode() for line in lines))


def check_new_file(path: Path) -> None:
    """Raise a `UsageError` if rows cannot be written to a file, or it exists."""
    if path.suffix not in (".tsv", ".jsonl", ".parquet"):
        raise UsageError(f"{path}: write a .tsv, .jsonl or .parquet file")
    if path.suffix == ".parquet":
        _pyarrow()
    if path.exists():
        raise UsageError(f"{path}: already exists; choose another --out")
    if not path.parent.is_dir():
        where = path.parent
        raise UsageError(f"{where}: there is no such folder; make it, or choose another --out")


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
