"""A checkpoint: a folder that appears whole, with a manifest that proves it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from allneg.errors import BadRun
from allneg.run.files import (
    TEMPORARY,
    full_disk_named,
    read_json,
    read_tensors,
    sha256,
    sync_folder,
    write_json,
    write_tensors,
    write_text,
)

_MANIFEST = "manifest.json"
_PROOFS = {"bytes", "sha256"}


@dataclass(frozen=True)
class State:
    """How far training came; with the seed, all that chance depends on."""

    epoch: int = 0  # whole epochs done
    step: int = 0  # steps done in the next one
    loss: float = 0.0  # their losses' sum
    best_epoch: int = 0
    best_mrr: float = -1.0
    stale: int = 0  # rankings since the best
    drops: int = 0  # times a plateau lowered the learning rate
    since_drop: int = 0  # rankings since the best or the last drop
    seconds: float = 0.0  # spent training, in all sessions


@dataclass(frozen=True)
class Checkpoint:
    """A state and the tensors that belong to it."""

    state: State
    tables: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    best: Mapping[str, Tensor] = field(default_factory=dict)  # empty: the tables are the best


def save(folder: Path, name: str, checkpoint: Checkpoint) -> None:
    """Write `folder/name` whole, point `folder/last` at it, then drop the ones before the last."""
    before = _pointed(folder)
    if name == before:
        # The same moment again, as when a resumed run diverges at once. What `last` points at
        # must stay until `last` points elsewhere.
        name += "-again"
    temporary, final = folder / (TEMPORARY + name), folder / name
    with full_disk_named(final):
        folder.mkdir(exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        files = {"tables": checkpoint.tables, "optimizer": checkpoint.optimizer}
        if checkpoint.best:
            files["best"] = checkpoint.best
        for each, tensors in files.items():
            write_tensors(temporary / f"{each}.safetensors", tensors)
        write_json(temporary / "state.json", asdict(checkpoint.state))
        write_json(temporary / _MANIFEST, _manifest(temporary))
        shutil.rmtree(final, ignore_errors=True)  # from a save that did not get to move `last`
        os.rename(temporary, final)
        sync_folder(folder)
        write_text(folder / "last", name + "\n")
        for old in folder.iterdir():
            if old.is_dir() and old.name not in (name, before):
                shutil.rmtree(old)


def load(folder: Path, tensors: bool = True) -> Checkpoint | None:
    """The last checkpoint, checked against its manifest; None when there is none yet."""
    name = _pointed(folder)
    if name is None:
        return None
    where = folder / name
    verify(where)
    known = {each.name for each in fields(State)}
    said = {key: value for key, value in read_json(where / "state.json").items() if key in known}
    if not tensors:
        return Checkpoint(State(**said), {}, {})
    best = where / "best.safetensors"
    return Checkpoint(
        State(**said),
        read_tensors(where / "tables.safetensors"),
        read_tensors(where / "optimizer.safetensors"),
        read_tensors(best) if best.exists() else {},
    )


def load_best(folder: Path) -> dict[str, Tensor]:
    """The best tables of the last checkpoint."""
    name = _pointed(folder)
    if name is None:
        raise BadRun(f"{folder.parent}: nothing is trained yet; `allneg resume` it")
    verify(folder / name)
    best = folder / name / "best.safetensors"
    return read_tensors(best if best.exists() else folder / name / "tables.safetensors")


def verify(where: Path) -> None:
    """Check every file of a checkpoint against its manifest."""
    manifest = read_json(where / _MANIFEST)
    if not _is_manifest(manifest):
        raise BadRun(f"{where / _MANIFEST}: does not list the checkpoint's files; damaged")
    for name, said in manifest.items():
        path = where / name
        if not path.is_file():
            raise BadRun(f"{path}: missing; the checkpoint is not whole")
        if path.stat().st_size != said["bytes"]:
            found = path.stat().st_size
            raise BadRun(f"{path}: {found:,} bytes where {said['bytes']:,} were written; damaged")
        if sha256(path) != said["sha256"]:
            raise BadRun(f"{path}: its SHA-256 is not the manifest's; the file is damaged")


def _is_manifest(said: Any) -> bool:
    return (
        isinstance(said, dict)
        and said.keys() >= {"tables.safetensors", "optimizer.safetensors", "state.json"}
        and all(isinstance(each, dict) and each.keys() == _PROOFS for each in said.values())
    )


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.iterdir())
    }


def _pointed(folder: Path) -> str | None:
    try:
        return (folder / "last").read_text().strip()
    except OSError:
        return None
