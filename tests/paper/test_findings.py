"""Every finding follows from result files, and names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.paper import Number, Results
from allneg.paper.cells import Cell, StopAt
from allneg.paper.findings import findings
from allneg.recipe import Recipe

Entry = Callable[..., dict[str, Any]]
RECIPE = Recipe()


@pytest.fixture
def found(tmp_path: Path, entry: Entry) -> Callable[..., str]:
    """The page about some numbers and the MRRs of those that were run."""

    def page(*numbers: tuple[Number, float | None]) -> str:
        results = Results(tmp_path / "results")
        for number, mrr in numbers:
            if mrr is not None:
                results.add(number, RECIPE, entry(mrr))
        return findings(results, [number for number, _ in numbers], tmp_path / "docs")

    return page


def few(mrr: float | None) -> tuple[Number, float | None]:
    return Number("table1", "wn18", "complex", Cell(0.81)), mrr


def every(mrr: float | None) -> tuple[Number, float | None]:
    return Number("table1", "wn18", "complex-v2", Cell(0.86), StopAt(0.86)), mrr


@pytest.mark.parametrize(
    "after, sentence",
    [
        (0.85, "yes; ComplEx rises from .800 to .850, +.050 (paper from .81 to .86)"),
        (0.81, "a little; ComplEx rises from .800 to .810, +.010 (paper from .81 to .86)"),
        (0.7, "no; ComplEx falls from .800 to .700, −.100 (paper from .81 to .86)"),
        (0.801, "no; ComplEx does not move from .800 to .801, +.001 (paper from .81 to .86)"),
        # What is said is what the printed digits say.
        (0.8197, "yes; ComplEx rises from .800 to .820, +.020 (paper from .81 to .86)"),
        (0.8027, "a little; ComplEx rises from .800 to .803, +.003 (paper from .81 to .86)"),
        (0.7999, "no; ComplEx does not move from .800 to .800, +.000 (paper from .81 to .86)"),
    ],
)
def test_a_gain_is_told_beside_the_papers(
    found: Callable[..., str], after: float, sentence: str
) -> None:
    files = (
        "[wn18/complex](../results/wn18/complex.json), "
        "[wn18/complex-v2](../results/wn18/complex-v2.json)"
    )
    assert f"- WN18: {sentence}: {files}.\n" in found(few(0.8), every(after))


def test_several_seeds_are_told_with_their_spread(
    found: Callable[..., str], tmp_path: Path, entry: Entry
) -> None:
    seeds = Results(tmp_path / "results")
    for seed, mrr in ((1, 0.84), (2, 0.86)):
        seeds.add(every(None)[0], RECIPE, entry(mrr, seed))
    said = found(few(0.8), every(0.85))
    assert "ComplEx rises from .800 to .850 ± .010, +.050" in said
    assert "ComplEx-V2, .8500 ± .0100 where the floor is .860" in said
    assert "epoch 4, 4 and 4 of 100, valid .8600, .8500 and .8700" in said
    assert "On test 1 of 3 seeds hold the floor." in said


def test_what_else_two_recipes_differ_in_is_named(
    found: Callable[..., str], tmp_path: Path, entry: Entry
) -> None:
    other = RECIPE.with_settings(
        [
            "loss.negatives=shared",
            "loss.n_negatives=5",
            "regularizer.weight=0.9",
            "training.batch_size=7",
        ]
    )
    Results(tmp_path / "results").add(few(None)[0], other, entry(0.8))
    assert "+.050 (paper from .81 to .86); they differ in penalty weight, batch size, too: " in (
        found(every(0.85), few(None))
    )


def test_what_was_not_run_is_named(found: Callable[..., str]) -> None:
    assert "- WN18: not run yet (`complex-v2`).\n" in found(few(0.8), every(None))


def test_models_that_end_together_are_not_told_apart(found: Callable[..., str]) -> None:
    rows = ("simple-v2", "complex-v2", "complex-n3")

    def page(*mrrs: float) -> str:
        numbers = [Number("table1", "wn18", row) for row in rows]
        return found(*zip(numbers, mrrs, strict=True))

    alike = page(0.5, 0.501, 0.502)
    assert "yes; from SimplE-V2, .500, to ComplEx-N3, .502: .002 apart, called none; " in alike
    nearly = page(0.5, 0.505, 0.51)
    assert "nearly; from SimplE-V2, .500, to ComplEx-N3, .510: .010 apart; " in nearly
    assert "no; from SimplE-V2, .500, to ComplEx-N3, .520: .020 apart; " in page(
        0.5, 0.51, 0.51996
    )  # by the digits that are printed
    assert "no; from ComplEx-V2, .450, to SimplE-V2, .500: .050 apart; " in page(0.5, 0.45, 0.48)


@pytest.mark.parametrize(
    "mrrs, where",
    [
        ((0.3, 0.496, 0.5, 0.499), "from 400 negatives on"),
        ((0.499, 0.4, 0.5, 0.499), "from 1,000 negatives on"),  # a lucky point does not count
        ((0.1, 0.2, 0.3, 0.5), "nowhere before every entity"),
        ((0.3, 0.504, 0.503, 0.5), "from 400 negatives on; most, .504, with 400"),
    ],
)
def test_a_curve_is_flat_where_it_stays_near_its_end(
    found: Callable[..., str], mrrs: tuple[float, ...], where: str
) -> None:
    rows = ("figure1/k-100", "figure1/k-400", "figure1/k-1000", "figure1/all")
    numbers = [Number("figure1", "fb15k", row) for row in rows]
    page = found(*zip(numbers, mrrs, strict=True))
    assert f"within .005 of that {where}: [fb15k/figure1](../results/fb15k/figure1)." in page
    assert f"- FB15k: {'no' if where.startswith('nowhere') else 'yes'}; " in page


@pytest.mark.parametrize(
    "mrrs, verdict",
    [
        ((0.3, 0.496, 0.5), "perhaps, as nothing was run between 1,000 and 4,000"),
        ((0.499, 0.496, 0.5), "yes"),
        ((0.499, 0.4, 0.5), "no"),
    ],
)
def test_a_curve_is_not_judged_where_nothing_was_run(
    found: Callable[..., str], mrrs: tuple[float, ...], verdict: str
) -> None:
    rows = ("figure1/k-1000", "figure1/k-4000", "figure1/all")
    numbers = [Number("figure1", "wn18rr", row) for row in rows]
    assert f"- WN18RR: {verdict}; " in found(*zip(numbers, mrrs, strict=True))


@pytest.mark.parametrize("l2, verdict", [(0.63, "yes, or more"), (0.65, "less"), (0.699, "no")])
def test_norms_are_compared_with_l1(found: Callable[..., str], l2: float, verdict: str) -> None:
    rows = ("norms/rotate-l1", "norms/rotate-l2", "norms/rotate-squared")
    numbers = [Number("norms", "fb15k", row) for row in rows]
    page = found(*zip(numbers, (0.7, l2, 0.71), strict=True))
    lost = f"{0.7 - l2:.3f}"[1:]
    assert f"RotatE: {verdict}; L1 .700, L2 {f'{l2:.3f}'[1:]}, −{lost} (paper −.065)" in page
    assert "a matrix product, has .710, +.010 to L1" in page
    assert "FB15k: not run yet (`norms/transe-l1`, `norms/transe-l2`)." in page


def test_a_missed_floor_is_listed_with_what_was_tried(found: Callable[..., str]) -> None:
    page = found(few(0.8), every(0.85))
    assert "ComplEx-V2, .8500 where the floor is .860, by dim 100, n3 0.01, adagrad 0.1" in page
    assert "epoch 4 of 100, valid .8600 ([wn18/complex-v2](" in page
    assert "tried" not in page
    assert "two digits" not in page
    assert "in the two digits that the paper prints it is .86." in found(every(0.8571)).lower()
    assert "Nothing that was run." in found(few(0.8), every(0.87))


def test_what_was_tried_before_is_told_with_its_file(
    found: Callable[..., str], tmp_path: Path, entry: Entry
) -> None:
    recipe = RECIPE.with_settings(["model.entity_dropout=0.3", "regularizer.name=none"])
    Results(tmp_path / "results").add(every(None)[0], recipe, entry(0.7))
    page = found(every(0.85))
    file = "[complex-v2-1](../results/tried/wn18/complex-v2-1.json)"
    assert f"Valid of what else was tried: {file} .7100.\n" in page


@pytest.mark.parametrize(
    "settings, words",
    [
        (
            ["model.entity_dropout=0.3", "regularizer.name=none"],
            "dim 100, dropout 0.3 and 0, adagrad",
        ),
        (["model.name=rotate", "model.norm=2"], "dim 100, L2 norm, n3 0.01, adagrad 0.1"),
        (["loss.name=self-adversarial", "loss.margin=6"], "dim 100, self-adversarial, n3 0.01"),
        (["loss.relation_weight=0.5"], "dim 100, relation prediction 0.5, n3 0.01, adagrad"),
    ],
)
def test_a_recipe_is_told_by_what_is_special_in_it(
    tmp_path: Path, entry: Entry, settings: list[str], words: str
) -> None:
    results, (number, _) = Results(tmp_path / "results"), every(None)
    results.add(number, RECIPE.with_settings(settings), entry(0.7))
    assert f", by {words}" in findings(results, [number], tmp_path / "docs")


def test_goals_are_judged(found: Callable[..., str]) -> None:
    number = Number("beyond", "wn18", "bilinear", None, StopAt(goal=0.9))
    assert "has .910 and reaches its goal, .900" in found((number, 0.91))
    assert "has .890 and stays below its goal, .900" in found((number, 0.89))
