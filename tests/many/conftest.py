"""The processes, and a graph large enough that all of them have blocks of rows to compare."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from allneg.graph import Graph
from allneg.graph.graph import Vocabulary

# For tasks and workers, which every process imports by name.
sys.path.append(str(Path(__file__).parent))

from workers import Workers

N_ENTITIES, N_RELATIONS = 301, 3  # 301 rows cannot be divided evenly


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Four processes: `workers("rows=2,batch=2", task, …)`."""
    started = Workers()
    yield started
    started.end()


@pytest.fixture(scope="session")
def graph() -> Graph:
    """90 triples among the first and last of 301 entities, so that all shards hold some."""
    rng = np.random.default_rng(3)
    used = np.concatenate([np.arange(20), np.arange(140, 160), np.arange(N_ENTITIES - 20, 301)])
    columns = [rng.choice(used, 90), rng.integers(N_RELATIONS, size=90)]
    triples = np.unique(np.stack([*columns, rng.choice(used, 90)], axis=1), axis=0)
    rng.shuffle(triples)
    names = tuple(f"e{i}" for i in range(N_ENTITIES)), tuple(f"r{i}" for i in range(N_RELATIONS))
    return Graph("made", Vocabulary(*names), triples[:70], triples[70:78], triples[78:])
