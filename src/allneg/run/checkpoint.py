"""A checkpoint: a folder that appears whole, with a manifest that proves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from allneg.errors import BadRun
from allneg.run import disk as seam
from allneg.run.files import (
    TEMPORARY,
    check_proof,
    full_disk_named,
    is_proof,
    need_bytes,
    proof,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
    write_text,
)

_MANIFEST = "manifest.json"
_FILES = {"tables.safetensors", "optimizer.safetensors", "best.safetensors", "state.json"}
_LITTLE = 1 << 16  # bytes of a checkpoint's small files, at most


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
    """Write `folder/name` whole, point `folder/last` at it, then drop the ones before the last.

    Whenever the power goes or the process is killed, `last` points at a whole checkpoint: files
    are on the disk before the folder gets its name, the folder is read back and found right
    before `last` moves, and what `last` pointed at stays until the next save.
    """
    before = _pointed(folder)
    if name == before:
        # The same moment again, as when a resumed run diverges at once. What `last` points at
        # must stay until `last` points elsewhere.
        name += "-again"
    temporary, final = folder / (TEMPORARY + name), folder / name
    files = {"tables": checkpoint.tables, "optimizer": checkpoint.optimizer}
    if checkpoint.best:
        files["best"] = checkpoint.best
    size = sum(each.nbytes for tensors in files.values() for each in tensors.values())
    with full_disk_named(final, size):
        if not folder.exists():
            seam.disk.make_folder(folder)
            seam.disk.sync(folder.parent)
        need_bytes(folder, size + _LITTLE)
        seam.disk.remove(temporary)
        seam.disk.make_folder(temporary)
        manifest = {
            f"{each}.safetensors": write_tensors(temporary / f"{each}.safetensors", tensors)
            for each, tensors in files.items()
        }
        write_json(temporary / "state.json", asdict(checkpoint.state))
        manifest["state.json"] = proof(temporary / "state.json")
        write_json(temporary / _MANIFEST, manifest)
        seam.disk.remove(final)  # from a save that did not get to move `last`
        seam.disk.rename(temporary, final)
        seam.disk.sync(folder)
        verify(final)
        write_text(folder / "last", name + "\n")
        for old in folder.iterdir():
            if old.is_dir() and old.name not in (name, before):
                seam.disk.remove(old)


def load(folder: Path) -> Checkpoint | None:
    """The last checkpoint, checked against its manifest; None when there is none yet."""
    name = _pointed(folder)
    if name is not None:
        return _load(folder / name)
    if names(folder):
        raise BadRun(f"{folder / 'last'}: missing, so nobody knows which checkpoint is the last")
    return None


def load_or_fall_back(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The last checkpoint or, where it is damaged, the one before it, which `say` is told of.

    `last` then points at that one, so that the next save keeps it and drops the damaged one.
    """
    try:
        return load(folder)
    except BadRun as damage:
        for name in reversed(names(folder)):
            try:
                found = _load(folder / name)
            except BadRun:
                continue
            say(f"{damage}\n{folder / name} is whole, so training goes on from there instead")
            write_text(folder / "last", name + "\n")
            return found
        raise


def names(folder: Path) -> list[str]:
    """The checkpoints in a folder, whole or not, oldest first."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(
        each.name for each in found if each.is_dir() and not each.name.startswith(TEMPORARY)
    )


def _load(where: Path) -> Checkpoint:
    verify(where)
    best = where / "best.safetensors"
    return Checkpoint(
        _state(where / "state.json"),
        read_tensors(where / "tables.safetensors"),
        read_tensors(where / "optimizer.safetensors"),
        read_tensors(best) if best.exists() else {},
    )


def _state(path: Path) -> State:
    said = read_json(path)
    if not isinstance(said, dict):
        raise BadRun(f"{path}: not a training's state; damaged")
    kinds = {each.name: type(each.default) for each in fields(State)}
    found = {name: value for name, value in said.items() if name in kinds}
    for name, value in found.items():
        if type(value) not in (kinds[name], int):
            raise BadRun(f"{path}: {name} is {value!r}, not {kinds[name].__name__}; damaged")
    return State(**found)


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
        check_proof(where / name, said)


def _is_manifest(said: Any) -> bool:
    return (
        isinstance(said, dict)
        and {"tables.safetensors", "optimizer.safetensors", "state.json"} <= said.keys()
        and said.keys() <= _FILES
        and all(is_proof(each) for each in said.values())
    )


def _pointed(folder: Path) -> str | None:
    """The name in `last`; where the first save did not get to write it, the only one there is."""
    path = folder / "last"
    try:
        name = path.read_bytes()[:_LITTLE].decode("ascii").strip()
    except FileNotFoundError:
        found = names(folder)
        return found[0] if len(found) == 1 else None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRun(f"{path}: cannot be read ({error})") from None
    if not name or name.startswith(".") or "/" in name or not name.isprintable():
        raise BadRun(f"{path}: names no checkpoint; damaged")
    return name
