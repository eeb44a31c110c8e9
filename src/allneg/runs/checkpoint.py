"""A checkpoint: a folder that appears whole, with a manifest that proves it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from allneg.errors import RunError, ResourceError
from allneg.runs import disk as seam
from allneg.runs.files import (
    TEMPORARY,
    check_proof,
    full_disk_named,
    is_proof,
    need_bytes,
    proof,
    read_json,
    unreadable_named,
    write_json,
    write_tensors,
    write_text,
)
from allneg.runs.shards import file_name, files_of, own_part
from allneg.runs.shards import read as read_kind
from allneg.scoring.distributed import SINGLE_PROCESS, Shard, World

_MANIFEST = "manifest.json"
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
    peak_bytes: int = 0  # held at once, in any session; 0: not measured


@dataclass(frozen=True)
class Checkpoint:
    """A state and the tensors that belong to it."""

    state: State
    tables: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    best: Mapping[str, Tensor] = field(default_factory=dict)  # empty: the tables are the best


def save(folder: Path, name: str, checkpoint: Checkpoint, world: World = SINGLE_PROCESS) -> None:
    """Write `folder/name` whole, point `folder/last` at it, then drop the ones before the last.

    Whenever the power goes or a process is killed, `last` points at a whole checkpoint: files
    are on the disk before the folder gets its name, the folder is read back and found right
    before `last` moves, and what `last` pointed at stays until the next save. Every process
    writes and reads back its own shard; the first one does the rest.
    """
    before = _pointed(folder) if world.is_rank_zero else None
    # The same moment again, as when a run diverges right after its best epoch. What `last` points
    # at must stay until `last` points elsewhere.
    name = world.broadcast(f"{name}-again" if name == before else name)
    saving = _Saving(folder, name, _files(checkpoint, world))
    world.on_rank_zero(saving.make)
    proofs = world.raise_together(saving.write)
    manifest: dict[str, Any] = {}
    for told in world.gather_texts(json.dumps(proofs)):
        manifest |= json.loads(told)
    world.on_rank_zero(lambda: saving.finish(checkpoint.state, manifest))
    world.raise_together(lambda: saving.check(proofs))
    world.on_rank_zero(lambda: saving.point(before))


def _files(checkpoint: Checkpoint, world: World) -> dict[str, Mapping[str, Tensor]]:
    """The tensors of each file that this process writes."""
    if world.batch.rank:
        return {}  # another process has the same shard, and writes it
    kinds = {"tables": checkpoint.tables, "optimizer": checkpoint.optimizer}
    if checkpoint.best:
        kinds["best"] = checkpoint.best
    return {
        file_name(kind, world.rows): own_part(tensors, world.rows)
        for kind, tensors in kinds.items()
    }


@dataclass(frozen=True)
class _Saving:
    """The steps of a save, each turning a failure into a problem that names the checkpoint."""

    folder: Path
    name: str
    files: Mapping[str, Mapping[str, Tensor]]  # of this process

    @property
    def temporary(self) -> Path:
        return self.folder / (TEMPORARY + self.name)

    @property
    def final(self) -> Path:
        return self.folder / self.name

    @property
    def size(self) -> int:
        return sum(each.nbytes for tensors in self.files.values() for each in tensors.values())

    def make(self) -> None:
        with full_disk_named(self.final, self.size):
            if not self.folder.exists():
                seam.disk.make_folder(self.folder)
                seam.disk.sync(self.folder.parent)
            need_bytes(self.folder, self.size + _LITTLE)
            seam.disk.remove(self.temporary)
            seam.disk.make_folder(self.temporary)

    def write(self) -> dict[str, Any]:
        """Write this process's files; the size and SHA-256 of each."""
        with full_disk_named(self.final, self.size):
            if not self.temporary.is_dir():
                raise ResourceError(
                    f"{self.folder}: another machine's process does not find it; all processes "
                    "write to one folder, on a disk that every machine sees"
                )
            return {
                name: write_tensors(self.temporary / name, tensors)
                for name, tensors in self.files.items()
            }

    def finish(self, state: State, manifest: dict[str, Any]) -> None:
        """Write the rest and, when all is on the disk, give the folder its name."""
        with full_disk_named(self.final):
            write_json(self.temporary / "state.json", asdict(state))
            manifest["state.json"] = proof(self.temporary / "state.json")
            write_json(self.temporary / _MANIFEST, manifest)
            seam.disk.remove(self.final)  # from a save that did not get to move `last`
            seam.disk.rename(self.temporary, self.final)
            seam.disk.sync(self.folder)

    def check(self, proofs: Mapping[str, Any]) -> None:
        """Read back what this process wrote."""
        for name, said in proofs.items():
            check_proof(self.final / name, said)

    def point(self, before: str | None) -> None:
        """Point `last` here, and drop what nobody needs any more."""
        with full_disk_named(self.final):
            manifest = read_json(self.final / _MANIFEST)
            check_proof(self.final / "state.json", manifest["state.json"])
            write_text(self.folder / "last", self.name + "\n")
            for old in self.folder.iterdir():
                if old.is_dir() and old.name not in (self.name, before):
                    seam.disk.remove(old)


