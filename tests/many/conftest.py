"""The processes, and a graph large enough that every one of them has blocks of rows to compare."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from allneg.graph import Graph
from allneg.graph.graph import Vocabulary

# Works are found by name in every process.
sys.path.append(str(Path(__file__).parent))

from crew import Crew

N_ENTITIES, N_RELATIONS = 301, 3  # 301 rows are shared evenly by nobody


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """Four processes: `crew("rows=2,batch=2", work, …)`."""
    crew = Crew()
    yield crew
    crew.end()


@pytest.fixture(scope="session")
def graph() -> Graph:
    """90 triples among the first and last of 301 entities, so that every shard holds some."""
    chance = np.random.default_rng(3)
    some = np.concatenate([np.arange(20), np.arange(140, 160), np.arange(N_ENTITIES - 20, 301)])
    columns = [chance.choice(some, 90), chance.integers(N_RELATIONS, size=90)]
    triples = np.unique(np.stack([*columns, chance.choice(some, 90)], axis=1), axis=0)
    chance.shuffle(triples)
    names = tuple(f"e{i}" for i in range(N_ENTITIES)), tuple(f"r{i}" for i in range(N_RELATIONS))
    return Graph("made", Vocabulary(*names), triples[:70], triples[70:78], triples[78:])
