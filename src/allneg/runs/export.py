"""A run's shards joined into one file, or into a run of one process, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from allneg.errors import RecipeError
from allneg.runs import disk as seam
from allneg.runs.checkpoint import last_folder, verify
from allneg.runs.files import (
    full_disk_named,
    need_bytes,
    proof,
    sync,
    unreadable_named,
    write_json,
    write_parts,
    write_text,
)
from allneg.runs.run import Run
from allneg.runs.shards import Part, listed, opened
from allneg.runs.tensors import header

_COPIED = (
    "recipe.toml", "entities.txt", "relations.txt", "triples.safetensors", "environment.json",
    "metrics.jsonl", "status.json", "report.json", "run.json",
)  # fmt: skip
_BLOCK = 1 << 24  # bytes copied at a time


def export(run: Run, out: Path) -> None:
    """Write the best weights to `out`, a .safetensors file, or the whole run to `out`, a folder.

    Whatever number of processes trained the run, memory holds a block of its rows at a time.
    """
    if out.exists() or out.is_symlink():
        raise RecipeError(f"{out}: exists already; choose another --out")
    run.need_weights()
    where = last_folder(run.folder / "checkpoints")
    verify(where)
    files = listed(where)
    with opened([where / name for name in files["tables"]]) as parts:
        run.check_shapes(parts)
    if out.suffix == ".safetensors":
        with full_disk_named(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        _join(where, files.get("best", files["tables"]), out)
    else:
        _export_run(run, where, files, out)


def _export_run(run: Run, where: Path, files: Mapping[str, list[str]], out: Path) -> None:
    """A run that one process could have written; `run.json` comes last, and makes it one."""
    target = out / "checkpoints" / where.name
    with full_disk_named(out):
        target.mkdir(parents=True)
    try:
        manifest: dict[str, Any] = {}
        for kind, names in files.items():
            _join(where, names, target / f"{kind}.safetensors")
            manifest[f"{kind}.safetensors"] = proof(target / f"{kind}.safetensors")
        _copy(where / "state.json", target / "state.json")
        manifest["state.json"] = proof(target / "state.json")
        write_json(target / "manifest.json", manifest)
        write_text(target.parent / "last", f"{where.name}\n")
        for name in _COPIED:
            if (run.folder / name).exists():
                _copy(run.folder / name, out / name)
        sync(out)
        sync(out.parent)
    except BaseException:
        with suppress(OSError):
            seam.disk.remove(out)  # a part of a run is of no use
        raise


def _join(where: Path, names: list[str], out: Path) -> None:
    """One safetensors file from several, whole or not there."""
    need_bytes(out.parent, sum((where / name).stat().st_size for name in names))
    with opened([where / name for name in names]) as parts:
        write_parts(out, _bytes(parts))


def _bytes(parts: Mapping[str, Part]) -> Iterator[seam.Bytes]:
    """The bytes that `run/tensors.py` gives of the same tensors, read as they are needed."""
    order, head = header({name: (part.dtype, part.shape) for name, part in parts.items()})
    yield head
    for name in order:
        for block in parts[name].blocks():
            if block.numel():
                yield block.contiguous().reshape(-1).view(torch.uint8).numpy().data


def _copy(old: Path, new: Path) -> None:
    with unreadable_named(old):
        file = old.open("rb")
    with file, full_disk_named(new):
        seam.disk.write(new, iter(lambda: file.read(_BLOCK), b""))
        seam.disk.sync(new)
