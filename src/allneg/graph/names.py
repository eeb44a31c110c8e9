"""Names that look the same and are not: kept as they are, and pointed out."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from allneg.graph.vocabulary import Vocabulary

_TOGETHER = 1 << 22  # names whose likes are looked for at once, about


def name_notes(vocabulary: Vocabulary) -> list[str]:
    """A note for names that differ only in outer spaces, and one for those only in Unicode form."""
    notes = []
    for kind, names in (("entities", vocabulary.entities), ("relations", vocabulary.relations)):
        notes += _twins(
            f"{kind} that differ only in spaces around the name",
            names,
            lambda name: name[0].isspace() or name[-1].isspace(),
            str.strip,
        )
        notes += _twins(
            f"{kind} that differ only in Unicode form (NFC, NFD)",
            names,
            lambda name: not name.isascii(),
            lambda name: unicodedata.normalize("NFC", name),
        )
    return notes


def _twins(
    what: str, names: Sequence[str], is_odd: Callable[[str], bool], plain: Callable[[str], str]
) -> list[str]:
    """A note for odd names that share a plain form, with each other or with a name as it is."""
    twins: list[tuple[int, list[str]]] = []
    # Many names are gone through several times, so that memory stays bounded.
    n_parts = len(names) // _TOGETHER + 1
    for part in range(n_parts):
        groups: dict[str, tuple[int, set[str]]] = {}  # a plain form: where it is first, its names
        for place, name in enumerate(names):
            if is_odd(name) and hash(common := plain(name)) % n_parts == part:
                groups.setdefault(common, (place, set()))[1].add(name)
        if groups:
            for name in names:
                if name in groups:
                    groups[name][1].add(name)
        twins += [(place, sorted(group)) for place, group in groups.values() if len(group) > 1]
    if not twins:
        return []
    # Escaped in full: otherwise the two would look the same here as well.
    example = " and ".join(ascii(name[:40]) for name in min(twins)[1][:2])
    return [f"{what}, kept apart: {len(twins):,}, such as {example}"]
