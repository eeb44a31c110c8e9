"""`plan`: the memory that a recipe needs, on a device that is here or not."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from allneg.errors import UsageError
from allneg.graph import read_graph
from allneg.hardware import find_device, memory
from allneg.recipe import Mesh, Recipe
from allneg.recipes import find_recipe
from allneg.training.memory import Counts, MemoryPlan
from allneg.training.memory import plan as plan_memory

GPU_BYTES = {"h200": 141 * 10**9, "a100": 80 * 10**9}  # to plan for a GPU that is not here


def plan(
    recipe: Recipe | str | Path,
    *,
    settings: Iterable[str] | Mapping[str, object] = (),
    gpu: str | None = None,
    entities: int | None = None,
    relations: int | None = None,
    triples: int | None = None,
) -> MemoryPlan:
    """The bytes that a recipe needs on each device, without training.

    `gpu` is h200 or a100, to plan for that GPU instead of this machine's. With `entities`,
    `relations` and `triples`, the data of the recipe are not read.
    """
    if not isinstance(recipe, Recipe):
        recipe = Recipe.read(find_recipe(recipe))
    recipe = recipe.with_settings(settings)
    if gpu is not None and gpu not in GPU_BYTES:
        raise UsageError(f"no GPU is called {gpu!r}; use {' or '.join(GPU_BYTES)}")
    counts = _counts(recipe, entities, relations, triples)
    mesh = Mesh.read(recipe.hardware.mesh) if recipe.hardware.mesh is not None else Mesh()
    if recipe.hardware.device == "auto" and (gpu or recipe.hardware.mesh):
        gpu = gpu or "h200"  # it need not be here
        device, available = torch.device("cuda"), GPU_BYTES[gpu]
        return replace(plan_memory(recipe, counts, device, mesh), gpu=gpu, available=available)
    device = find_device(recipe.hardware.device)
    return replace(plan_memory(recipe, counts, device, mesh), available=memory(device))


def _counts(
    recipe: Recipe, entities: int | None, relations: int | None, triples: int | None
) -> Counts:
    if entities is not None and relations is not None and triples is not None:
        others = max(1, triples // 1000)  # a typical size of valid and test
        return Counts(entities, relations, triples, others, others)
    if (entities, relations, triples) != (None, None, None):
        raise UsageError("give all of --entities, --relations and --triples, or none of them")
    return Counts.of(read_graph(recipe.data.name, recipe.data), recipe)
