"""What readers of all formats share: blocks of names, notes, labels, bad rows, column names."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, close_names, printable
from allneg.recipe import Data
from allneg.recipe.parts import listed_names

# What a column of triples may be called, with the letter that data.columns uses for it.
_USUAL = {
    "h": "head h subject subj source src from node1 :start_id",
    "r": "relation r predicate pred type rel property edge label :type",
    "t": "tail t object obj target dst to node2 :end_id",
    "w": "weight",
}
USUAL_NAMES = {name: letter for letter, names in _USUAL.items() for name in names.split()}
_NEO4J = re.compile(r".*(:(?:start_id|end_id|type|id|label))(?:\(.*\))?", re.DOTALL)
_NOT_IN_NAMES = re.compile("[\t\n\0\ud800-\udfff]")
ORDINALS = ("first", "second", "third")


class Fields:
    """Lines of UTF-8 that all have `width` fields; names are made when they are needed."""

    def __init__(self, data: bytes, separator: str, width: int) -> None:
        self.data, self.separator, self.width = data, separator, width

    @cached_property
    def names(self) -> list[str]:
        text = self.data.decode(errors="surrogatepass").replace("\n", self.separator)
        return text.split(self.separator)[:-1]

    def alternating(self, columns: Sequence[int]) -> Any:
        """The names in some columns, line by line, in an Arrow array."""
        import pyarrow as pa

        codes = np.frombuffer(self.data, dtype=np.uint8)
        ends = np.flatnonzero((codes == ord(self.separator)) | (codes == ord("\n")))
        offsets = np.zeros(len(ends) + 1, dtype=np.int64)
        np.subtract(ends, np.arange(len(ends)), out=offsets[1:])
        text = self.data.translate(None, f"{self.separator}\n".encode())
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        names = pa.Array.from_buffers(pa.large_string(), len(ends), buffers)
        rows = np.arange(0, len(ends), self.width)[:, None]
        return names.take(pa.array((rows + columns).reshape(-1)))


class Column(NamedTuple):
    """One column of some lines."""

    fields: Fields
    number: int


class Block(NamedTuple):
    """Some triples: columns of equal length. See `as_list` for what a column may be."""

    heads: Any
    relations: Any
    tails: Any
    weights: npt.NDArray[np.float32] | None = None  # of each triple in the loss

    @property
    def n_triples(self) -> int:
        """The number of triples."""
        if isinstance(self.relations, Column):
            return self.relations.fields.data.count(b"\n")
        return len(self.relations)


@dataclass
class Found:
    """What readers find in files beside triples."""

    notes: list[str] = field(default_factory=list)  # what was changed or looks unusual
    labels: dict[str, str] = field(default_factory=dict)  # by name
    prefixes: dict[str, str] = field(default_factory=dict)  # of IRIs, by their beginning
    has_iris: bool = False  # names are IRIs


class BadRows:
    """Counts the bad rows of a file by reason; more than data.skip_bad_lines are an error."""

    def __init__(self, settings: Data) -> None:
        self.allowed = settings.skip_bad_lines
        self.reasons: Counter[str] = Counter()

    def skip(self, reason: str, message: str) -> None:
        skipped = self.reasons.total()
        if skipped >= self.allowed:
            raise DataError(message + (f" (bad lines skipped before: {skipped:,})" * (skipped > 0)))
        self.reasons[reason] += 1

    def note(self, where: str, found: Found) -> None:
        """Add a note on the rows that were skipped, if there are any."""
        total = self.reasons.total()
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in self.reasons.most_common())
        if total:
            found.notes.append(
                f"{where}: skipped bad lines (data.skip_bad_lines): {total:,} ({reasons})"
            )


class Layout(NamedTuple):
    """Where the columns of a table are."""

    heads: int
    relations: int
    tails: int
    weights: int | None = None


def layout_of_letters(letters: str) -> Layout:
    """The layout of a file without column names: htr, hrtw, …"""
    return Layout(*(letters.index(letter) for letter in "hrtw"[: len(letters)]))


def find_layout(names: Sequence[str], where: str, settings: Data) -> Layout | None:
    """The columns that settings name, or that have usual names; None if there are none."""

    def column(name: str) -> int:
        if names.count(name) != 1:
            others = [other for other in names if other != name]
            wrong = "is twice in" if name in names else "is not among"
            raise DataError(
                f"{where}: {printable(name)} {wrong} the columns {_listed(names)}"
                f"{close_names(name, others)}"
            )
        return names.index(name)

    weight = None if settings.weight is None else column(settings.weight)
    if "," in settings.columns:
        head, relation, tail = map(column, listed_names(settings.columns))
        return Layout(head, relation, tail, weight)
    letters = [USUAL_NAMES.get(plain_name(name), "-") for name in names]
    if any(letters.count(letter) != 1 for letter in "hrt"):
        return None
    order = "".join(letter for letter in letters if letter in "hrt")
    wanted = settings.columns.replace("w", "")
    if wanted not in ("hrt", order):
        raise DataError(
            f"{where}: the columns are called {', '.join(names)}, but data.columns is "
            f"{settings.columns}; add `--set data.columns={order}`"
        )
    if weight is None and letters.count("w") == 1:
        weight = letters.index("w")
    return Layout(letters.index("h"), letters.index("r"), letters.index("t"), weight)


def need_layout(names: Sequence[str], found: Found, where: str, settings: Data) -> Layout:
    """As `find_layout` for a table; three columns of other names are read in their order."""
    if not names:
        raise DataError(f"{where}: it has no columns; give head, relation and tail")
    layout = find_layout(names, where, settings)
    if layout is None and len(names) == len(settings.columns):
        layout = layout_of_letters(settings.columns)
        chosen = ", ".join(printable(names[i]) for i in layout[:3])
        found.notes.append(
            f"{where}: the columns {chosen} are read as head, relation and tail; if they are "
            "others, give their names by `--set data.columns=HEAD,RELATION,TAIL`"
        )
    if layout is None:
        raise DataError(
            f"{where}: which of the columns {_listed(names)} are head, relation and tail?\n"
            "Give their names by `--set data.columns=HEAD,RELATION,TAIL`"
        )
    note_weights(names, layout, found, where)
    return layout


def note_weights(names: Sequence[str], layout: Layout, found: Found, where: str) -> None:
    if layout.weights is not None:
        found.notes.append(f"{where}: {printable(names[layout.weights])} are weights of triples")


def plain_name(name: str) -> str:
    """A column name as in USUAL_NAMES; Neo4j writes personId:START_ID(Person)."""
    name = name.strip().lower()
    match = _NEO4J.fullmatch(name)
    return match[1] if match else name


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def problem_of(triple: Sequence[object], weight: object = 1.0) -> str | None:
    """What is wrong with the names or the weight of a triple, or None."""
    for ordinal, name in zip(ORDINALS, triple, strict=True):
        if name is None or name == "":
            return f"found an empty {ordinal} field"
        if not isinstance(name, str):
            return f"found {type(name).__name__} as {ordinal} field"
        if match := _NOT_IN_NAMES.search(name):
            return f"found {_CHARACTERS.get(match[0], 'half of a surrogate pair')} inside a name"
    return weight_problem(weight)


def weight_problem(weight: Any) -> str | None:
    """What is wrong with the weight of a triple, or None."""
    if as_weights([weight]) is None:
        return f"found the weight {printable(str(weight))}, which is not a number above 0"
    return None


_CHARACTERS = {"\t": "a tab", "\n": "a line feed", "\0": "a NUL character"}


def checked(
    columns: Sequence[Sequence[Any]],
    weights: Sequence[Any] | None,
    where: str,
    numbers: Sequence[int],
    bad: BadRows,
) -> Block:
    """The block of these rows without the bad ones. `numbers` are those of the rows."""
    heads, relations, tails = (
        column if isinstance(column, list) else list(column) for column in columns
    )
    found = None if weights is None else as_weights(weights)
    if all(map(_are_names, (heads, relations, tails))) and (weights is None or found is not None):
        return Block(heads, relations, tails, found)
    kept: list[Sequence[Any]] = []
    given = [1.0] * len(heads) if weights is None else weights
    for number, *row, weight in zip(numbers, heads, relations, tails, given, strict=True):
        triple = [_as_text(value) for value in row]
        if (problem := problem_of(triple, weight)) is None:
            kept.append((*triple, weight))
        else:
            bad.skip(
                problem,
                f"{where}:{number}: expected head, relation, tail; {problem}: "
                f"{printable(str(tuple(row)))}; "
                "`--set data.skip_bad_lines=N` skips up to N bad rows per file",
            )
    heads, relations, tails, given = ([row[i] for row in kept] for i in range(4))
    return Block(heads, relations, tails, None if weights is None else as_weights(given))


def _as_text(value: object) -> object:
    """Whole numbers as names; everything else is as it is."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return str(value) if is_whole else value


