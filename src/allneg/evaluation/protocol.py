"""The rules behind a number: what is filtered, how ties count, who is asked about."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from allneg.errors import RecipeError, close_names
from allneg.graph.graph import SPLITS


@dataclass(frozen=True)
class Protocol:
    """How answers are ranked. Printed with every number."""

    name: str
    ties: Literal["middle", "middle-up", "last"]  # the place of an answer among its equals
    relative: float = 0.0  # scores this close to the answer's, by its size, are equal
    absolute: float = 0.0  # likewise, whatever its size
    filter_valid_by_test: bool = False  # valid's filter knows the answers in test
    unseen: Literal["kept", "dropped"] = "kept"  # queries about entities not in train

    def filter_splits(self, split: str) -> tuple[str, ...]:
        """The splits whose answers are not rivals when `split` is ranked."""
        return SPLITS if split == "test" or self.filter_valid_by_test else ("train", "valid")

    def to_json(self, split: str) -> dict[str, Any]:
        said = asdict(self)
        del said["filter_valid_by_test"]
        return {**said, "split": split, "filter": list(self.filter_splits(split))}

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
    # PyKEEN's vocabulary is that of train: unseen entities are neither asked about nor rivals.
    "pykeen": Protocol("pykeen", "middle", unseen="dropped"),
}


def protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise RecipeError(f"no protocol is called {name!r}{close_names(name, PROTOCOLS)}")
    return PROTOCOLS[name]
