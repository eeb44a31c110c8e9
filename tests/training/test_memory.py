"""The memory plan against the measured peak of a training."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from allneg.graph.graph import Graph
from allneg.hardware import find_device
from allneg.models import MODELS
from allneg.recipe import Recipe
from allneg.runs import make_model
from allneg.scoring import Shard, Tables
from allneg.training.memory import Counts, plan
from processes import start

# A child measures its own peak over what it held before, so that torch's size does not count.
_MEASURE = """
import ctypes
import gc
import numpy as np
import torch
from torch import Generator
from allneg.evaluation import evaluate
from allneg.graph.graph import Graph
from allneg.graph.graph import Vocabulary
from allneg.recipe import Recipe
from allneg.runs.checkpoint import State
from allneg.training.trainer import Trainer
from allneg.training.memory import plan

def peak():
    if CUDA:
        return torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return int(status["VmHWM"].split()[0]) * 1024, int(status["VmRSS"].split()[0]) * 1024

def train(n, recipe):
    high = min(n, 250) if recipe.loss.grouped else n  # fewer entities share more queries
    names = Vocabulary(tuple(map(str, range(n))), ("r", "s"))
    rng = np.random.default_rng(0)
    train, valid, test = (
        np.stack([rng.integers(0, most, size) for most in (high, 2, high)], 1)
        for size in (4000, 600, 600)
    )
    graph = Graph("made up", names, train, valid, test)
    trainer = Trainer(recipe, graph, DEVICE)
    trainer.keep_best(trainer.tables)
    train, order = torch.from_numpy(train).to(DEVICE), Generator(DEVICE)
    for _ in range(6 if CUDA else 1):
        for i, queries in enumerate(trainer.batches(train, order)[1]):
            trainer.step(queries, order)
            if i == 2:
                break
    evaluate(trainer.model, trainer.tables, graph, "valid", block=recipe.evaluation.block)
    return graph

# Freed memory goes back at once (M_MMAP_THRESHOLD), so that the peak is what was held together.
ctypes.CDLL(None).mallopt(-3, 65536)
ctypes.CDLL(None).mallopt(-4, 65536)  # M_MMAP_MAX, which a training on a CPU sets to 0
for settings in RECIPES:
    recipe = Recipe().with_settings(settings)
    DEVICE = torch.device(recipe.hardware.device)
    CUDA = DEVICE.type == "cuda"
    train(50, recipe.with_settings(["training.batch_size=10", "model.dim=4"]))  # loads libraries
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier trainings freed does not serve this one
    if CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # forget the peak so far
    before = peak()[1]
    graph = train(N_ENTITIES, recipe)
    least = most = peak()[0] - before
    if CUDA:  # a captured step keeps its memory reserved, also while other tensors are allocated
        most = torch.cuda.max_memory_reserved()
    print(least, most, plan(recipe, graph, DEVICE).peak)