def load(folder: Path, shard: Shard | None = None) -> Checkpoint | None:
    """The last checkpoint, checked against its manifest; None when there is none yet.

    With a shard, its rows of the entities alone are read, whoever wrote them.
    """
    name = _pointed(folder)
    return None if name is None else _load(folder / name, shard)


def load_or_fall_back(
    folder: Path, say: Callable[[str], None], shard: Shard | None = None
) -> Checkpoint | None:
    """The last checkpoint or, where it is damaged, the one before it, which `say` is told of.

    `last` then points at that one, so that the next save keeps it and drops the damaged one.
    """
    world = shard.world if shard is not None else SINGLE_PROCESS
    try:
        return world.raise_together(lambda: load(folder, shard))
    except RunError as damage:
        for name in reversed(names(folder)):
            try:
                found = world.raise_together(lambda where=folder / name: _load(where, shard))  # type: ignore[misc]
            except RunError:
                continue
            say(f"{damage}\n{folder / name} is whole, so training goes on from there instead")
            world.on_rank_zero(lambda name=name: write_text(folder / "last", name + "\n"))  # type: ignore[misc]
            return found
        raise


def names(folder: Path) -> list[str]:
    """The checkpoints in a folder, whole or not, oldest first."""
    with unreadable_named(folder):
        found = list(folder.iterdir()) if folder.is_dir() else []
    return sorted(
        each.name for each in found if each.is_dir() and not each.name.startswith(TEMPORARY)
    )


def _load(where: Path, shard: Shard | None = None) -> Checkpoint:
    world = shard.world if shard is not None else SINGLE_PROCESS
    verify(where, world)
    span = (shard.start, shard.stop) if shard is not None and world.rows.size > 1 else None
    kinds = (read_kind(where, kind, span) for kind in ("tables", "optimizer", "best"))
    return Checkpoint(_state(where / "state.json"), *kinds)


def _state(path: Path) -> State:
    said = read_json(path)
    if not isinstance(said, dict):
        raise RunError(f"{path}: not a training's state; damaged")
    kinds = {each.name: type(each.default) for each in fields(State)}
    found = {name: value for name, value in said.items() if name in kinds}
    for name, value in found.items():
        if type(value) not in (kinds[name], int):
            raise RunError(f"{path}: {name} is {value!r}, not {kinds[name].__name__}; damaged")
    return State(**found)


def load_best(folder: Path) -> dict[str, Tensor]:
    """The best tables of the last checkpoint."""
    where = last_folder(folder)
    verify(where)
    return read_kind(where, "best") or read_kind(where, "tables")


def last_folder(folder: Path) -> Path:
    """Where the last checkpoint is."""
    name = _pointed(folder)
    if name is None:
        raise RunError(f"{folder.parent}: nothing is trained yet; `allneg resume` it")
    return folder / name


def verify(where: Path, world: World = SINGLE_PROCESS) -> None:
    """Check every file of a checkpoint against its manifest; processes share the work."""
    manifest = read_json(where / _MANIFEST)
    if not _is_manifest(manifest):
        raise RunError(f"{where / _MANIFEST}: does not list the checkpoint's files; damaged")
    for i, (name, said) in enumerate(manifest.items()):
        if i % world.size == world.rank:
            check_proof(where / name, said)


def _is_manifest(said: Any) -> bool:
    return (
        isinstance(said, dict) and _is_whole(said) and all(is_proof(each) for each in said.values())
    )


def _is_whole(names: Iterable[str]) -> bool:
    """Is every file of a checkpoint there, and none besides?"""
    found = files_of(names)
    parts = [len(files) for files in found.values()]
    known = {"state.json", *(name for files in found.values() for name in files)}
    return {"tables", "optimizer"} <= found.keys() and len(set(parts)) == 1 and known == set(names)


def _pointed(folder: Path) -> str | None:
    """The name in `last`; where the first save did not get to write it, the only one there is."""
    path = folder / "last"
    try:
        name = path.read_bytes()[:_LITTLE].decode("ascii").strip("\r\n")
    except FileNotFoundError:
        found = names(folder)
        if len(found) > 1:
            raise RunError(f"{path}: missing, so nobody knows which checkpoint is the last") from None
        return found[0] if found else None
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from None
    if not name or name.startswith(".") or "/" in name or not name.isprintable():
        raise RunError(f"{path}: names no checkpoint; damaged")
    return name
