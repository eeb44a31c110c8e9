"""`export`: a run as files that other programs read."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt
import torch
from torch import Tensor

from allneg import __version__
from allneg.errors import UsageError
from allneg.exports import writers
from allneg.exports.formats import FORMATS
from allneg.exports.writers import NamedRows
from allneg.runs import Run, disk, files
from allneg.runs.copy import check_absent
from allneg.runs.copy import export as export_run
from allneg.runs.shards import StoredTensor, joined_bytes

Parts: TypeAlias = Iterable[disk.Bytes]
SCHEMA_VERSION = 1
INVERSE = " (inverse)"  # ends the names of relation rows for head queries
_WRITERS: dict[str, Callable[[NamedRows], Iterator[bytes]]] = {
    "npy": writers.npy,
    "parquet": writers.parquet,
    "csv": writers.csv_table,
    "word2vec": writers.word2vec,
}
_NEEDS_NAMES = ("npy", "word2vec", "safetensors")  # the exact names are in a file of their own
_SEARCH = {
    "dot": "the score is the inner product of the query vector and the entity vector",
    "l1": "the score is minus the L1 distance of the query vector and the entity vector",
    "l2": "the score is minus the Euclidean distance of the query vector and the entity vector",
}


def export(run: Run | Path | str, out: Path | str, format: str | None = None) -> list[Path]:
    """Write the best vectors of a run, their names and a description; return the new files.

    The format is that of the suffix of `out`: .npy, .parquet, .csv, .vec or .txt (word2vec), or
    .safetensors. `out` has the entity vectors; the other files are next to it and begin with its
    name. With `format="neo4j"`, `out` is a folder for `neo4j-admin database import`. Without
    format and suffix, it is a folder with the whole run, its shards joined. Rows are copied in
    blocks, so the tables need not fit in memory. Existing files are not replaced.
    """
    opened, out = run if isinstance(run, Run) else Run.open(run), Path(out)
    chosen, out = _format(out, format)
    if chosen is None:
        export_run(opened, out)
        return [out]
    with opened.stored_tables() as tables:
        rows = _named_rows(opened, tables)
        about = _about(opened, rows, tables)
        size = sum(math.prod(tensor.shape) * tensor.dtype.itemsize for tensor in tables.values())
        return _write(_files(opened, out, chosen, rows, tables, about), out, chosen, size)


def _format(out: Path, format: str | None) -> tuple[str | None, Path]:
    """The format of an export, and its path with a suffix."""
    suffix = out.suffix.lower() if out.suffix[1:2].isalpha() else ""
    if format is not None and format not in FORMATS:
        raise UsageError(f"{format!r} is not a format of export; use {', '.join(FORMATS)}")
    if format is None:
        found = next((name for name in FORMATS if suffix in FORMATS[name]), None)
        if suffix and found is None:
            every = ", ".join(suffix for name in FORMATS for suffix in FORMATS[name])
            raise UsageError(
                f"{out}: {out.suffix} is not a format of export; use {every}, or a name without "
                "suffix for the whole run"
            )
        return found, out
    if suffix and suffix not in FORMATS[format]:
        wanted = " or ".join(FORMATS[format]) or "a folder, whose name has no suffix"
        raise UsageError(f"{out}: --format {format} writes {wanted}")
    return format, out if suffix or not FORMATS[format] else Path(f"{out}{FORMATS[format][0]}")


def _named_rows(run: Run, tables: Mapping[str, StoredTensor]) -> dict[str, NamedRows]:
    """The rows of entities, and of relations for queries of both sides."""
    vocabulary = run.graph.vocabulary
    relations = vocabulary.relations
    if run.recipe.model.reciprocal:
        relations += tuple(name + INVERSE for name in relations)
    return {
        kind: NamedRows(
            names,
            tables[kind].shape[1],
            _array(torch.empty(0, dtype=tables[kind].dtype)).dtype,
            lambda stored=tables[kind]: map(_array, stored.blocks()),  # type: ignore[misc]
        )
        for kind, names in (("entities", vocabulary.entities), ("relations", relations))
    }


def _array(block: Tensor) -> npt.NDArray[Any]:
    """A block of rows for NumPy, which has no bfloat16: that becomes float32."""
    return (block.float() if block.dtype == torch.bfloat16 else block).numpy()


def _about(
    run: Run, rows: Mapping[str, NamedRows], tables: Mapping[str, StoredTensor]
) -> dict[str, Any]:
    """What the numbers mean: the description that is written beside the vectors."""
    model, settings = run.model, run.recipe.model
    formula, _, layout = (inspect.getdoc(type(model)) or "").partition("\n\n")
    about: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": settings.name,
        **{name: getattr(settings, name) for name in ("dim", "norm", "squared", "bias")},
        "score": " ".join(formula.split()),
        "layout": " ".join(layout.split()),
        "kernel": model.kernel.name,
        "search": _SEARCH.get(model.kernel.name),
        "reciprocal": settings.reciprocal,
        **{kind: {"rows": len(of.names), "width": of.width} for kind, of in rows.items()},
        "data": run.graph.name,
        "allneg": __version__,
    }
    if settings.bias:
        about["layout"] += " The last number of an entity row is its bias, added to its scores."
    if settings.reciprocal:
        about["inverse"] = "(?, r, t) has the query vector of (t, r, ?) with the row of r (inverse)"
    if "shared" in tables:
        about["shared"] = list(tables["shared"].shape)
    if run.has_report:
        protocol = run.report.protocol
        about["report"] = {"mrr": run.report.mrr, **{n: protocol[n] for n in ("split", "in_words")}}
    return about


def _files(
    run: Run,
    out: Path,
    format: str,
    rows: Mapping[str, NamedRows],
    tables: Mapping[str, StoredTensor],
    about: Mapping[str, Any],
) -> dict[Path, Parts]:
    """The content of each new file, entities first."""
    if format == "neo4j":
        return {
            out / "nodes.csv": writers.neo4j_nodes(rows["entities"]),
            out / "relationships.csv": writers.neo4j_relationships(run.graph),
            out / "relations.npy": writers.npy(rows["relations"]),
            out / "relations.txt": writers.names(rows["relations"]),
            out / "about.json": writers.json_text({**about, "format": format}),
        }

    def beside(end: str) -> Path:
        return out.with_name(f"{out.name}.{end}")

    found: dict[Path, Parts] = {}
    if format == "safetensors":
        found[out] = joined_bytes(tables)
    else:
        found[out] = _WRITERS[format](rows["entities"])
        found[out.with_suffix(f".relations{out.suffix}")] = _WRITERS[format](rows["relations"])
        if "shared" in tables:
            stored = tables["shared"]
            blocks = map(_array, stored.blocks())
            found[beside("shared.npy")] = writers.array(
                stored.shape, rows["entities"].dtype, blocks
            )
    if format in _NEEDS_NAMES:
        found |= {beside(f"{kind}.txt"): writers.names(of) for kind, of in rows.items()}
    names = [path.name for path in found]
    found[beside("json")] = writers.json_text({**about, "format": format, "files": names})
    return found


def _write(found: Mapping[Path, Parts], out: Path, format: str, size: int) -> list[Path]:
    """Write all files, or none of them; they have at least `size` bytes."""
    is_folder = format == "neo4j"
    for path in [out] if is_folder else found:
        check_absent(path)
    with ExitStack() as stack:
        folder = out if is_folder else out.parent
        with files.write_errors(out):
            folder.mkdir(parents=True, exist_ok=True)
        if is_folder:
            stack.enter_context(files.removed_on_error(out))
        files.need_bytes(folder, size)
        for path, parts in found.items():
            stack.enter_context(files.removed_on_error(path))
            files.write_parts(path, parts)
    return list(found)
