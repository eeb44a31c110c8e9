"""Run the fuzz targets on the corpus and on random changes of it, without the fuzzer."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: str(path.relative_to(CORPUS)))
def test_an_input_of_the_corpus_is_read_or_refused(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_changed_at_random_are_read_or_refused(name: str) -> None:
    rng = random.Random(0)
    seeds = [path.read_bytes() for path in INPUTS if path.parent.name == name]
    assert len(seeds) > 5
    for _ in range(200):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            where = rng.randrange(len(data) + 1)
            data[where : where + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
        TARGETS[name](bytes(data))