"""


ON_CPU = {
    "whole": ["model.dim=128", "training.batch_size=1000"],
    "adam": ["model.dim=128", "training.batch_size=300", "optimizer.name=adam"],
    "in blocks": ["model.dim=64", "training.batch_size=1000", "loss.block=2000000"],
    "grouped": ["model.dim=128", "training.batch_size=500", "loss.grouped=true"],
    "grouped, dura": [
        "model.dim=128", "training.batch_size=500", "loss.grouped=true", "regularizer.name=dura",
    ],
}  # fmt: skip
ON_GPU = {
    "complex": ["model.dim=1000", "training.batch_size=1000"],
    "bf16": ["model.dim=1000", "training.batch_size=1000", "hardware.precision=bf16"],
    "rotate": [
        "model.dim=500", "training.batch_size=1000", "model.name=rotate", "optimizer.name=adam",
    ],
    "transe": ["model.dim=500", "training.batch_size=1000", "model.name=transe"],
    "in blocks": ["model.dim=500", "training.batch_size=1000", "loss.block=2000000"],
    "grouped": [
        "model.dim=1000", "training.batch_size=300", "loss.grouped=true", "hardware.precision=bf16",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "device, n_entities, recipes",
    [
        pytest.param("cpu", 10_000, ON_CPU, marks=pytest.mark.skipif(
            sys.platform != "linux", reason="reads the peak from /proc"
        )),
        pytest.param("cuda", 15_000, ON_GPU, marks=pytest.mark.gpu),
    ],
)  # fmt: skip
def test_the_plan_is_within_15_percent_of_the_measured_peak(
    tmp_path: Path, device: str, n_entities: int, recipes: dict[str, list[str]]
) -> None:
    more = ["evaluation.block=5000000", f"hardware.device={device}"]
    values = {"RECIPES": [[*recipe, *more] for recipe in recipes.values()]}
    out = tmp_path / "printed"
    child = start(exec, _MEASURE, {**values, "N_ENTITIES": n_entities}, out=out)
    child.join()
    assert child.exitcode == 0
    for name, line in zip(recipes, out.read_text().splitlines(), strict=True):
        least, most, planned = map(int, line.split())
        assert 0.85 * least <= planned <= 1.15 * most, name


def test_what_is_kept_and_the_larger_phase_make_the_peak(tiny_graph: Graph) -> None:
    made = plan(Recipe(), tiny_graph, find_device("cpu"))
    phases = sum(made.training.values()), sum(made.ranking.values())
    assert made.peak == sum(made.kept.values()) + max(phases)
    assert made.to_json()["peak"] == made.peak


@pytest.mark.parametrize("name", MODELS)
def test_the_plan_counts_every_parameter(name: str, tiny_graph: Graph) -> None:
    recipe = Recipe().with_settings([f"model.name={name}", "model.dim=4"])
    shard = Shard.whole(tiny_graph.n_entities)
    tables = Tables.create(make_model(recipe), tiny_graph.n_relations, shard, True, seed=0)
    numbers = sum(rows.numel() for rows in tables.weights().values())
    assert plan(recipe, tiny_graph, find_device("cpu")).kept["tables"] == 4 * numbers


def test_adam_keeps_two_tables_and_sgd_none(tiny_graph: Graph) -> None:
    sizes = {
        name: plan(
            Recipe().with_settings([f"optimizer.name={name}"]), tiny_graph, find_device("cpu")
        ).kept
        for name in ("adagrad", "adam", "sgd")
    }
    table = sizes["adagrad"]["tables"]
    assert [sizes[name]["optimizer"] // table for name in sizes] == [1, 2, 0]


def test_a_size_beyond_a_floats_digits_is_counted_exactly() -> None:
    recipe = Recipe().with_settings(["model.name=distmult", "model.dim=1"])
    huge = Counts(10**25 + 1, relations=1, train=1)
    kept = plan(recipe, huge, find_device("cpu")).kept
    # float32; padding to a multiple of 64, and a row more for the way back
    assert kept["tables"] == 4 * (10**25 + 64 + 2)


def test_attention_needs_no_memory_for_scores() -> None:
    """2.5 million rows of 200 numbers, of which 8,000 queries would have 80 GB of scores."""
    settings = ["training.batch_size=8000", "hardware.precision=bf16"]
    counts = Counts(2_500_000, relations=500, train=1000)
    made = plan(Recipe().with_settings(settings), counts, torch.device("cuda"))
    table = made.kept["tables"]
    assert sum(made.training.values()) < 1 << 30
    assert made.peak < 3.5 * table + (1 << 30)  # tables, copy, gradient and AdaGrad's sum
    masked = [*settings, "loss.mask_known=true", f"loss.block={1 << 30}"]
    bits = plan(Recipe().with_settings(masked), counts, torch.device("cuda")).training["scores"]
    assert bits - made.training["scores"] == 8000 * 2_500_032 // 8
