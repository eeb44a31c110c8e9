"""`convert`: vectors that another program has trained → a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from allneg.errors import DataError, UsageError, close_names, printable
from allneg.exports.export import INVERSE
from allneg.graph import read_graph
from allneg.graph.read import source_name
from allneg.hardware import device_errors, find_device
from allneg.models import MODELS
from allneg.models.rotate import RotatE
from allneg.recipe import Recipe, merged, parse_settings
from allneg.runs import Run, check_new, files, make_model
from allneg.runs.finished import evaluated, write_finished
from allneg.scoring import Shard, Tables


def convert(
    vectors: Path | str,
    data: Any,
    *,
    model: str,
    out: Path | str,
    settings: Iterable[str] | Mapping[str, object] = (),
    device: str = "auto",
) -> Run:
    """Make a run from vectors that another program has trained; it is evaluated, not trained.

    `vectors` is NAME.npy, next to NAME.relations.npy, or NAME.safetensors with the tensors
    entities and relations. The names of the rows, one per line, are in the same file names with
    .entities.txt and .relations.txt added. These are the files of `export`. Complex numbers
    become real parts, then imaginary parts; those of RotatE's relations become angles. If every
    relation also has a row `NAME (inverse)`, head queries use it. `data` is the graph, as in
    `train`; every entity and relation of it needs a row. The most important of `settings` is
    model.norm.
    """
    path, out, name = Path(vectors), Path(out), model.lower()
    if name not in MODELS:
        raise UsageError(f"there is no model {printable(model)}{close_names(name, MODELS)}")
    check_new(out)
    given = parse_settings(settings)
    rows = {kind: _rows(path, kind) for kind in ("entities", "relations")}
    if MODELS[name] is RotatE and rows["relations"].is_complex():
        rows["relations"] = rows["relations"].angle()
    entities, relations = (_real(tensor) for tensor in rows.values())
    names = {kind: _names(path, kind, len(tensor)) for kind, tensor in rows.items()}
    has_bias = bool(given.get("model", {}).get("bias"))
    about = {
        "name": name,
        "dim": max(1, (entities.shape[1] - has_bias) // MODELS[name].entity_parts),
        "reciprocal": any(row.endswith(INVERSE) for row in names["relations"]),
    }
    tables = merged(given, {"model": about, "data": {"name": source_name(data)}})
    recipe = Recipe.from_tables(tables, "the settings")
    made = make_model(recipe)
    if made.shared_shape is not None:
        raise UsageError(f"{model} has a parameter that all rows share; it is not converted")
    if (made.entity_width, made.relation_width) != (entities.shape[1], relations.shape[1]):
        raise DataError(
            f"{path}: rows of {entities.shape[1]} and {relations.shape[1]} numbers are not those of"
            f" {model}, which has {made.entity_width} per entity and {made.relation_width} per "
            f"relation with dim {made.dim}"
        )
    graph, chosen = read_graph(data, recipe.data), find_device(device)
    wanted = list(graph.vocabulary.relations)
    wanted += [row + INVERSE for row in wanted] if recipe.model.reciprocal else []
    found = (
        _ordered(entities, names["entities"], graph.vocabulary.entities, f"{path}: entity"),
        _ordered(relations, names["relations"], wanted, f"{path}: relation"),
    )
    whole = Tables(*found, Shard.whole(graph.n_entities), recipe.model.reciprocal)
    with device_errors(chosen):
        report = evaluated(made, whole.to(chosen), graph, recipe.evaluation)
    return write_finished(Run(out, recipe, is_trainable=False), graph, whole.weights(), report)


def _rows(path: Path, kind: str) -> Tensor:
    """The rows of entities or relations, as numbers: (N, …)."""
    if path.suffix == ".safetensors":
        tensors = files.read_tensors(path)
        if kind not in tensors:
            raise DataError(f"{path}: no tensor {kind}; found {', '.join(sorted(tensors))}")
        tensor = tensors[kind]
    elif path.suffix == ".npy":
        path = path if kind == "entities" else path.with_suffix(".relations.npy")
        try:
            with path.open("rb") as file:
                tensor = torch.from_numpy(np.lib.format.read_array(file))  # objects are refused
        except (ValueError, TypeError, OSError, EOFError) as error:
            raise DataError(f"{path}: cannot be read as numbers ({error})") from None
    else:
        raise UsageError(f"{path}: vectors are read from .npy and .safetensors")
    if tensor.ndim < 2 or not (tensor.is_floating_point() or tensor.is_complex()):
        raise DataError(f"{path}: {kind} are {tensor.dtype} {tuple(tensor.shape)}, not rows")
    if not tensor.isfinite().all():
        raise DataError(f"{path}: {kind} have numbers that are not finite")
    return tensor


def _real(rows: Tensor) -> Tensor:
    """float32 rows; complex numbers become real parts, then imaginary parts: (N, W)."""
    if rows.is_complex():
        rows = torch.cat([rows.real, rows.imag], dim=1)
    return rows.flatten(1).float().contiguous()


def _names(path: Path, kind: str, count: int) -> list[str]:
    path = path.with_name(f"{path.name}.{kind}.txt")
    try:
        names = path.read_bytes().decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: one name per line is needed here ({error})") from None
    if len(names) != count or len(set(names)) != count:
        raise DataError(f"{path}: {len(set(names)):,} names for {count:,} rows")
    return names


def _ordered(rows: Tensor, names: Sequence[str], wanted: Sequence[str], what: str) -> Tensor:
    """The rows of the names of a graph, in its order."""
    ids = {name: number for number, name in enumerate(names)}
    if missing := [name for name in wanted if name not in ids]:
        raise DataError(
            f"{what} {printable(missing[0])} of the data has no row ({len(missing):,} have none)"
        )
    return rows[torch.tensor([ids[name] for name in wanted])]
