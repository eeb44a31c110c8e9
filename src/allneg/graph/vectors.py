"""Files of names and vectors, as `allneg export` and other programs write them."""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, extra

Vectors = npt.NDArray[np.float32]


def read_vectors(path: Path) -> tuple[list[str], Vectors]:
    """The names and vectors of a file: (n, d). The suffix tells the format."""
    reader = FORMATS.get(path.suffix)
    if reader is None:
        raise DataError(f"{path}: not a file of vectors; use one of {', '.join(FORMATS)}")
    try:
        names, vectors = reader(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise DataError(f"{path}: not names and vectors of equal length ({error})") from None
    if not len(names) or not vectors.size or not np.isfinite(vectors).all():
        raise DataError(f"{path}: has no vectors, or numbers that are not finite")
    return names, vectors


def _parquet(path: Path) -> tuple[list[str], Vectors]:
    """Columns `name` and `vector`."""
    with extra("tables", f"{path}: Parquet"):
        from pyarrow import parquet
    found = parquet.read_schema(path).names
    if not {"name", "vector"} <= set(found):
        raise DataError(f"{path}: the columns are {', '.join(found)}, not name and vector")
    table: Any = parquet.read_table(path, columns=["name", "vector"])
    flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return table["name"].to_pylist(), flat.astype(np.float32).reshape(len(table), -1)


def _csv(path: Path) -> tuple[list[str], Vectors]:
    """A header, then a name and its numbers per line."""
    with path.open(encoding="utf-8", newline="") as file:
        return _rows(list(csv.reader(file))[1:])


def _word2vec(path: Path) -> tuple[list[str], Vectors]:
    """The two sizes, then a name without spaces and its numbers per line."""
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    return _rows(line.split(" ") for line in lines[1:])


def _rows(rows: Iterable[list[str]]) -> tuple[list[str], Vectors]:
    found = [(row[0], [float(number) for number in row[1:]]) for row in rows]
    return [name for name, _ in found], np.array([row for _, row in found], dtype=np.float32)


FORMATS: dict[str, Callable[[Path], tuple[list[str], Vectors]]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".vec": _word2vec,
}
