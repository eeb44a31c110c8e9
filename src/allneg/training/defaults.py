"""Default settings: those of each model, and sizes that fit the graph and the device.

`benchmarks/sweep_defaults.py` compares settings on many graphs.
"""

import contextlib
import functools
import itertools
import math
import threading
import time
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Generator

from allneg.errors import RecipeError
from allneg.graph.graph import Graph
from allneg.hardware import memory, torch_settings
from allneg.kernels import Kernel, dot
from allneg.kernels.engines import using
from allneg.models import MODELS
from allneg.recipe import Hardware, Recipe
from allneg.runs import make_model
from allneg.training.memory import plan

_SECONDS = 600.0  # of training on a CPU
_SHORT = 30.0  # a training that ends within this time needs no saving
_LEAST_EPOCHS = 20  # with fewer, all entities as negatives take too long
_TIMED = (100, 1024)  # queries and rows that are compared to measure the speed of a CPU
_WIDEST = 512  # numbers per row that are timed
_REPEATS = 20  # the fastest counts; the first one may compile
_STEP = 1e-3  # seconds of a step with empty tables
_ROW = 4e-9  # seconds in which a step gathers a number of a row, and uses and adds its gradients
_UPDATE = 1.2e-9  # seconds in which an optimizer updates a number
# With fewer numbers per row, all entities as negatives have a lower MRR than a sample.
_WIDE_DIMS, _NARROW_DIMS = (200, 128, 100), (64, 50, 32)
_NEGATIVES = 500  # shared by a batch
_STEPS = 200  # per epoch, about
_LEAST_QUERIES = 50  # of a grouped batch; small dense graphs have a lower MRR with grouped ones
_MOST_GROUPED = 20_000_000  # triples, whose index stays on the GPU
_LOCK = threading.Lock()  # while the number of threads is changed


def model_settings(model: str) -> list[str]:
    """The default settings of a model for any graph."""
    return [f"model.name={model}", *MODELS[model].defaults]


def default_recipe(
    model: str,
    graph: Graph,
    device: torch.device,
    settings: Mapping[str, object] | None = None,
    seconds: float = _SECONDS,
) -> Recipe:
    """The default recipe of a model for this graph and this device, with `settings` on top.

    On a CPU, it is meant to end within about `seconds`.
    """
    batch = 2 * len(graph.train) // _STEPS
    base = [*model_settings(model), f"training.batch_size={min(1000, max(100, batch))}"]
    if factor := MODELS[model].n3:
        weight = factor * n3_weight(graph, MODELS[model].is_distance)
        base.append(f"regularizer.weight={weight:.2g}")
    if device.type == "cpu":
        return _sized_for_cpu(base, settings or {}, graph, seconds)
    if MODELS[model].grouped and len(graph.train) <= _MOST_GROUPED:
        base = _grouped(base, settings or {}, graph)
    return _sized_for_memory(base, settings or {}, graph, device)


def cpu_seconds(recipe: Recipe, graph: Graph) -> float:
    """About how long all epochs of a recipe take on this CPU, with all threads."""
    return recipe.training.epochs * _epoch_seconds(recipe, graph, graph.n_distinct_queries)


def n3_weight(graph: Graph, is_distance: bool = False) -> float:
    """A weight of N3 for ComplEx, between .005 and .1.

    It is smaller for dense graphs, and for those in which several facts link many of the pairs.
    The weight of distance models decreases faster.
    """
    n = graph.n_entities
    degree: float = max(1, len(graph.train)) / n
    head, tail = graph.train[:, 0], graph.train[:, 2]
    pairs = np.sort(np.minimum(head, tail) * n + np.maximum(head, tail))
    new = np.concatenate([[True], pairs[1:] != pairs[:-1], [True]])
    alone = float((new[:-1] & new[1:]).mean()) if len(pairs) else 1.0
    weight = max(0.005, 0.1 * alone * min(1.0, math.cbrt(2.5 / degree)))
    return weight * min(1.0, (weight / 0.03) ** 2) if is_distance else weight


def _grouped(base: list[str], settings: Mapping[str, object], graph: Graph) -> list[str]:
    """With each distinct query once, if settings and graph allow it.

    One score row per distinct query gives the same softmax loss as one per triple. A batch has as
    many answers as without grouping, so that other settings suit it as well.
    """
    recipe = _recipe(base, settings)
    if recipe.loss.name != "softmax" or graph.weights is not None:
        return base
    share = graph.n_distinct_queries / max(1, 2 * len(graph.train))
    size = round(share * _recipe(base, {}).training.batch_size)
    if size < _LEAST_QUERIES:
        return base
    way = [*base, "loss.grouped=true", f"training.batch_size={size}"]
    try:
        return way if _recipe(way, settings).loss.grouped else base
    except RecipeError:
        return base


