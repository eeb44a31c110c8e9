"""The pages show what the result files hold, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reproduction.__main__ import main
from reproduction.published import TARGETS, Published, Target
from reproduction.results_page import results_page

from allneg import recipes
from allneg.recipe import Recipe
from allneg.reproduce import CELLS, UNAVAILABLE, Cell, Printed, Results
from reproduction import published

Entry = Callable[..., dict[str, Any]]
RECIPE = Recipe()
SIMPLE = Cell("table1", "wn18", "simple-v2", Printed(0.5, 0.4, 0.7, "printed oddly"))
COMPLEX = Cell("table1", "wn18", "complex-v2", Printed(0.6, 0.5, 0.8))
ROTATE = Cell("table2", "wn18", "rotate", Printed(0.9))
POINT, LAST = (Cell("figure1", "fb15k", f"figure1/{size}") for size in ("k-100", "all"))
L1, L2 = (Cell("norms", "fb15k", f"norms/transe-{norm}") for norm in ("l1", "l2"))
BILINEAR = Cell("beyond", "wn18", "bilinear")
YAGO = Cell("table1", "yago3-10", "complex-v2", Printed(0.58))
SOME = (SIMPLE, COMPLEX, YAGO, ROTATE, POINT, LAST, L1, L2, BILINEAR)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")


@pytest.fixture
def page(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """The text of results.md; all cells have the same recipe."""
    monkeypatch.setattr(recipes, "FOLDER", tmp_path / "recipes")
    monkeypatch.setitem(published.TARGETS, "simple-v2", {"wn18": Target(0.5, 0.6)})
    for cell in SOME:
        path = tmp_path / "recipes" / f"{cell.name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RECIPE.to_toml())
    return lambda: results_page(Published(results, SOME, tmp_path / "docs"))


def row(text: str, start: str) -> list[str]:
    """The cells of the only table row that starts with a text."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_committed_pages_are_up_to_date() -> None:
    """If this fails, run `python -m reproduction` in the checkout."""
    assert main(["--check"]) == 0