def _are_names(names: list[Any]) -> bool:
    try:
        text = "".join(names)
    except TypeError:  # a value that is not text
        return False
    return all(names) and not _NOT_IN_NAMES.search(text)


def as_weights(weights: Iterable[Any]) -> npt.NDArray[np.float32] | None:
    try:
        numbers = np.array(list(weights), dtype=np.float32)
    except (TypeError, ValueError):
        return None
    return numbers if bool((np.isfinite(numbers) & (numbers > 0)).all()) else None


def keep_relations(
    blocks: Iterable[Block], where: str, settings: Data, found: Found
) -> Iterator[Block]:
    """The blocks without the relations that data.keep_relations does not name."""
    if settings.keep_relations is None:
        yield from blocks
        return
    n_before = n_after = 0
    for block in blocks:
        relations = as_list(block.relations)
        wanted = {name for name in set(relations) if is_kept(name, settings)}
        rows = [row for row, name in enumerate(relations) if name in wanted]
        n_before, n_after = n_before + len(relations), n_after + len(rows)
        heads, tails = as_list(block.heads), as_list(block.tails)
        yield Block(
            [heads[row] for row in rows],
            [relations[row] for row in rows],
            [tails[row] for row in rows],
            None if block.weights is None else block.weights[rows],
        )
    if n_before > n_after:
        dropped = (
            f"dropped triples of other relations than data.keep_relations: {n_before - n_after:,}"
        )
        found.notes.append(f"{where}: {dropped}")


def is_kept(relation: str, settings: Data) -> bool:
    """Does data.keep_relations name a relation, or the last part of its IRI?"""
    if settings.keep_relations is None:
        return True
    kept = listed_names(settings.keep_relations)
    return relation in kept or last_part(relation) in kept


def last_part(iri: str) -> str:
    return re.split("[/#]", iri)[-1]


def as_list(column: Any) -> list[str]:
    """The names in a column."""
    if isinstance(column, list):
        return column
    if isinstance(column, Column):
        return column.fields.names[column.number :: column.fields.width]
    names: list[str] = column.to_numpy(zero_copy_only=False).tolist()
    return names
