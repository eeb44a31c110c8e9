"""Ranking protocols: which answers are filtered, how ties count, which entities are candidates."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from allneg.errors import RecipeError, close_names
from allneg.graph.graph import SPLITS


@dataclass(frozen=True)
class Protocol:
    """How answers are ranked. Every report names it."""

    name: str
    ties: Literal["middle", "middle-up", "last"]  # the rank of an answer among equal scores
    relative: float = 0.0  # scores this close to the answer's, relative to it, count as equal
    absolute: float = 0.0  # likewise, in absolute terms
    filter_valid_by_test: bool = False  # valid is also filtered by the answers in test
    unseen: Literal["kept", "dropped"] = "kept"  # queries about entities that are not in train

    def filter_splits(self, split: str) -> tuple[str, ...]:
        """The splits whose answers are filtered out when `split` is ranked."""
        return SPLITS if split == "test" or self.filter_valid_by_test else ("train", "valid")

    def to_json(self, split: str) -> dict[str, Any]:
        fields = asdict(self)
        del fields["filter_valid_by_test"]
        splits = list(self.filter_splits(split))
        return {**fields, "split": split, "filter": splits, "in_words": self.in_words(split)}

    def in_words(self, split: str) -> str:
        ties = {
            "middle": "ties share the middle place",
            "middle-up": "ties share the middle place, rounded up, with a tolerance",
            "last": "ties count against the answer",
        }[self.ties]
        splits = " + ".join(self.filter_splits(split))
        return f"filtered by {splits}; {ties}; unseen entities {self.unseen}; both sides"


PROTOCOLS = {
    "allneg": Protocol("allneg", "middle"),
    "kbc": Protocol("kbc", "last", filter_valid_by_test=True),
    "libkge": Protocol(
        "libkge", "middle-up", relative=1e-4, absolute=1e-5, filter_valid_by_test=True
    ),
    # PyKEEN's vocabulary comes from train: unseen entities are neither queried nor candidates.
    "pykeen": Protocol("pykeen", "middle", unseen="dropped"),
}


def protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise RecipeError(f"no protocol is called {name!r}{close_names(name, PROTOCOLS)}")
    return PROTOCOLS[name]
