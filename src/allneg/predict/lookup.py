"""Look entities up: their facts, a search for their names and labels, and the reading of labels.

A label is the readable name of an entity whose name is an id.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, printable
from allneg.graph.archives import DAMAGE, decompressed
from allneg.graph.graph import SPLITS, Graph, first_indices, triple_keys

Ids = npt.NDArray[np.int64]

_ENOUGH = 5  # with so many literal matches, no similar names are added
_MIN_SIMILARITY = 0.6  # by difflib's measure
_MAX_COMPARED = 100  # names that difflib compares
_MAX_LENGTH = 64  # characters of a name that difflib compares
_N_CODES = 1 << 18  # hash codes of three characters
_MAX_LINE = 1 << 20  # bytes
_MAX_LABEL = 200  # characters


@dataclass(frozen=True)
class EntityFacts:
    """The facts of one entity as columns: the relation, the other entity and the split."""

    relation: Ids  # (n,)
    other: Ids  # (n,)
    split: Ids  # (n,): an index into SPLITS
    reverse: npt.NDArray[np.bool_]  # (n,): the entity is the fact's tail

    def rows(self, selected: Ids | npt.NDArray[np.bool_]) -> list[tuple[int, int, int, bool]]:
        """(relation, other, split, reverse) of the facts with some indices, or of a mask."""
        columns = (self.relation, self.other, self.split, self.reverse)
        return list(zip(*(column[selected].tolist() for column in columns), strict=True))


@dataclass(frozen=True)
class Facts:
    """All distinct triples. If several splits hold a triple, the first one counts."""

    triples: Ids  # (n, 3)
    split: Ids  # (n,): an index into SPLITS
    degree: Ids  # (N,): the number of facts of each entity

    @classmethod
    def of(cls, graph: Graph) -> Facts:
        parts = [graph.split(name) for name in SPLITS]
        keys = np.concatenate(triple_keys(parts, graph.n_entities, graph.n_relations))
        distinct = first_indices(keys)
        split = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[distinct]
        triples = np.concatenate(parts)[distinct]
        head, tail = triples[:, 0], triples[:, 2]
        entities = np.concatenate([head, tail[head != tail]])  # a loop counts once
        return cls(triples, split, np.bincount(entities, minlength=graph.n_entities))

    def of_entity(self, entity: int) -> EntityFacts:
        # A scan of 20 million triples takes about 50 ms; an index would take more memory.
        index = np.flatnonzero((self.triples[:, 0] == entity) | (self.triples[:, 2] == entity))
        head, relation, tail = self.triples[index].T
        reverse = head != entity
        return EntityFacts(relation, np.where(reverse, head, tail), self.split[index], reverse)

    def between(self, one: int, other: int) -> list[tuple[int, int, int, str]]:
        """The facts between two entities, in either direction: head, relation, tail, split."""
        facts = self.of_entity(one)
        return [
            (other, relation, one, SPLITS[split]) if back else (one, relation, other, SPLITS[split])
            for relation, _, split, back in facts.rows(facts.other == other)
        ]


class NameIndex:
    """Finds exact matches, then prefixes, then substrings, then similar names.

    All names and labels are in one text, ordered by descending weight, so that the first hits of
    a text search have the largest weights. An entry is a line feed, the folded name and, if there
    is a label, a line feed and the folded label.
    """

    def __init__(self, names: Sequence[str], weight: Ids, labels: Mapping[str, str]) -> None:
        """Index names. The weight decides between equal matches."""
        self.names = names
        self.order = np.argsort(-weight, kind="stable")  # (N,): the id of each entry
        self.starts = [0]  # (N + 1,): the offset of each entry, and the end
        parts = []
        for i in self.order.tolist():
            label = labels.get(names[i])
            parts.append("\n" + fold(names[i]) + ("" if label is None else "\n" + fold(label)))
            self.starts.append(self.starts[-1] + len(parts[-1]))
        self.text = "".join([*parts, "\n"])
        entry = np.repeat(np.arange(len(names), dtype=np.int32), np.diff(self.starts))
        code, inside = _trigram_codes(self.text)
        code, entry = code[inside], entry[: len(code)][inside]
        by_code = np.argsort(code, kind="stable")
        # Code c is in the entries code_entries[code_starts[c] : code_starts[c + 1]].
        self.code_entries = entry[by_code]
        self.code_starts = np.searchsorted(code[by_code], np.arange(_N_CODES + 1))

    def search(self, typed: str, limit: int) -> tuple[list[int], str]:
        """The ids of the names that match `typed`; for an empty text, those of largest weight.

        Also how the first was found: all, exact, prefix, infix, fuzzy or none.
        """
        wanted = fold(typed)
        if not wanted:
            return self.order[:limit].tolist(), "all"
        found: dict[int, str] = {}
        kinds = {"exact": f"\n{wanted}\n", "prefix": f"\n{wanted}", "infix": wanted}
        for kind, needle in kinds.items():
            hits = self._hits(needle)
            while len(found) < limit and (hit := next(hits, None)) is not None:
                found.setdefault(hit, kind)
        if len(found) < min(limit, _ENOUGH):
            for hit in self._similar(wanted)[: limit - len(found)]:
                found.setdefault(hit, "fuzzy")
        return [int(self.order[entry]) for entry in found], next(iter(found.values()), "none")

    def close_names(self, typed: str, limit: int = 3) -> list[str]:
        """Names similar to an unknown one, for an error message."""
        return [self.names[i] for i in self.search(typed, limit)[0]] if fold(typed) else []

    def _hits(self, needle: str) -> Iterator[int]:
        """The entries that contain `needle`, in order."""
        at = self.text.find(needle)
        # The line feed at the very end belongs to no entry.
        while 0 <= at < self.starts[-1]:
            entry = bisect_right(self.starts, at) - 1
            yield entry
            at = self.text.find(needle, self.starts[entry + 1])

    def _similar(self, wanted: str) -> list[int]:
        """The entries most similar to `wanted`: preselected by shared trigrams, then by difflib."""
        wanted = wanted[:_MAX_LENGTH]
        code, inside = _trigram_codes(f"\n{wanted}\n")
        codes = np.unique(code[inside]).tolist()
        entries = [self.code_entries[slice(*self.code_starts[c : c + 2])] for c in codes]
        shared = np.bincount(np.concatenate([*entries, []]).astype(int), minlength=len(self.order))
        n_candidates = min(_MAX_COMPARED, int(np.count_nonzero(shared)))
        if not n_candidates:
            return []
        overlap = 2 * shared / (len(codes) + np.diff(self.starts))
        candidates = np.argpartition(-overlap, n_candidates - 1)[:n_candidates].tolist()
        matcher = SequenceMatcher(b=wanted, autojunk=False)
        ranked = sorted((-self._similarity(matcher, entry), entry) for entry in candidates)
        return [entry for negative, entry in ranked if -negative >= _MIN_SIMILARITY]

    def _similarity(self, matcher: SequenceMatcher[str], entry: int) -> float:
        best = 0.0
        for line in self.text[self.starts[entry] + 1 : self.starts[entry + 1]].split("\n"):
            matcher.set_seq1(line[:_MAX_LENGTH])
            if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
                best = max(best, matcher.ratio())
        return best


def fold(text: str) -> str:
    """`text` in lower case without accents, underscores and outer spaces."""
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text.casefold())
        text = "".join(c for c in parts if not unicodedata.combining(c))
    return text.lower().replace("_", " ").replace("\n", " ").strip()


def _trigram_codes(text: str) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """A hash code of every three characters, and which of them lie inside one line."""
    # "surrogatepass": a typed text may contain half of a surrogate pair.
    c = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.int64)
    code = (c[:-2] * 2654435761 + c[1:-1] * 40503 + c[2:] * 97) % _N_CODES
    return code, c[1:-1] != ord("\n")


def read_labels(path: Path) -> dict[str, str]:
    """The label of each name in a file of lines `name TAB label`, plain, .gz or .xz.

    The first label of a name counts. Long labels are cut.
    """
    labels: dict[str, str] = {}
    try:
        with decompressed(lambda: path.open("rb"), path.name) as stream:
            for number, line in enumerate(iter(lambda: stream.readline(_MAX_LINE), b""), 1):
                name, label = _fields(line, f"{path.name}:{number}")
                labels.setdefault(name, label)
    except DAMAGE as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({why})") from None
    return labels


def _fields(line: bytes, where: str) -> tuple[str, str]:
    if len(line) == _MAX_LINE:
        raise DataError(f"{where}: the line has {_MAX_LINE:,} bytes or more; is this a label file?")
    try:
        text = line.decode().removeprefix("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError:
        raise DataError(f"{where}: not UTF-8") from None
    name, _, label = text.partition("\t")
    label = " ".join(label.split())
    if not name or not label:
        raise DataError(f"{where}: expected name, tab, label; found {printable(text)}")
    return name, label if len(label) <= _MAX_LABEL else label[: _MAX_LABEL - 1] + "…"
