"""Every finding follows from result files, and links to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reproduction.findings_page import findings_page
from reproduction.published import Published

from allneg.recipe import Recipe
from allneg.reproduce import Cell, Printed, Result, Results

Entry = Callable[..., dict[str, Any]]
RECIPE = Recipe()
FEW = Cell("table1", "wn18", "complex", Printed(0.81))  # its floor is .94
EVERY = Cell("table1", "wn18", "complex-v2", Printed(0.95))  # its floor is .95


@pytest.fixture
def page(tmp_path: Path, entry: Entry) -> Callable[..., str]:
    """The page for some cells and the MRR of each; None for a cell without a result."""

    def make(*numbers: tuple[Cell, float | None]) -> str:
        results = Results(tmp_path / "results")
        for cell, mrr in numbers:
            if mrr is not None:
                results.add(cell, RECIPE, entry(mrr))
        return findings_page(Published(results, [cell for cell, _ in numbers], tmp_path / "docs"))

    return make


@pytest.mark.parametrize(
    "after, sentence",
    [
        (0.85, "yes. ComplEx rises from .800 to .850, +.050"),
        (0.81, "a little. ComplEx rises from .800 to .810, +.010"),
        (0.7, "no. ComplEx falls from .800 to .700, −.100"),
        (0.801, "no. ComplEx stays about the same, from .800 to .801, +.001"),
        # The verdict agrees with the printed digits.
        (0.8197, "yes. ComplEx rises from .800 to .820, +.020"),
        (0.8027, "a little. ComplEx rises from .800 to .803, +.003"),
        (0.7999, "no. ComplEx stays about the same, from .800 to .800, +.000"),
    ],
)
def test_a_gain_is_compared_with_the_papers(
    page: Callable[..., str], after: float, sentence: str
) -> None:
    files = (
        "Files: [wn18/complex](../results/wn18/complex.json), "
        "[wn18/complex-v2](../results/wn18/complex-v2.json)"
    )
    weak = "The row with few negatives is below its floor, so the gain is overestimated."
    expected = f"- WN18: {sentence} (paper: .81 to .95). {weak} {files}.\n"
    text = page((FEW, 0.8), (EVERY, after))
    assert expected in text
    assert weak not in page((FEW, 0.95), (EVERY, after))


def test_several_seeds_have_a_spread(
    page: Callable[..., str], tmp_path: Path, entry: Entry
) -> None:
    seeds = Results(tmp_path / "results")
    for seed, mrr in ((1, 0.93), (2, 0.95)):
        seeds.add(EVERY, RECIPE, entry(mrr, seed))
    text = page((FEW, 0.8), (EVERY, 0.94))
    assert "ComplEx rises from .800 to .940 ± .010, +.140" in text
    assert "ComplEx-V2 has .9400 ± .0100; its floor is .950." in text
    assert "epoch 4, 4 and 4 of 100, validation MRR .9500, .9400 and .9600 with filter all" in text
    assert " 1 of 3 seeds reach the floor on test." in text


def test_other_differences_between_two_recipes_are_listed(
    page: Callable[..., str], tmp_path: Path, entry: Entry
) -> None:
    other = RECIPE.with_settings(
        [
            "loss.negatives=shared",
            "loss.n_negatives=5",
            "regularizer.weight=0.9",
            "training.batch_size=7",
        ]
    )
    Results(tmp_path / "results").add(FEW, other, entry(0.8))
    text = page((EVERY, 0.85), (FEW, None))
    assert ". The recipes also differ in regularizer weight and batch size. Files: " in text


def test_missing_results_are_listed(page: Callable[..., str]) -> None:
    assert "- WN18: not run yet (`complex-v2`).\n" in page((FEW, 0.8), (EVERY, None))


@pytest.mark.parametrize(
    "mrrs, sentence",
    [
        (
            (0.5, 0.501, 0.502),
            "yes. SimplE-V2 has .500 and ComplEx-N3 has .502: a difference of .002, which counts "
            "as none. ",
        ),
        ((0.5, 0.505, 0.51), "nearly. SimplE-V2 has .500 and ComplEx-N3 has .510: "),
        # By the printed digits.
        ((0.5, 0.51, 0.51996), "no. SimplE-V2 has .500 and ComplEx-N3 has .520: "),
        ((0.5, 0.45, 0.48), "no. ComplEx-V2 has .450 and SimplE-V2 has .500: a difference of .050"),
    ],
)
def test_similar_models_are_recognized(
    page: Callable[..., str], mrrs: tuple[float, ...], sentence: str
) -> None:
    rows = ("simple-v2", "complex-v2", "complex-n3")
    cells = [Cell("table1", "fb15k", row) for row in rows]
    assert f"- FB15k: {sentence}" in page(*zip(cells, mrrs, strict=True))


@pytest.mark.parametrize(
    "mrrs, where",
    [
        ((0.3, 0.496, 0.5, 0.499), "from 400 negatives on. Files"),
        ((0.499, 0.4, 0.5, 0.499), "from 1,000 negatives on. Files"),  # a lucky first point
        ((0.1, 0.2, 0.3, 0.5), "only for all entities. Files"),
        (
            (0.3, 0.504, 0.503, 0.5),
            "from 400 negatives on. The maximum is .504, with 400 negatives. Files",
        ),
    ],
)
def test_a_curve_is_flat_where_it_stays_close_to_its_last_point(
    page: Callable[..., str], mrrs: tuple[float, ...], where: str
) -> None:
    rows = ("k-100", "k-400", "k-1000", "all")
    cells = [Cell("figure1", "fb15k", f"figure1/{row}") for row in rows]
    text = page(*zip(cells, mrrs, strict=True))
    assert f"within .005 of the latter {where}: [fb15k/figure1](../results/fb15k/figure1)." in text
    assert f"- FB15k: {'no' if where.startswith('only') else 'yes'}. " in text


@pytest.mark.parametrize(
    "mrrs, verdict",
    [
        ((0.3, 0.496, 0.5), "unclear, because nothing was run between 1,000 and 4,000"),
        ((0.499, 0.496, 0.5), "yes"),
        ((0.499, 0.4, 0.5), "no"),
    ],
)
def test_a_curve_with_a_gap_at_the_claim_is_unclear(
    page: Callable[..., str], mrrs: tuple[float, ...], verdict: str
) -> None:
    rows = ("figure1/k-1000", "figure1/k-4000", "figure1/all")
    cells = [Cell("figure1", "wn18rr", row) for row in rows]
    assert f"- WN18RR: {verdict}. " in page(*zip(cells, mrrs, strict=True))


@pytest.mark.parametrize("l2, verdict", [(0.73, "yes, or more"), (0.75, "less"), (0.799, "no")])
def test_norms_are_compared_with_l1(page: Callable[..., str], l2: float, verdict: str) -> None:
    names = ("rotate-l1", "rotate-l2", "rotate-squared", "transe-l1", "transe-l2", "transe-squared")
    cells = [Cell("norms", "fb15k", f"norms/{name}") for name in names]
    text = page(*zip(cells, (0.8, l2, 0.81, None, None, None), strict=True))
    expected = f"L1 has .800 and L2 has {f'{l2:.3f}'[1:]}, −{f'{0.8 - l2:.3f}'[1:]} (paper: −.065)"
    assert f"RotatE: {verdict}. {expected}" in text
    assert "a matrix product, has .810, +.010 compared with L1" in text
    assert "FB15k: not run yet (`norms/transe-l1`, `norms/transe-l2`)." in text
    weak = page(*zip(cells, (0.7, 0.77, 0.71, None, None, None), strict=True))
    assert (
        "RotatE: not established. L1 has .700 and L2 has .770, +.070 (paper: −.065). Our L1 "
        in weak
    )
    assert "result is weak: a public recipe reaches .797." in weak


def test_a_missed_floor_is_listed_with_the_other_configurations(
    page: Callable[..., str], tmp_path: Path, entry: Entry
) -> None:
    text = page((FEW, 0.8), (EVERY, 0.9))
    assert "ComplEx-V2 has .9000; its floor is .950. " in text
    assert "Recipe: dim 100, n3 0.01, adagrad 0.1" in text
    assert "epoch 4 of 100, validation MRR .9100 with filter all. File: [wn18/complex-v2](" in text
    assert "two digits" not in text
    assert "Rounded to two digits, it reaches the paper's .95." in page((EVERY, 0.9471))
    above = page((Cell("table1", "wn18", "complex-v2", Printed(0.8)), 0.9471))
    assert "Rounded to two digits, it exceeds the paper's .80." in above
    assert "- All results reach their floor.\n" in page((FEW, 0.94), (EVERY, 0.96))
    file = "tried/wn18/complex-v2-1.json"
    other = RECIPE.with_settings(["model.dim=7"]).to_toml()
    tried = Result("wn18", "complex-v2", other, [entry(0.96), entry(0.7, 1)])
    tried.write(tmp_path / "results" / file)
    text = page((EVERY, 0.9))
    valid = f"Validation MRR of other configurations: [complex-v2-1](../results/{file})"
    assert f"{valid} .9700 and .7100. 1 of 2 of their seeds reach the floor on test.\n" in text


@pytest.mark.parametrize(
    "settings, words",
    [
        (
            ["model.entity_dropout=0.3", "regularizer.name=none"],
            "dim 100, dropout 0.3 and 0, adagrad",
        ),
        (["model.name=rotate", "model.norm=2"], "dim 100, L2 norm, n3 0.01, adagrad 0.1"),
        (
            ["model.name=rotate", "model.norm=2", "model.squared=true", "loss.grouped=true"],
            "dim 100, squared L2 norm, n3 0.01, adagrad 0.1, batches of 500 distinct queries",
        ),
        (["loss.name=self-adversarial", "loss.margin=6"], "dim 100, self-adversarial, n3 0.01"),
        (["loss.relation_weight=0.5"], "dim 100, relation prediction 0.5, n3 0.01, adagrad"),
    ],
)
def test_a_recipe_is_described_by_its_main_settings(
    page: Callable[..., str], tmp_path: Path, entry: Entry, settings: list[str], words: str
) -> None:
    Results(tmp_path / "results").add(EVERY, RECIPE.with_settings(settings), entry(0.7))
    assert f" Recipe: {words}" in page((EVERY, None))


def test_goals_are_judged(page: Callable[..., str]) -> None:
    cell = Cell("beyond", "wn18", "transe-full")  # its goal is .770
    assert "has .780 and reaches its goal of .770." in page((cell, 0.78))
    assert "has .690 and is below its goal of .770." in page((cell, 0.69))


def test_a_recipe_that_ends_at_its_best_epoch_may_gain_from_more(
    page: Callable[..., str], tmp_path: Path, entry: Entry
) -> None:
    words = "The best epoch is the last one, so longer training may help."
    assert words not in page((EVERY, 0.9))
    short = RECIPE.with_settings(["training.epochs=4"])
    Results(tmp_path / "results").add(EVERY, short, entry(0.9))
    assert words in page((EVERY, None))


def test_the_best_single_model_has_the_best_validation_mrr(
    page: Callable[..., str], tmp_path: Path, entry: Entry
) -> None:
    one, other = (Cell("beyond", "wn18", row) for row in ("bilinear", "transe-full"))
    both = Cell("ensemble", "wn18", "ensemble")
    Results(tmp_path / "results").add(other, RECIPE, {**entry(0.9), "valid_mrr": 0.99})
    Results(tmp_path / "results").add(both, RECIPE, {**entry(0.98), "members": ["a-seed-0"]})
    text = page((one, 0.96), (other, None), (both, None))
    expected = "TransE L1 (all entities, any dim) has the best validation MRR of all single models."
    assert f"{expected} On test it has .900 and is below the goal of .953." in text


def test_the_earlier_filter_chooses_the_best_single_model_until_all_have_the_newer_one(
    page: Callable[..., str], tmp_path: Path, entry: Entry
) -> None:
    one, other = (Cell("beyond", "wn18", row) for row in ("bilinear", "transe-full"))
    earlier = Results(tmp_path / "results" / "seen")
    seen = RECIPE.with_settings(["evaluation.filter=seen"])
    for cell, mrr in ((one, 0.7), (other, 0.6)):
        earlier.add(cell, seen, {**entry(mrr), "valid_mrr": mrr})
    Results(tmp_path / "results").add(other, RECIPE, {**entry(0.8), "valid_mrr": 0.8})
    words = "has the best validation MRR of all single models."
    assert f"ComplEx with relation prediction or DURA {words}" in page((one, None), (other, None))
    Results(tmp_path / "results").add(one, RECIPE, {**entry(0.75), "valid_mrr": 0.75})
    assert f"TransE L1 (all entities, any dim) {words}" in page((one, None), (other, None))


@pytest.mark.parametrize(
    "mrr, size",
    [(0.5, "a large difference"), (0.89, "a small difference"), (0.901, "no difference")],
)
def test_an_ablation_is_compared_with_its_base(
    page: Callable[..., str], mrr: float, size: str
) -> None:
    base = Cell("table1", "wn18rr", "complex-v2", Printed(0.47))
    text = page((base, 0.9), (Cell("ablation", "wn18rr", "ablation/loss"), mrr))
    loss = f"ComplEx-V2 with the logistic loss has {f'{mrr:.3f}'[1:]}, and ComplEx-V2 has .900: "
    assert f"WN18RR: {size}. {loss}" in text
    assert text.count("ComplEx-V2 with the logistic loss has") == 1
