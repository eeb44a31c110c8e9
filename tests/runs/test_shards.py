"""Files of a checkpoint: which belong together, and which rows are in which."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from allneg.runs.files import write_tensors
from allneg.runs.shards import file_name, files_of, own_part, read
from allneg.scoring.distributed import NO_GROUP, Group

ROWS = torch.arange(40_000.0).reshape(20_000, 2)  # more than one block of them


@pytest.fixture
def shards(tmp_path: Path) -> tuple[Path, list[str]]:
    """A folder with three shards of different sizes, and their names."""
    spans = [(0, 1), (1, 19_000), (19_000, 20_000)]
    common = {"relations": torch.ones(3, 2), "entities.step": torch.tensor(7.0)}
    names = []
    for rank, (start, stop) in enumerate(spans):
        rows = Group(rank, 3)
        tensors = own_part({**common, "entities": ROWS[start:stop]}, rows)
        assert ("relations" in tensors) == (rank == 0)
        names.append(file_name("tables", rows))
        write_tensors(tmp_path / names[-1], tensors)
    return tmp_path, names


def test_a_single_process_writes_one_file() -> None:
    assert file_name("tables", NO_GROUP) == "tables.safetensors"
    assert file_name("best", Group(2, 4)) == "best-3-of-4.safetensors"


@pytest.mark.parametrize("span", [None, (0, 20_000), (0, 1), (1, 2), (18_999, 19_001), (5, 19_999)])
def test_rows_are_joined_from_the_files_that_hold_them(
    shards: tuple[Path, list[str]], span: tuple[int, int] | None
) -> None:
    folder, names = shards
    found = read([folder / name for name in names], span)
    assert found["entities"].equal(ROWS[slice(*span) if span else slice(None)])
    assert found["relations"].equal(torch.ones(3, 2))
    assert found["entities.step"].item() == 7


@pytest.mark.parametrize(
    "names",
    [
        ["tables-1-of-2.safetensors"],
        ["tables-2-of-2.safetensors"],
        ["tables-1-of-2.safetensors", "tables-2-of-3.safetensors"],
        ["tables.safetensors", "tables-2-of-2.safetensors"],
        ["tables-0-of-1.safetensors"],
        ["others.safetensors", "tables.json"],
    ],
)
def test_a_kind_with_missing_shards_is_left_out(names: list[str]) -> None:
    assert files_of(names) == {}


def test_more_than_nine_shards_keep_their_order() -> None:
    names = [f"tables-{i}-of-11.safetensors" for i in range(1, 12)]
    assert files_of(sorted(names)) == {"tables": names}
