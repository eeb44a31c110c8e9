"""Small sizes: a few minutes on a CPU for a whole table, to see the command at work.

The numbers mean nothing beyond that, and are kept apart from the others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from allneg.graph import Graph, read_graph
from allneg.graph.graph import SPLITS, Triples
from allneg.recipe import Data, Recipe
from allneg.runs.files import full_disk_named, write_text

_ENTITIES = 2000
_MOST = {"train": 8000, "valid": 300, "test": 300}
_DIM, _EPOCHS, _BATCH = 16, 3, 500


def small_data(data: Data, path: Path) -> Path:
    """A folder with the facts among a data set's most frequent entities; written once."""
    if all((path / f"{split}.txt").exists() for split in SPLITS):
        return path
    graph = read_graph(data.name, data)
    ends = graph.train[:, [0, 2]].ravel()
    often = np.bincount(ends, minlength=graph.n_entities)
    chosen = np.zeros(graph.n_entities, dtype=bool)
    chosen[np.argsort(-often, kind="stable")[:_ENTITIES]] = True
    with full_disk_named(path):
        path.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        triples = graph.split(split)
        inside = triples[chosen[triples[:, 0]] & chosen[triples[:, 2]]]
        write_text(path / f"{split}.txt", _lines(graph, inside[: _MOST[split]]))
    return path


def small(recipe: Recipe, data: Path, n_entities: int) -> Recipe:
    """The recipe at a small size, on small data; a sample shrinks as the entities do."""
    count = recipe.loss.n_negatives
    if count is not None and recipe.loss.negatives == "shared":
        count = max(1, round(count * _ENTITIES / n_entities))
    return replace(
        recipe,
        data=Data(name=str(data)),
        model=replace(recipe.model, dim=min(recipe.model.dim, _DIM)),
        loss=replace(recipe.loss, n_negatives=count),
        training=replace(recipe.training, epochs=_EPOCHS, batch_size=_BATCH),
        evaluation=replace(recipe.evaluation, every=1),
    )


def _lines(graph: Graph, triples: Triples) -> str:
    names = graph.vocabulary
    return "".join(
        f"{names.entities[h]}\t{names.relations[r]}\t{names.entities[t]}\n" for h, r, t in triples
    )
