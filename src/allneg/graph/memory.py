"""Triples that are already in memory: lists, arrays, data frames, one per split or all together."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from allneg.errors import DataError, UsageError
from allneg.graph.blocks import BadRows, Block, Found, as_list, checked, keep_relations, need_layout
from allneg.graph.clean import Read
from allneg.graph.files import NAMES
from allneg.graph.graph import SPLITS, Vocabulary
from allneg.graph.lines import check_settings
from allneg.graph.tables import checked_names, read_stream
from allneg.recipe import Data

_ROWS = 1 << 18  # per block


@dataclass(frozen=True)
class TripleObject:
    """Triples in memory, with the attributes of a file that are used here."""

    where: str  # in messages
    source: Any

    n_bytes = 0

    def blocks(self, settings: Data, found: Found) -> Iterator[Block]:
        """The names in the object, block by block."""
        check_settings(settings)
        blocks = self._blocks(settings, found)
        yield from keep_relations(blocks, self.where, settings, found)

    def _blocks(self, settings: Data, found: Found) -> Iterator[Block]:
        source, where, bad = self.source, self.where, BadRows(settings)
        if hasattr(source, "__arrow_c_stream__"):
            yield from read_stream(source, where, settings, found)
            return
        if isinstance(source, Mapping):
            names = list(map(str, source))
            columns = [_as_list(column) for column in source.values()]
        else:
            rows = _as_list(source)
            width = 3 if "," in settings.columns else len(settings.columns)
            wrong = next((row for row in rows if not _is_row(row, width)), None)
            if wrong is not None:
                raise DataError(f"{where}: expected rows of {width} values, found {wrong!r:.80}")
            if "," in settings.columns:
                raise DataError(
                    f"{where}: rows have no columns {settings.columns}; give their order, "
                    "most likely `--set data.columns=hrt`"
                )
            names = [f"{i}" for i in range(width)]
            columns = [[row[i] for row in rows] for i in range(width)]
        if len({len(column) for column in columns}) > 1:
            raise DataError(f"{where}: the columns have different lengths")
        layout = need_layout(
            names, Found() if not isinstance(source, Mapping) else found, where, settings
        )
        weights = None if layout.weights is None else columns[layout.weights]
        triples = [columns[i] for i in layout[:3]]
        for start in range(0, len(triples[0]), _ROWS):
            part = slice(start, start + _ROWS)
            numbers = range(start + 1, len(triples[0]) + 1)[:_ROWS]
            some = None if weights is None else weights[part]
            yield checked([column[part] for column in triples], some, where, numbers, bad)
        bad.note(where, found)


def fact_rows(facts: Any) -> list[tuple[str, str, str]]:
    """Facts in a list, in their order; those of a data frame are found by its columns' names."""
    if not hasattr(facts, "__arrow_c_stream__"):
        return rows_of_three(facts)
    blocks = TripleObject(type(facts).__name__, facts).blocks(Data(), Found())
    return [fact for block in blocks for fact in zip(*map(as_list, block[:3]), strict=True)]


def rows_of_three(rows: Iterable[Any]) -> list[Any]:
    """The rows; a `UsageError` if one is not (head, relation, tail)."""
    found = list(rows)
    wrong = next((row for row in found if isinstance(row, str) or len(row) != 3), None)
    if wrong is not None:
        raise UsageError(f"expected (head, relation, tail), found {wrong!r:.80}")
    return found


def _as_list(values: Any) -> list[Any]:
    if hasattr(values, "__array__"):  # of NumPy, torch, …
        values = np.asarray(values)
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _is_row(row: Any, width: int) -> bool:
    return isinstance(row, list | tuple) and len(row) == width


def object_files(source: Any) -> dict[str, list[TripleObject]]:
    """The splits in an object; a `UsageError` if it has no triples."""
    name = type(source).__name__
    if isinstance(source, str | bytes) or not (
        hasattr(source, "__arrow_c_stream__") or isinstance(source, Iterable)
    ):
        raise UsageError(
            f"the data must be the name of a known dataset, a path, a URL, or triples in a list, "
            f"an array or a data frame, not {name}"
        )
    if isinstance(source, Mapping) and "train" in source:
        unknown = [key for key in source if key not in (*SPLITS, *NAMES)]
        if unknown:
            raise UsageError(f"{unknown[0]!r} is not one of {', '.join((*SPLITS, *NAMES))}")
        return {split: [TripleObject(split, source[split])] for split in source}
    if isinstance(source, Mapping) and "training" in source:
        raise UsageError(f"the splits of a dict are called {', '.join(SPLITS)}, not 'training'")
    return {"": [TripleObject(name, source)]}


def read_given_ids(source: Mapping[str, Any]) -> Read:
    """Arrays of ids, and the lists of names that they are indices of."""
    names = [checked_names(_as_list(source[kind]), kind) for kind in NAMES]
    splits = {}
    for split in SPLITS:
        if split in source:
            triples = np.asarray(source[split])
            if triples.dtype.kind not in "iu" or triples.ndim != 2 or triples.shape[1] != 3:
                raise DataError(f"{split}: with entities and relations, triples are ids: (n, 3)")
            splits[split] = triples.astype(np.int64)
    sizes = (len(names[0]), len(names[1]), len(names[0]))
    for split, triples in splits.items():
        if ((triples < 0) | (triples >= sizes)).any():
            raise DataError(f"{split}: an id has no name in entities or relations")
    return Read(splits, Vocabulary(tuple(names[0]), tuple(names[1])), keeps_ids=True)
