"""Default settings: every model has some, and their sizes fit the graph and the device."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from allneg import train
from allneg.graph import Graph
from allneg.graph.graph import Vocabulary
from allneg.kernels.dot import Dot
from allneg.kernels.engines import describe_engine
from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.training import defaults
from allneg.training.defaults import default_recipe, n3_weight

CPU = torch.device("cpu")


def random_graph(n: int, relations: int, triples: int) -> Graph:
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, (n, relations, n), (triples, 3))
    names = tuple(map(str, range(n))), tuple(map(str, range(relations)))
    return Graph("random", Vocabulary(*names), drawn, drawn[:0], drawn[:0])


@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_a_valid_default_recipe(model: str, tiny_graph: Graph) -> None:
    recipe = default_recipe(model, tiny_graph, CPU)
    stated = Recipe().with_settings(defaults.model_settings(model)).to_settings()
    for name in ("model.name", *(text.partition("=")[0] for text in MODELS[model].defaults)):
        if name not in ("model.dim", "training.epochs"):  # these follow from the size
            assert recipe.to_settings()[name] == stated[name]


def test_a_dense_graph_with_parallel_facts_gets_a_small_weight(tiny_graph: Graph) -> None:
    sparse = random_graph(3000, 3, 3000)
    dense = random_graph(60, 3, 3000)
    assert n3_weight(sparse) > 0.09
    assert n3_weight(dense) < 0.03
    twice = replace(sparse, train=np.concatenate([sparse.train, sparse.train[:, [2, 1, 0]]]))
    assert n3_weight(twice) == 0.005  # each pair has two facts
    assert n3_weight(sparse, is_distance=True) == n3_weight(sparse)
    assert n3_weight(twice, is_distance=True) == pytest.approx(0.005 / 36)
    assert default_recipe("complex", sparse, CPU).regularizer.weight > 0.09


def test_a_cpu_gets_smaller_rows_and_then_shared_negatives_as_the_graph_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(defaults, "_score_seconds", lambda _, width, engine: 3e-10 * width)
    small, medium, large = (
        default_recipe("rotate", random_graph(n, 5, 10 * n), CPU, {"hardware.threads": 1})
        for n in (1500, 6000, 60_000)
    )
    assert small.loss.negatives == medium.loss.negatives == "all"
    assert small.loss.grouped
    assert small.model.dim > medium.model.dim
    assert large.loss.negatives == "shared"
    assert large.training.epochs >= 20


@pytest.mark.parametrize("model", ["complex", "rotate", "transe"])
def test_a_cpu_shares_negatives_rather_than_train_narrow_rows(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "_score_seconds", lambda _, width, engine: 6e-11 * width)
    graph, usual = random_graph(40_000, 5, 80_000), {"hardware.threads": 1}
    recipe = default_recipe(model, graph, CPU, usual)
    assert (recipe.loss.negatives, recipe.model.dim) == ("shared", 200)
    whole = default_recipe(model, graph, CPU, {**usual, "loss.negatives": "all"})
    assert whole.loss.n_negatives is None
    assert whole.model.dim < 100


def test_a_slower_cpu_gets_smaller_rows_and_more_threads_larger_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dims = []
    for seconds, threads in ((1e-8, 1), (1e-6, 1), (1e-6, 100)):
        monkeypatch.setattr(defaults, "_score_seconds", lambda *_, seconds=seconds: seconds)
        given = {"hardware.threads": threads}
        dims.append(default_recipe("complex", random_graph(3000, 5, 30_000), CPU, given).model.dim)
    assert dims[0] == dims[2] > dims[1]


def test_the_matrices_of_a_query_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "_score_seconds", lambda _, width, engine: 3e-11 * width)
    graph, given = random_graph(2000, 20, 20_000), {"model.dim": 100, "hardware.threads": 1}
    distmult, rescal, tucker = (
        defaults.cpu_seconds(default_recipe(model, graph, CPU, given), graph)
        for model in ("distmult", "rescal", "tucker")
    )
    assert 2 * distmult < rescal < tucker / 2


def test_the_speed_of_a_cpu_is_measured_as_a_power_of_2() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    seconds = defaults._score_seconds(MODELS["complex"].kernel, 6, "auto")
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    assert 1e-11 < seconds < 1e-3
    assert math.frexp(seconds)[0] == 0.5


def test_the_speed_of_a_cpu_is_that_of_one_thread_without_other_processes() -> None:
    class Waits(Dot):
        def scores(self, query: Tensor, rows: Tensor) -> Tensor:
            assert torch.get_num_threads() == 1
            assert describe_engine(CPU) == "engine reference (as requested)"
            time.sleep(0.01)  # as if another process ran
            return super().scores(query, rows)

    n_queries, n_rows = defaults._TIMED
    assert defaults._score_seconds(Waits(), 6, "reference") < 0.01 / (n_queries * n_rows)


def test_the_speed_of_a_cpu_is_measured_where_cpu_time_has_long_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Waits(Dot):
        def scores(self, query: Tensor, rows: Tensor) -> Tensor:
            assert query.dtype is torch.float32
            time.sleep(0.01)
            return super().scores(query, rows)

    monkeypatch.setattr(time, "thread_time", lambda: 1.0)
    n_queries, n_rows = defaults._TIMED
    torch.set_default_dtype(torch.float64)
    try:
        seconds = defaults._score_seconds(Waits(), 6, "reference")
    finally:
        torch.set_default_dtype(torch.float32)
    assert 0.005 < seconds * n_queries * n_rows < 1


def test_a_cpu_asks_each_distinct_query_once_if_that_saves_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(defaults, "_score_seconds", lambda *_: 1e-8)
    tiny, small = (default_recipe("complex", random_graph(n, 20, 10 * n), CPU) for n in (100, 1500))
    assert not tiny.loss.grouped
    assert small.loss.grouped
    assert tiny.training.epochs == small.training.epochs == 100
    assert tiny.model.dim == small.model.dim == 200


def test_given_settings_count_above_the_defaults(tiny_graph: Graph) -> None:
    given = {"model.dim": 7, "loss.name": "self-adversarial", "training.epochs": 3}
    recipe = default_recipe("complex", tiny_graph, CPU, given)
    assert (recipe.model.dim, recipe.loss.name, recipe.training.epochs) == (
        7,
        given["loss.name"],
        3,
    )
    assert not recipe.loss.grouped  # it does not fit this loss
    shared = default_recipe(
        "complex", tiny_graph, CPU, {"loss.negatives": "shared", "loss.n_negatives": 3}
    )
    assert (shared.loss.negatives, shared.loss.n_negatives) == ("shared", 3)


def test_rows_become_smaller_until_they_fit_in_memory(
    tiny_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = torch.device("cuda")
    monkeypatch.setattr(defaults, "memory", lambda _: None)
    whole = default_recipe("complex", tiny_graph, device)
    assert whole.model.dim == 1000
    need = defaults.plan(whole, tiny_graph, device).peak
    monkeypatch.setattr(defaults, "memory", lambda _: need // 2)
    assert default_recipe("complex", tiny_graph, device).model.dim < 500


def test_a_gpu_asks_each_distinct_query_once_unless_a_setting_excludes_it(
    tiny_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "memory", lambda _: None)
    device, plain = torch.device("cuda"), {"loss.grouped": False}
    grouped = default_recipe("rotate", tiny_graph, device)
    single = default_recipe("rotate", tiny_graph, device, plain)
    assert grouped.loss.grouped
    assert not single.loss.grouped
    share = tiny_graph.n_distinct_queries / (2 * len(tiny_graph.train))
    assert grouped.training.batch_size == round(share * single.training.batch_size)
    for other in ({"loss.negatives": "shared", "loss.n_negatives": 3}, {"loss.mask_known": True}):
        recipe = default_recipe("rotate", tiny_graph, device, other)
        assert not recipe.loss.grouped
        assert recipe.training.batch_size == single.training.batch_size
    assert not default_recipe("transe", tiny_graph, device).loss.grouped
    weighted = replace(tiny_graph, weights=np.ones(len(tiny_graph.train), np.float32))
    assert not default_recipe("transe", weighted, device).loss.grouped


@pytest.mark.parametrize("name", MODELS)
def test_a_longer_limit_never_hurts(name: str, tiny_folder: Path, tmp_path: Path) -> None:
    settings = ["model.dim=4", "hardware.device=cpu", "hardware.threads=1", "evaluation.every=2"]

    def valid_mrrs(epochs: int) -> list[float]:
        run = train(
            tiny_folder, model=name, settings=[*settings, f"training.epochs={epochs}"],
            out=tmp_path / f"{epochs}",
        )  # fmt: skip
        return [entry["valid"]["mrr"] for entry in run.metrics() if "valid" in entry]

    # The epochs are the same, and the best one counts.
    short, long = valid_mrrs(6), valid_mrrs(12)
    assert len(short) == 3 < len(long)
    assert long[:3] == short
