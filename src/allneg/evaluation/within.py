"""Which entities may be answers: a list, those seen on this side of the relation, or a type.

Other entities are impossible answers on either side. Scores and probabilities do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.types import Device

from allneg.errors import DataError, UsageError, printable
from allneg.graph.graph import Graph, Vocabulary
from allneg.graph.queries import SIDES, KnownAnswers, Queries


@dataclass(frozen=True)
class Within:
    """The entities that may be answers: the same for all queries, or by side and relation."""

    name: str  # in reports
    entities: Tensor | None = None  # bool (N,)
    train: KnownAnswers | None = None  # answers are the entities that it has on the query's side

    @classmethod
    def parse(cls, text: str, graph: Graph, device: Device = "cpu") -> Within:
        """From `seen`, `type=RELATION:OBJECT` or the path of a list, one name per line."""
        if text == "seen":
            return cls(text, train=KnownAnswers.of_splits(graph, ["train"], device))
        mask = torch.zeros(graph.n_entities, dtype=torch.bool)
        if text.startswith("type="):
            relation, entity = _type(text.removeprefix("type="), graph.vocabulary)
            facts = graph.train[(graph.train[:, 1] == relation) & (graph.train[:, 2] == entity)]
            mask[torch.from_numpy(facts[:, 0])] = True
            if not len(facts):
                raise DataError(f"--within {text}: train has no such fact, so nothing is of it")
            return cls(text, mask.to(device))
        path = Path(text)
        for number, name in enumerate(_lines(path), 1):
            try:
                mask[graph.vocabulary.entity(name)] = True
            except DataError as unknown:
                raise DataError(f"{path.name}:{number}: {unknown}") from None
        return cls(path.name, mask.to(device))

    def allowed(self, side: int, relation: int) -> Tensor:
        """Which entities may be on a side of a relation: bool (N,)."""
        if self.entities is not None:
            return self.entities
        assert self.train is not None
        # A tail of train is the known entity of a query for heads.
        n, block = self.train.n_entities, relation + self.train.n_relations * (1 - side)
        ends = torch.tensor([block * n, (block + 1) * n], device=self.train.keys.device)
        first, last = torch.searchsorted(self.train.keys, ends).tolist()
        mask = torch.zeros(n, dtype=torch.bool, device=self.train.keys.device)
        mask[self.train.keys[first:last] % n] = True
        return mask

    def outside(self, queries: Queries) -> Tensor:
        """Which entities are impossible answers to each query: bool (B, N)."""
        groups, index = torch.stack([queries.side, queries.relation]).unique(
            dim=1, return_inverse=True
        )
        rows = torch.stack([~self.allowed(side, relation) for side, relation in groups.T.tolist()])
        return rows[index]

    def largest(self, graph: Graph) -> int:
        """The most candidates of any query."""
        if self.entities is not None:
            return int(self.entities.sum())
        sides, relations = range(len(SIDES)), range(graph.n_relations)
        return max(int(self.allowed(s, r).sum()) for s in sides for r in relations)


def _type(text: str, names: Vocabulary) -> tuple[int, int]:
    """The relation and the object of RELATION:OBJECT; either may contain colons."""
    parts = text.split(":")
    if len(parts) < 2:
        raise UsageError(f"--within type={text}: write type=RELATION:OBJECT")
    splits = [(":".join(parts[:i]), ":".join(parts[i:])) for i in range(1, len(parts))]
    known = [pair for pair in splits if pair[0] in names.relation_ids]
    relation, entity = known[0] if known else splits[0]
    return names.relation(relation), names.entity(entity)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode().removeprefix("\ufeff")
    except OSError as error:
        raise DataError(
            f"--within {printable(str(path))}: cannot be read ({error.strerror}); write seen, "
            "type=RELATION:OBJECT, or a file with one entity per line"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start:,})") from None
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if lines == [""]:
        raise DataError(f"{path}: no entities; write one name per line")
    return lines