def test_the_command_writes_pages_that_it_then_finds_up_to_date(
    tmp_path: Path,
    entry: Entry,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib", reason="the figure needs matplotlib")
    cells = [cell for cell in CELLS if cell.data == "fb15k"]
    monkeypatch.setattr("reproduction.__main__.CELLS", cells)
    results, docs = Results(tmp_path / "results"), tmp_path / "docs"
    for cell in cells[::2]:
        results.add(cell, cell.recipe(), entry(0.5))
    arguments = ["--results", str(results.folder), "--docs", str(docs)]
    assert main([*arguments, "--check"]) == 1
    assert "results.md: not up to date; run `python -m reproduction`" in capsys.readouterr().err
    assert main(arguments) == 0
    first = {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()}
    names = {path.name for path in first}
    assert names == {"results.md", "findings.md", "figure1.svg", "figure1.png"}
    assert main([*arguments, "--check"]) == 0
    assert main(arguments) == 0
    assert first == {path: path.read_bytes() for path in first}
    (docs / "findings.md").write_text("edited")
    assert main([*arguments, "--check"]) == 1
    results.path(cells[0]).write_text("{")
    assert main([*arguments, "--check"]) == 4


def test_a_row_has_the_papers_number_ours_and_the_difference(
    page: Callable[[], str], results: Results, entry: Entry
) -> None:
    results.add(COMPLEX, RECIPE, entry(0.62, 0))
    results.add(COMPLEX, RECIPE, entry(0.64, 1))
    text = page()
    assert row(text, "[ComplEx-V2](../recipes/wn18/complex-v2.toml)")[1:] == [
        ".60", ".950", "[.6300](../results/wn18/complex-v2.json) ± .0141", "all", "+.030", ".50",
        ".5800", ".6300", ".80", ".7300", "2 (0, 1)", "12", "3.0", "a machine",
    ]  # fmt: skip
    assert "Protocol: filtered; both sides." in text


def test_an_earlier_result_is_shown_with_its_filter_and_later_beside_the_new_one(
    page: Callable[[], str], results: Results, entry: Entry
) -> None:
    seen = RECIPE.with_settings(["evaluation.filter=seen", "model.dim=3"])
    earlier = "[.6200](../results/seen/wn18/complex-v2.json)"
    Results(results.folder / "seen").add(COMPLEX, seen, entry(0.62))
    text = page()
    assert row(text, "[ComplEx-V2](../recipes/wn18")[1:5] == [".60", ".950", earlier, "seen"]
    assert row(text, "ComplEx-V2 | .620")[1] == ".620\\* (.60)"
    assert "filter seen |" not in text
    results.add(COMPLEX, RECIPE, entry(0.64))
    text = page()
    new = "[.6400](../results/wn18/complex-v2.json)"
    shown = row(text, "[ComplEx-V2](../recipes/wn18")[3:7]
    assert shown == [new, "all", earlier, "+.040"]
    assert "| MRR: ours, filter seen |" in text


def test_the_overview_has_one_row_per_model(
    page: Callable[[], str], results: Results, entry: Entry
) -> None:
    results.add(COMPLEX, RECIPE, entry(0.6254))
    results.add(BILINEAR, RECIPE, entry(0.8))
    text = page().partition("## Overview")[2].partition("## Table 1")[0]
    assert row(text, "ComplEx-V2") == ["ComplEx-V2", ".625 (.60)"]  # no column for YAGO3-10
    assert row(text, "SimplE-V2") == ["SimplE-V2", "not run yet (.50)"]
    assert row(text, "ComplEx with")[1] == ".800"
    assert "L1" not in text


def test_missing_results_notes_and_changed_recipes_are_shown(
    page: Callable[[], str], results: Results, entry: Entry
) -> None:
    results.add(ROTATE, RECIPE.with_settings(["model.dim=3"]), entry(0.8))
    text = page()
    assert row(text, "[ComplEx-V2](../recipes/wn18/complex-v2.toml)")[3] == "not run yet"
    cell = row(text, "[ComplEx-V2](../recipes/yago3-10/complex-v2.toml)")[2]
    assert cell == "not run: the split is not available"
    assert "TransE, from L1 to L2: paper −.078, ours not run yet." in text
    assert row(text, "[SimplE-V2]")[1] == ".50 (1)"
    assert "\n1. Printed oddly.\n" in text
    assert row(text, "[RotatE (256 negatives)]")[3].endswith(".json) (1)")
    assert "1. Made by an earlier recipe, which its result file holds." in text


@pytest.mark.parametrize(
    "mrr, verdict",
    [
        (0.49, "below the floor"),
        (0.4952, "below the floor; reaches the paper's two digits"),
        (0.5, "floor reached"),
        (0.6, "goal reached"),
    ],
)
def test_floors_and_goals_are_judged(
    page: Callable[[], str], results: Results, entry: Entry, mrr: float, verdict: str
) -> None:
    results.add(SIMPLE, RECIPE, entry(mrr))
    expected = ["SimplE-V2", "WN18", ".500", ".600", f"{mrr:.4f}"[1:], "all", verdict]
    assert row(page(), "SimplE-V2 | WN18") == expected


def test_a_floor_has_at_least_the_papers_digits_and_no_goal_is_below_it() -> None:
    printed = {(cell.row, cell.data): cell.paper for cell in CELLS}
    for name, targets in TARGETS.items():
        for data, target in targets.items():
            paper = printed[name, data]
            if target.floor is not None and paper is not None:
                assert target.floor >= paper.mrr - 0.005 - 1e-9, (name, data)
                assert target.goal is None or target.goal >= target.floor


def test_every_row_of_the_tables_has_a_floor() -> None:
    for cell in CELLS:
        if cell.paper is not None and cell.data not in UNAVAILABLE:
            assert TARGETS[cell.row][cell.data].floor is not None, cell.name


def test_the_best_single_model_and_missing_ensembles_have_rows(
    page: Callable[[], str], results: Results, entry: Entry
) -> None:
    results.add(BILINEAR, RECIPE, entry(0.96))
    results.add(COMPLEX, RECIPE, entry(0.95))
    best = "Best single model: ComplEx with relation prediction or DURA"
    expected = [best, "WN18", "", ".953", ".9600", "all", "goal reached"]
    text = page()
    assert row(text, best) == expected
    assert row(text, "Best single model | WN18RR")[-1] == "not run yet"


def test_a_model_with_the_l2_norm_says_so(
    page: Callable[[], str], results: Results, entry: Entry
) -> None:
    results.add(ROTATE, RECIPE.with_settings(["model.name=rotate", "model.norm=2"]), entry(0.9))
    text = page()
    assert row(text, "[RotatE (256 negatives), L2 norm]")
    assert row(text, "RotatE (256 negatives) |")[1] == ".900 with L2 (.90)"


def test_the_loss_by_l2_is_computed_from_our_numbers(
    page: Callable[[], str], results: Results, entry: Entry
) -> None:
    results.add(L1, RECIPE, entry(0.7))
    results.add(L2, RECIPE, entry(0.65))
    assert "TransE, from L1 to L2: paper −.078, ours −.050." in page()


def test_the_figure_is_shown_if_there_is_a_curve(
    page: Callable[[], str], results: Results, entry: Entry
) -> None:
    results.add(POINT, RECIPE, entry(0.7))
    assert "figure1.svg" not in page()  # one point is not a curve
    results.add(LAST, RECIPE, entry(0.8))
    assert "figure1.svg" in page()
