"""The cells are those of the paper, and can be selected."""

from __future__ import annotations

import pytest
from reproduction.published import ABLATIONS

from allneg.errors import RecipeError
from allneg.recipe import Recipe
from allneg.recipes import find_recipe
from allneg.reproduce import CELLS, UNAVAILABLE, select

PARTS = ("table1", "table2", "figure1", "norms", "beyond", "ablation", "ensemble")


def test_the_tables_have_all_cells_of_the_paper() -> None:
    printed = [cell for cell in CELLS if cell.paper is not None]
    counts = [sum(cell.part == part for cell in printed) for part in PARTS]
    assert counts == [24, 10, 0, 0, 0, 0, 0]
    mrrs = {cell.name: cell.paper.mrr for cell in printed if cell.paper}
    assert mrrs["fb15k-237/complex-n3"] == 0.37
    assert mrrs["wn18rr/rotate-v2"] == 0.45
    assert sum(mrrs.values()) == pytest.approx(20.36)


def test_an_mrr_lies_between_its_hits() -> None:
    # For ranks r: [r = 1] <= 1/r, and a rank above 10 adds at most 1/11. Digits are rounded to .01.
    for cell in CELLS:
        paper = cell.paper
        if paper is not None and paper.hits1 is not None and paper.hits10 is not None:
            assert paper.hits1 <= paper.mrr + 0.01, cell.name
            assert paper.mrr <= paper.hits10 + (1 - paper.hits10) / 11 + 0.01, cell.name


def test_the_cell_with_swapped_hits_has_a_note() -> None:
    (cell,) = [cell for cell in CELLS if cell.name == "wn18/simple-v2"]
    assert cell.paper is not None
    assert (cell.paper.hits1, cell.paper.hits10) == (0.95, 0.96)
    assert "swapped" in cell.paper.note


def test_an_unavailable_data_set_is_selected_only_by_name() -> None:
    assert not {cell.data for cell in select(PARTS)} & set(UNAVAILABLE)
    assert len(select(["table1"], ["yago3-10"])) == 5


def test_rows_and_data_sets_limit_the_selection() -> None:
    found = select(["table1", "table2"], ["wn18", "wn18rr"], ["complex-v2", "rotate"])
    assert [cell.name for cell in found] == [
        "wn18/complex-v2", "wn18rr/complex-v2", "wn18/rotate", "wn18rr/rotate",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "datasets, rows, message",
    [
        (["wn81"], [], "no dataset is called 'wn81'; close names: 'wn18'"),
        ([], ["complex-v3"], "no row is called 'complex-v3'; close names: "),
        ([], ["nothing"], "no row is called 'nothing'; known names: ablation/loss, "),
        (["wn18"], ["figure1/k-200"], "table1: no cell has these --datasets and --rows"),
    ],
)
def test_an_unknown_name_is_an_error(datasets: list[str], rows: list[str], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        select(["table1"], datasets, rows)
    assert message in str(caught.value)


@pytest.mark.parametrize("row", list(ABLATIONS))
@pytest.mark.parametrize("data", ["fb15k-237", "wn18rr"])
def test_an_ablation_changes_one_thing(data: str, row: str) -> None:
    """The learning rate may differ, as each has the best of the same list."""
    base, settings = ABLATIONS[row]
    one, other = (Recipe.read(find_recipe(f"{data}/{name}")).to_settings() for name in (base, row))
    changed = {name for name in one | other if one.get(name) != other.get(name)}
    assert changed - {"optimizer.learning_rate"} == settings
