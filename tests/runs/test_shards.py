"""Files of a checkpoint: which belong together, and which rows are in which."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from allneg.runs.files import write_json, write_tensors
from allneg.runs.shards import file_name, files_of, own_part, read
from allneg.scoring.shard import NO_GROUP, Group

ROWS = torch.arange(40_000.0).reshape(20_000, 2)  # more than one block of them


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A kind in three shards of unlike size."""
    spans = [(0, 1), (1, 19_000), (19_000, 20_000)]
    whole = {"relations": torch.ones(3, 2), "entities.step": torch.tensor(7.0)}
    manifest = {}
    for rank, (start, stop) in enumerate(spans):
        rows = Group(rank, 3)
        tensors = own_part({**whole, "entities": ROWS[start:stop]}, rows)
        assert ("relations" in tensors) == (rank == 0)
        name = file_name("tables", rows)
        manifest[name] = write_tensors(tmp_path / name, tensors)
    write_json(tmp_path / "manifest.json", manifest)
    (tmp_path / "tables-1-of-2.safetensors").write_bytes(b"of another save")
    return tmp_path


def test_a_lone_process_writes_one_file() -> None:
    assert file_name("tables", NO_GROUP) == "tables.safetensors"
    assert file_name("best", Group(2, 4)) == "best-3-of-4.safetensors"


def test_shards_are_joined_in_their_order(folder: Path) -> None:
    found = read(folder, "tables")
    assert found["entities"].equal(ROWS)
    assert found["relations"].equal(torch.ones(3, 2))
    assert found["entities.step"].item() == 7


@pytest.mark.parametrize("span", [(0, 20_000), (0, 1), (1, 2), (18_999, 19_001), (5, 19_999)])
def test_a_span_is_read_from_whichever_files_hold_it(folder: Path, span: tuple[int, int]) -> None:
    found = read(folder, "tables", span)
    assert found["entities"].equal(ROWS[span[0] : span[1]])
    assert len(found["relations"]) == 3
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
def test_a_kind_that_is_not_whole_is_not_there(names: list[str]) -> None:
    assert files_of(names) == {}


def test_more_than_nine_shards_keep_their_order() -> None:
    names = [f"tables-{i}-of-11.safetensors" for i in range(1, 12)]
    assert files_of(sorted(names)) == {"tables": names}
