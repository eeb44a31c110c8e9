"""The cells that the paper prints are possible ones, and the impossible one says that it was."""

from __future__ import annotations

import pytest

from allneg.paper.cells import AIMS, TABLE1, TABLE2, Cell

CELLS = [
    (f"{row} on {data}", cell)
    for table in (TABLE1, TABLE2)
    for row, cells in table.items()
    for data, cell in cells.items()
]


@pytest.mark.parametrize("name, cell", CELLS, ids=[name for name, _ in CELLS])
def test_an_mrr_lies_between_its_hits(name: str, cell: Cell) -> None:
    # Of ranks r: [r = 1] <= 1/r, and [r > 10] counts at most 1/11; digits are rounded to .01.
    if cell.hits1 is not None and cell.hits10 is not None:
        assert cell.hits1 <= cell.mrr + 0.01
        assert cell.mrr <= cell.hits10 + (1 - cell.hits10) / 11 + 0.01


def test_the_swapped_cell_is_read_as_meant_and_says_so() -> None:
    cell = TABLE1["simple-v2"]["wn18"]
    assert (cell.hits1, cell.hits10) == (0.95, 0.96)
    assert "swapped" in cell.note


def test_a_floor_is_the_papers_cell_to_a_digit_and_no_goal_is_below_it() -> None:
    printed = {**TABLE1, **TABLE2}
    for row, aims in AIMS.items():
        for data, aim in aims.items():
            if aim.floor is not None:
                assert aim.floor == pytest.approx(printed[row][data].mrr, abs=0.005)
                assert aim.goal is None or aim.goal >= aim.floor
