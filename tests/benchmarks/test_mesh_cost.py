"""The estimated cost of a step equals sums that can be done by hand."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from allneg.graph import Graph
from allneg.recipe import Mesh, Recipe
from allneg.training.memory import Counts


def _load() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "mesh_cost.py"
    spec = importlib.util.spec_from_file_location("mesh_cost", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mesh_cost"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULE = _load()
RATES, cost, sampled = MODULE.RATES, MODULE.cost, MODULE.sampled

# W = 8 for ComplEx of dim 4; 6 relation rows.
RECIPE = Recipe().with_settings(["model.dim=4", "training.batch_size=10"])
COUNTS = Counts(entities=1000, relations=3, train=25)
SLOW = replace(
    RATES["h200"], products={"tf32": 1e6}, distances=1e6, memory=1e6, near=1e6, far=1e5,
    pause=0.0, rest=0.5, rest_many=0.7,
)  # fmt: skip


def test_one_device_sends_nothing() -> None:
    alone = cost(RECIPE, COUNTS, Mesh(), SLOW)
    assert alone.operations == 6 * 10 * 1000 * 8
    assert alone.traffic == 24 * 10 * 1000 + 24 * (1000 * 8 + 6 * 8)
    assert alone.rows_wire == alone.batch_wire == 0
    assert alone.steps == 5
    assert alone.step_seconds == pytest.approx((480_000 + 240_000 + 24 * 8048) / 1e6 + 0.5)
    assert alone.epoch_seconds == 5 * alone.step_seconds


def test_rows_share_everything_and_send_looked_up_rows() -> None:
    shared = cost(RECIPE, COUNTS, Mesh(rows=4), SLOW)
    assert shared.operations == 6 * 10 * 250 * 8
    # A sum of 3 · 10 rows of 32 bytes, and 2 numbers a query from each of the other three.
    assert shared.rows_wire == 2 * 3 / 4 * 960 + 3 * 80
    assert shared.batch_wire == 0
    assert shared.seconds["rest"] == 0.7  # not captured


def test_a_batch_shares_questions_and_sends_every_rows_gradient() -> None:
    shared = cost(RECIPE, COUNTS, Mesh(batch=2), SLOW)
    assert shared.operations == 6 * 5 * 1000 * 8
    assert shared.rows_wire == 0
    # A sum of 1000 + 6 rows and the loss; two ids and rows of each of the other's 5 queries.
    assert shared.batch_wire == 1006 * 32 + 4 + 2 * 5 * (32 + 8)


def test_streamed_scores_are_made_twice_and_hide_the_sum_of_their_gradients() -> None:
    streamed = RECIPE.with_settings(["loss.block=640"])  # 128 rows a block: 8 blocks
    whole, blocks = (cost(each, COUNTS, Mesh(batch=2), SLOW) for each in (RECIPE, streamed))
    assert blocks.operations == whole.operations * 8 / 6
    assert blocks.traffic == whole.traffic + 56 * 5 * 1000
    assert blocks.batch_wire == whole.batch_wire
    assert blocks.seconds["batch's wire"] == pytest.approx(whole.seconds["batch's wire"] / 8)


@pytest.mark.parametrize("name, instructions", [("transe", 6 * 4), ("rotate", 16 * 4)])
def test_distances_count_instructions(name: str, instructions: int) -> None:
    recipe = RECIPE.with_settings([f"model.name={name}"])
    assert cost(recipe, COUNTS, Mesh(), SLOW).operations == 10 * 1000 * instructions


def test_other_machines_are_reached_by_the_slower_link() -> None:
    near, far = (cost(RECIPE, COUNTS, Mesh(rows=rows), SLOW) for rows in (8, 16))
    times = far.seconds["rows' wire"] / near.seconds["rows' wire"]
    assert times == pytest.approx(10 * far.rows_wire / near.rows_wire)


def test_a_sample_saves_products_and_not_the_optimiser() -> None:
    exact, few = (cost(each, COUNTS, Mesh(), SLOW) for each in (RECIPE, sampled(RECIPE, 90)))
    assert few.operations == exact.operations / 10  # 90 drawn and 10 answers
    assert few.traffic == 24 * 10 * 100 + 24 * 8048


def test_counts_are_those_of_a_graph(tiny_graph: Graph) -> None:
    assert Counts.of(tiny_graph, Recipe()) == Counts(12, 3, 20, 2, 3)
