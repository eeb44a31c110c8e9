"""The pages say what the result files hold, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg import paper
from allneg.paper import Number, Results
from allneg.paper.cells import Cell, StopAt
from allneg.paper.findings import findings
from allneg.paper.pages import results_text, write_pages
from allneg.recipe import Recipe

Entry = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]
RECIPE = Recipe()
NUMBERS = (
    Number("table1", "wn18", "simple-v2", Cell(0.5, 0.4, 0.7, "printed oddly"), StopAt(0.5, 0.6)),
    Number("table1", "wn18", "complex-v2", Cell(0.6, 0.5, 0.8), StopAt(0.6)),
    Number("table1", "yago3-10", "complex-v2", Cell(0.58)),
    Number("table2", "wn18", "rotate", Cell(0.9)),
    Number("figure1", "fb15k", "figure1/k-100"),
    Number("figure1", "fb15k", "figure1/all"),
    Number("norms", "fb15k", "norms/transe-l1"),
    Number("norms", "fb15k", "norms/transe-l2"),
    Number("beyond", "wn18", "bilinear", None, StopAt(goal=0.9)),
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write the pages; the text of results.md. The recipes are all alike."""

    def pages(results: Results) -> str:
        for number in NUMBERS:
            path = number.recipe_file(tmp_path / "recipes")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(RECIPE.to_toml())
        write_pages(tmp_path / "docs", results, NUMBERS, tmp_path / "recipes", print)
        return (tmp_path / "docs" / "results.md").read_text()

    return pages


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")


def test_the_committed_pages_are_those_of_the_committed_results() -> None:
    """Where this fails, `allneg reproduce` in the checkout writes them anew."""
    docs, results = ROOT / "docs", Results(ROOT / "results")
    text = results_text(docs, results, paper.NUMBERS, ROOT / "recipes")
    assert (docs / "results.md").read_text() == text
    assert (docs / "findings.md").read_text() == findings(results, paper.NUMBERS, docs)


def row(text: str, start: str) -> list[str]:
    """The cells of the one table row that begins so."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_cell_has_the_papers_number_ours_and_the_difference(
    write: Callable[..., str], results: Results, entry: Entry
) -> None:
    results.add(NUMBERS[1], RECIPE, entry(0.62, 0))
    results.add(NUMBERS[1], RECIPE, entry(0.64, 1))
    text = write(results)
    assert row(text, "[ComplEx-V2](../recipes/wn18/complex-v2.toml)")[1:] == [
        ".60", "[.6300](../results/wn18/complex-v2.json) ± .0141", "+.030", ".50", ".5800", ".6300",
        ".80", ".7300", "2 (0, 1)", "12", "3.0", "a machine",
    ]  # fmt: skip
    assert "Protocol: filtered; both sides." in text


def test_one_table_shows_everything_at_a_glance(
    write: Callable[..., str], results: Results, entry: Entry
) -> None:
    results.add(NUMBERS[1], RECIPE, entry(0.6254))
    results.add(NUMBERS[8], RECIPE, entry(0.8))
    text = write(results).partition("## At a glance")[2].partition("## Table 1")[0]
    assert row(text, "ComplEx-V2") == ["ComplEx-V2", ".625 (.60)"]  # no column for YAGO3-10
    assert row(text, "SimplE-V2") == ["SimplE-V2", "not run yet (.50)"]
    assert row(text, "ComplEx with")[1] == ".800"
    assert "L1" not in text


def test_what_is_missing_says_so(write: Callable[..., str], results: Results) -> None:
    text = write(results)
    assert row(text, "[ComplEx-V2](../recipes/wn18/complex-v2.toml)")[2] == "not run yet"
    cell = row(text, "[ComplEx-V2](../recipes/yago3-10/complex-v2.toml)")[2]
    assert cell == "not run here: split not available"
    assert "TransE, from L1 to L2: paper −.078, ours not run yet." in text


def test_a_note_stands_under_its_table(write: Callable[..., str], results: Results) -> None:
    text = write(results)
    assert row(text, "[SimplE-V2]")[1] == ".50 (1)"
    assert "\n1. Printed oddly.\n" in text


def test_a_result_of_an_earlier_recipe_says_so(
    write: Callable[..., str], results: Results, entry: Entry
) -> None:
    results.add(NUMBERS[3], RECIPE.with_settings(["model.dim=3"]), entry(0.8))
    text = write(results)
    assert row(text, "[RotatE, 256 negatives]")[2].endswith(".json) (1)")
    assert "1. Made by an earlier recipe, which its result file holds." in text


@pytest.mark.parametrize(
    "mrr, verdict",
    [
        (0.49, "below the floor"),
        (0.4952, "below the floor; equal in the two digits printed"),
        (0.5, "floor holds"),
        (0.6, "goal reached"),
    ],
)
def test_floors_and_goals_are_judged(
    write: Callable[..., str], results: Results, entry: Entry, mrr: float, verdict: str
) -> None:
    results.add(NUMBERS[0], RECIPE, entry(mrr))
    said = row(write(results), "SimplE-V2 | WN18")
    assert said == ["SimplE-V2", "WN18", ".500", ".600", f"{mrr:.4f}"[1:], verdict]


def test_a_lost_norm_is_ours_less_ours(
    write: Callable[..., str], results: Results, entry: Entry
) -> None:
    results.add(NUMBERS[6], RECIPE, entry(0.7))
    results.add(NUMBERS[7], RECIPE, entry(0.65))
    assert "TransE, from L1 to L2: paper −.078, ours −.050." in write(results)


def test_a_figure_is_there_where_there_is_a_curve(
    write: Callable[..., str], results: Results, entry: Entry, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the figure takes matplotlib")
    figure = tmp_path / "docs" / "figures" / "figure1.svg"
    results.add(NUMBERS[4], RECIPE, entry(0.7))
    assert "figure1.svg" not in write(results)  # one point is no curve
    results.add(NUMBERS[5], RECIPE, entry(0.8))
    assert "figure1.svg" in write(results)
    assert figure.exists()
    NUMBERS[5].result_file(results.folder).unlink()
    assert "figure1.svg" not in write(results)
    assert not figure.exists()  # it would not be of these results


def test_quick_pages_begin_with_a_warning_and_judge_nothing(
    write: Callable[..., str], entry: Entry, tmp_path: Path
) -> None:
    results = Results(tmp_path / "results", quick=True)
    results.add(NUMBERS[0], RECIPE.with_settings(["model.dim=7"]), entry(0.6))
    text = write(results)
    assert text.startswith("**QUICK")
    assert ".6000" in text
    assert "earlier recipe" not in text
    assert "goal reached" not in text
    assert not (tmp_path / "docs" / "findings.md").exists()


def test_the_same_results_give_the_same_pages(
    write: Callable[..., str], results: Results, entry: Entry, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the figure takes matplotlib")
    for i, number in enumerate(NUMBERS):
        results.add(number, RECIPE, entry(0.1 * i))

    def everything() -> dict[str, bytes]:
        docs = tmp_path / "docs"
        return {str(path): path.read_bytes() for path in docs.rglob("*") if path.is_file()}

    write(results)
    first = everything()
    write(results)
    assert everything() == first
    assert {Path(path).name for path in first} == {
        "results.md", "findings.md", "figure1.svg", "figure1.png",
    }  # fmt: skip
