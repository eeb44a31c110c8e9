"""Make up a large graph: popular entities in many triples, most in few, as in Wikidata.

python benchmarks/large_graph.py FOLDER            5 million entities, 20 million triples

The chance of an entity falls with a power of its place in the order of popularity, and so degrees
follow a power law; that of the k-th relation is 1/k (Zipf). Every entity and relation is in train.
There is nothing to learn in it beyond what is popular. It is written a slice at a time, so that
memory stays small, and the same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from allneg.graph import Graph
from allneg.graph.graph import Vocabulary

Triples = npt.NDArray[np.int64]

_SLICE = 1 << 20  # triples made at once
# Powers of the place: degrees then have a tail of exponent 1 + 1/power, 2.5 and 2.25.
_HEADS, _TAILS = 0.67, 0.8


@dataclass(frozen=True)
class Size:
    """How large a graph to make up."""

    entities: int = 5_000_000
    triples: int = 20_000_000
    relations: int = 800
    held_out: int = 5_000  # of valid, and of test
    seed: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    for name, usual in vars(Size()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=usual)
    given = vars(parser.parse_args())
    write(given.pop("folder"), Size(**given))


def write(folder: Path, size: Size) -> None:
    """train.tsv, valid.tsv and test.tsv in a new folder."""
    folder.mkdir(parents=True)
    for split, slices in splits(size).items():
        with (folder / f"{split}.tsv").open("w") as file:
            for some in slices:
                file.write("".join(map("Q{}\tP{}\tQ{}\n".format, *some.T.tolist())))


def in_memory(size: Size) -> Graph:
    """The same graph as ids, without any text; names are made when they are asked for."""
    found = {split: np.concatenate(list(slices)) for split, slices in splits(size).items()}
    relations = tuple(f"P{number}" for number in range(size.relations))
    return Graph("made up", Vocabulary(Numbers(size.entities), relations), **found)


def splits(size: Size) -> dict[str, Iterator[Triples]]:
    counts = {"train": size.triples, "valid": size.held_out, "test": size.held_out}
    return {
        split: _slices(size, number, count) for number, (split, count) in enumerate(counts.items())
    }


class Numbers(Sequence[str]):
    """Q0, Q1, …"""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(f"Q{each}" for each in range(self._count)[place])
        return f"Q{range(self._count)[place]}"


def _slices(size: Size, split: int, count: int) -> Iterator[Triples]:
    if split == 0 and count < max(size.entities, size.relations):
        raise SystemExit("train needs a triple for each entity and each relation")
    chances = 1 / np.arange(1, size.relations + 1)
    upto = np.cumsum(chances) / chances.sum()
    for start in range(0, count, _SLICE):
        rng = np.random.default_rng((size.seed, split, start))
        n = min(_SLICE, count - start)
        head, tail = (_popular(rng.random(n), size.entities, power) for power in (_HEADS, _TAILS))
        relation = np.searchsorted(upto[:-1], rng.random(n))
        if split == 0:
            # Each has a triple of its own; they are the first ones.
            own = np.arange(start, start + n)
            head[own < size.entities] = own[own < size.entities]
            relation[own < size.relations] = own[own < size.relations]
        yield np.stack([_spread(head, size), relation, _spread(tail, size)], axis=1)


def _popular(chance: npt.NDArray[np.float64], n: int, power: float) -> npt.NDArray[np.int64]:
    """Places from 0, the most popular, to n - 1, drawn by `chance`, which is even from 0 to 1."""
    # The density place**-power, integrated and turned around.
    rest = 1 - power
    place = (1 + chance * ((n + 1) ** rest - 1)) ** (1 / rest) - 1
    return np.minimum(place.astype(np.int64), n - 1)


def _spread(place: npt.NDArray[np.int64], size: Size) -> npt.NDArray[np.int64]:
    """An entity's number, so that popular ones are anywhere among them."""
    step = round(size.entities * (math.sqrt(5) - 1) / 2) | 1
    while math.gcd(step, size.entities) > 1:
        step += 2
    return place * step % size.entities


if __name__ == "__main__":
    main()
