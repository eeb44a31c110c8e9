"""What a person types → names: exact, then prefix, then infix, then fuzzy."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

_ENOUGH = 5  # so many names found as typed, and nothing is guessed
_ALIKE = 0.6  # the least likeness of a guess, by difflib's measure
_GUESSED = 100  # candidates that are measured so
_LONGEST_GUESS = 64  # characters; longer ones are compared by their beginning
_CODES = 1 << 18  # different codes of three characters


@dataclass(frozen=True)
class Found:
    """The names that a text means."""

    ids: list[int]  # best first
    match: str  # how the first was found: all, exact, prefix, infix, fuzzy or none


@dataclass(frozen=True)
class Names:
    """Every name and label in one text, those of heavy weight first.

    An entry is a line feed, the name and, where there is one, a line feed and the label, both
    folded. So the first hits of a plain text search are the weightiest.
    """

    order: Ids  # int64 (N,): the id of each entry
    text: str
    starts: list[int]  # where each entry begins, and the end
    codes: npt.NDArray[np.int64]  # (_CODES + 1,): where the entries of each code begin
    entries: npt.NDArray[np.int32]  # the entries that hold a code, code by code
    names: Sequence[str]  # by id, as they are

    @classmethod
    def of(cls, names: Sequence[str], weight: Ids, labels: Mapping[str, str]) -> Names:
        """Names with the weight that decides between equal matches."""
        order = np.argsort(-weight, kind="stable")
        parts, starts = [], [0]
        for i in order.tolist():
            label = labels.get(names[i])
            part = "\n" + fold(names[i]) + ("" if label is None else "\n" + fold(label))
            parts.append(part)
            starts.append(starts[-1] + len(part))
        text = "".join([*parts, "\n"])
        entry = np.repeat(np.arange(len(names), dtype=np.int32), np.diff(starts))
        code, whole = _three(text)
        code, entry = code[whole], entry[: len(code)][whole]
        by_code = np.argsort(code, kind="stable")
        ends = np.searchsorted(code[by_code], np.arange(_CODES + 1))
        return cls(order, text, starts, ends, entry[by_code], names)

    def search(self, typed: str, limit: int) -> Found:
        """The names that `typed` means; with nothing typed, the weightiest."""
        wanted = fold(typed)
        if not wanted:
            return Found(self.order[:limit].tolist(), "all")
        found: dict[int, str] = {}
        kinds = {"exact": f"\n{wanted}\n", "prefix": f"\n{wanted}", "infix": wanted}
        for kind, needle in kinds.items():
            hits = self._hits(needle)
            while len(found) < limit and (hit := next(hits, None)) is not None:
                found.setdefault(hit, kind)
        if len(found) < min(limit, _ENOUGH):
            for hit in self._alike(wanted)[: limit - len(found)]:
                found.setdefault(hit, "fuzzy")
        ids = self.order[list(found)].tolist() if found else []
        return Found(ids, next(iter(found.values()), "none"))

    def close_names(self, typed: str, most: int = 3) -> list[str]:
        """Names like an unknown one, for a message."""
        return [self.names[i] for i in self.search(typed, most).ids] if fold(typed) else []

    def _hits(self, needle: str) -> Iterator[int]:
        """The entries that hold `needle`, in order."""
        at = self.text.find(needle)
        # The line feed at the very end belongs to no entry.
        while 0 <= at < self.starts[-1]:
            entry = bisect_right(self.starts, at) - 1
            yield entry
            at = self.text.find(needle, self.starts[entry + 1])

    def _alike(self, wanted: str) -> list[int]:
        """The entries most like `wanted`: many codes in common, then difflib's likeness."""
        wanted = wanted[:_LONGEST_GUESS]
        code, whole = _three(f"\n{wanted}\n")
        asked = np.unique(code[whole])
        lists = [self.entries[self.codes[c] : self.codes[c + 1]] for c in asked.tolist()]
        shared = np.bincount(np.concatenate(lists), minlength=len(self.order)) if lists else None
        if shared is None or not shared.any():
            return []
        likeness = 2 * shared / (len(asked) + np.diff(self.starts))
        most = min(_GUESSED, int(np.count_nonzero(shared)))
        candidates = np.argpartition(-likeness, most - 1)[:most]
        matcher = SequenceMatcher(b=wanted, autojunk=False)
        measured = sorted((-self._likeness(matcher, i), i) for i in candidates.tolist())
        return [i for likeness, i in measured if -likeness >= _ALIKE]

    def _likeness(self, matcher: SequenceMatcher[str], entry: int) -> float:
        best = 0.0
        for line in self.text[self.starts[entry] + 1 : self.starts[entry + 1]].split("\n"):
            matcher.set_seq1(line[:_LONGEST_GUESS])
            if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
                best = max(best, matcher.ratio())
        return best


def fold(text: str) -> str:
    """`text` without case, accents, underscores and outer spaces."""
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text.casefold())
        text = "".join(c for c in parts if not unicodedata.combining(c))
    return text.lower().replace("_", " ").replace("\n", " ").strip()


def _three(text: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """A code of every three characters in a row, and which do not reach over a line feed."""
    # A name may hold half of a character pair, which UTF-32 proper has no place for.
    c = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.int64)
    code = (c[:-2] * 2654435761 + c[1:-1] * 40503 + c[2:] * 97) % _CODES
    return code, c[1:-1] != ord("\n")