def _sized_for_memory(
    base: list[str], settings: Mapping[str, object], graph: Graph, device: torch.device
) -> Recipe:
    """The recipe, with smaller rows if it does not fit in memory."""
    recipe, available = _recipe(base, settings), memory(device)
    for dim in (recipe.model.dim >> shift for shift in range(6)):
        found = _recipe([*base, f"model.dim={max(1, dim)}"], settings)
        if available is None or plan(found, graph, device).peak <= 0.8 * available:
            return found
    return recipe


def _sized_for_cpu(
    base: list[str], settings: Mapping[str, object], graph: Graph, limit: float
) -> Recipe:
    """A recipe that a CPU trains in time, or the cheapest one."""
    plain = _recipe(
        [*base, f"model.dim={min(_WIDE_DIMS[0], _recipe(base, {}).model.dim)}"], settings
    )
    if plain.training.epochs * _epoch_seconds(plain, graph, 0) < min(_SHORT, limit):
        return plain
    cheapest, n_distinct = math.inf, graph.n_distinct_queries
    for found in _cpu_candidates(base, settings, graph):
        seconds = _epoch_seconds(found, graph, n_distinct)
        if seconds * _LEAST_EPOCHS <= limit:
            epochs = min(int(limit / seconds), found.training.epochs)
            return found.with_settings({"training.epochs": epochs, **settings})
        if seconds < cheapest:
            cheapest, best = seconds, found
    return best.with_settings({"training.epochs": _LEAST_EPOCHS, **settings})


def _cpu_candidates(
    base: list[str], settings: Mapping[str, object], graph: Graph
) -> Iterator[Recipe]:
    """Recipes from the most to the least thorough, without those that do not fit the settings."""
    most, negatives = _recipe(base, settings).model.dim, f"loss.n_negatives={_NEGATIVES}"
    shared = ["loss.negatives=shared", negatives, f"training.batch_size={_NEGATIVES}"]
    whole = _grouped(base, settings, graph), [*base, "loss.negatives=all"]
    sample = [[*base, *shared]]
    order = (whole, _WIDE_DIMS), (sample, _WIDE_DIMS + _NARROW_DIMS), (whole, _NARROW_DIMS)
    for ways, dims in order:
        for way, dim in itertools.product(ways, dims):
            with contextlib.suppress(RecipeError):
                yield _recipe([*way, f"model.dim={min(dim, most)}"], settings)


def _recipe(base: list[str], settings: Mapping[str, object]) -> Recipe:
    return Recipe().with_settings(base).with_settings(settings)


def _epoch_seconds(recipe: Recipe, graph: Graph, n_distinct: int) -> float:
    """About how long an epoch takes on this CPU; grouped queries are `n_distinct`."""
    model, batch = make_model(recipe), recipe.training.batch_size
    width, shared = model.entity_width, math.prod(model.shared_shape or (0,))
    queries = n_distinct if recipe.loss.grouped else 2 * len(graph.train)
    columns = graph.n_entities
    if recipe.loss.negatives != "all":
        columns = (recipe.loss.n_negatives or 0) + batch
    timed = min(width, _WIDEST)
    compare = columns * width / timed * _score_seconds(model.kernel, timed, recipe.hardware.engine)
    rows = 2 * width + model.relation_width  # numbers
    if shared:  # a product makes a matrix for each query
        compare += shared / timed * _score_seconds(dot, timed, recipe.hardware.engine)
        rows += 3 * width**2
    relations = graph.n_relations * (2 if recipe.model.reciprocal else 1)
    numbers = graph.n_entities * width + relations * model.relation_width + shared
    threads = recipe.hardware.threads or torch.get_num_threads()
    in_threads = queries * (compare + rows * _ROW) / threads
    return in_threads + math.ceil(queries / batch) * (_STEP + numbers * _UPDATE)


@functools.cache
def _score_seconds(kernel: Kernel, width: int, engine: str) -> float:
    """How long one thread takes for a score and its gradients, rounded to a power of 2.

    Measured in CPU time, of which other processes take nothing, and rounded: so the default recipe
    of a graph seldom changes from one call to the next.
    """
    generator, best = Generator().manual_seed(0), math.inf
    with _LOCK, torch_settings(Hardware(device="cpu")) as device, using(engine):
        query, table = (torch.randn(n, width, generator=generator) for n in _TIMED)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            bound = kernel.bind(device)
            for _ in range(_REPEATS):
                began = time.thread_time(), time.perf_counter()
                scores = bound.scores(query, table)
                bound.gradients(scores.softmax(1), query, table, scores)
                # Windows counts CPU time in steps of 16 ms: then 0 is the most frequent result.
                spent = time.thread_time() - began[0] or time.perf_counter() - began[1]
                best = min(best, spent)
        finally:
            torch.set_num_threads(threads)
    return float(2.0 ** round(math.log2(best / (len(query) * len(table)))))
