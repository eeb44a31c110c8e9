"""Names that look the same and are not: kept as they are, and pointed out."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from allneg.graph.vocabulary import Vocabulary


def name_notes(vocabulary: Vocabulary) -> list[str]:
    """A note for names that differ only in outer spaces, and one for those only in Unicode form."""
    notes = []
    for kind, names in (("entities", vocabulary.entities), ("relations", vocabulary.relations)):
        notes += _twins(
            f"{kind} that differ only in spaces around the name",
            names,
            (name for name in names if name[0].isspace() or name[-1].isspace()),
            str.strip,
        )
        notes += _twins(
            f"{kind} that differ only in Unicode form (NFC, NFD)",
            names,
            (name for name in names if not name.isascii()),
            lambda name: unicodedata.normalize("NFC", name),
        )
    return notes


def _twins(
    what: str, names: Sequence[str], odd: Iterable[str], plain: Callable[[str], str]
) -> list[str]:
    groups: dict[str, set[str]] = defaultdict(set)
    for name in odd:
        groups[plain(name)].add(name)
    if not groups:
        return []
    everyone = set(names)
    for common, group in groups.items():
        if common in everyone:
            group.add(common)
    twins = [sorted(group) for group in groups.values() if len(group) > 1]
    if not twins:
        return []
    # Escaped in full: otherwise the two would look the same here as well.
    example = " and ".join(ascii(name[:40]) for name in twins[0][:2])
    return [f"{what}, kept apart: {len(twins):,}, such as {example}"]
