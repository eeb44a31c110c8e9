"""Checkpoints: folders that appear complete, each with a manifest of sizes and SHA-256."""

import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from allneg.errors import ResourceError, RunError
from allneg.evaluation.report import is_number
from allneg.runs import disk, files, plain
from allneg.runs.files import TEMPORARY, write_errors
from allneg.runs.shards import file_name, files_of, own_part, read
from allneg.scoring.distributed import SINGLE_PROCESS, Shard, World

_MANIFEST = "manifest.json"
_NAME = re.compile(r"epoch-\d{6,}-step-\d{8,}(-again)?")
_RUN = "run"  # in a manifest: the id of the run
_SMALL_FILES = 1 << 16  # bytes that a checkpoint needs besides its tensors, at most


@dataclass(frozen=True)
class State:
    """The progress of a training. With the seed, it determines all random choices that follow."""

    epoch: int = 0  # complete epochs
    step: int = 0  # steps done in the next epoch
    loss: float = 0.0  # sum of these steps' losses
    best_epoch: int = 0
    best_mrr: float = -1.0
    stale: int = 0  # evaluations since the best
    drops: int = 0  # times a plateau lowered the learning rate
    since_drop: int = 0  # evaluations since the best or the last drop
    seconds: float = 0.0  # spent training, in all sessions
    peak_bytes: int = 0  # highest memory use of any session; 0: not measured


@dataclass(frozen=True)
class Checkpoint:
    """A state and its tensors."""

    state: State
    tables: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    best: Mapping[str, Tensor] = field(default_factory=dict)  # empty: the tables are the best


def save(
    folder: Path,
    name: str,
    checkpoint: Checkpoint,
    world: World = SINGLE_PROCESS,
    run_id: str | None = None,
) -> None:
    """Write `folder/name`, point `last` at it, and delete the run's others but the one before.

    After a kill or a power cut at any moment, `last` points at a complete checkpoint: files are
    synced before the folder gets its name, and read back before `last` changes. Every process
    writes and checks its own shard; rank zero does the rest. The manifest records `run_id`, by
    which `load` recognises the run.
    """
    before = _pointed(folder) if world.is_rank_zero else None
    # The same epoch and step again, as when a run diverges right after its best epoch: the
    # checkpoint that `last` points at must not be overwritten.
    name = world.broadcast(f"{name}-again" if name == before else name)
    temporary, final = folder / (TEMPORARY + name), folder / name
    own = _own_files(checkpoint, world)
    size = sum(tensor.nbytes for tensors in own.values() for tensor in tensors.values())
    naming_errors = write_errors(final, size)  # as a decorator
    world.on_rank_zero(naming_errors(lambda: _make_folder(temporary, size)))
    written = world.raise_together(naming_errors(lambda: _write_files(temporary, own)))
    texts = world.gather_texts(json.dumps(written))
    manifest = {name: entry for text in texts for name, entry in json.loads(text).items()}
    finish = partial(_finish, temporary, final, checkpoint.state, manifest, run_id)
    world.on_rank_zero(naming_errors(finish))
    world.raise_together(lambda: files.check_files(final, written))
    world.on_rank_zero(naming_errors(lambda: _point_last(final, before, run_id)))


def _own_files(checkpoint: Checkpoint, world: World) -> dict[str, Mapping[str, Tensor]]:
    """The files that this process writes."""
    if world.batch.rank:
        return {}  # another process holds the same shard and writes it
    kinds = {"tables": checkpoint.tables, "optimizer": checkpoint.optimizer}
    if checkpoint.best:
        kinds["best"] = checkpoint.best
    return {file_name(kind, world.rows): own_part(kinds[kind], world.rows) for kind in kinds}


def _make_folder(temporary: Path, size: int) -> None:
    if not plain.exists(temporary.parent):
        disk.make_folder(temporary.parent)
        disk.sync(temporary.parent.parent)
    plain.check_folder(temporary.parent)
    files.need_bytes(temporary.parent, size + _SMALL_FILES)
    disk.remove(temporary)
    disk.make_folder(temporary)


def _write_files(temporary: Path, own: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Any]:
    """Write this process's files; their checksums."""
    if not temporary.is_dir():
        raise ResourceError(
            f"{temporary.parent}: a process on another machine does not see this folder; "
            "use a disk that all machines share"
        )
    with ThreadPoolExecutor() as threads:  # a file is hashed while another waits for the disk
        written = threads.map(files.write_tensors, [temporary / name for name in own], own.values())
        return dict(zip(own, written, strict=True))


def _finish(
    temporary: Path, final: Path, state: State, manifest: dict[str, Any], run_id: str | None
) -> None:
    """Write state and manifest, and give the folder its final name."""
    files.write_json(temporary / "state.json", asdict(state))
    manifest["state.json"] = files.checksum(temporary / "state.json")
    write_manifest(temporary, manifest, run_id)
    if plain.exists(final):  # from a save that failed before it changed `last`
        if not _is_own(final, run_id):
            message = f"{final}: not a checkpoint of this run, so it is not replaced; move it away"
            raise ResourceError(message)
        _discard(final)
    disk.rename(temporary, final)
    disk.sync(final.parent)


def write_manifest(folder: Path, checksums: Mapping[str, Any], run_id: str | None) -> None:
    named = {} if run_id is None else {_RUN: run_id}
    files.write_json(folder / _MANIFEST, {**named, **checksums})


def _point_last(final: Path, before: str | None, run_id: str | None) -> None:
    """Point `last` at a checkpoint, and delete those older than the one before it."""
    manifest = files.read_json(final / _MANIFEST)
    files.check_files(final, {"state.json": manifest["state.json"]})
    files.write_text(final.parent / "last", final.name + "\n")
    for name in names(final.parent):
        if name not in (final.name, before) and _is_own(final.with_name(name), run_id):
            _discard(final.with_name(name))


def _discard(folder: Path) -> None:
    """Delete a checkpoint. A kill leaves it whole, or a leftover that `allneg resume` deletes."""
    leftover = folder.with_name(f"{TEMPORARY}old-{folder.name}")
    disk.remove(leftover)
    disk.rename(folder, leftover)
    disk.remove(leftover)


def _is_own(folder: Path, run_id: str | None) -> bool:
    """Is this a checkpoint that the run wrote, and nothing else? Only those may be deleted."""
    try:
        manifest = files.read_json(folder / _MANIFEST)
        found = {path.name for path in plain.entries(folder)}
    except (RunError, OSError):
        return False
    written_by = manifest.pop(_RUN, None)
    return bool(written_by == run_id and found <= {_MANIFEST, *manifest})


def load(
    folder: Path,
    shard: Shard | None = None,
    warn: Callable[[str], None] | None = None,
    run_id: str | None = None,
) -> Checkpoint | None:
    """The last checkpoint, verified; None if there is none yet.

    With a shard, only its entity rows are read, whichever processes wrote them. With `warn`, a
    damaged checkpoint is reported and the newest complete one is used; `last` then points at
    that one, so the next save keeps it and deletes the damaged one.
    """
    world = shard.world if shard is not None else SINGLE_PROCESS

    def load_named(name: str | None) -> Checkpoint | None:
        if name is None and (name := _pointed(folder)) is None:
            return None
        found = verify(folder / name, run_id, world)
        span = (shard.start, shard.stop) if shard is not None and world.rows.size > 1 else None
        kinds = ("tables", "optimizer", "best")
        tensors = (read(found.get(kind, []), span) for kind in kinds)
        return Checkpoint(_read_state(folder / name / "state.json"), *tensors)

    try:
        return world.raise_together(partial(load_named, None))
    except RunError as damage:
        if warn is None:
            raise
        for name in reversed(names(folder)):
            with suppress(RunError):
                found = world.raise_together(partial(load_named, name))
                warn(f"{damage}\n{folder / name} is complete; training continues from it")
                world.on_rank_zero(partial(files.write_text, folder / "last", name + "\n"))
                return found
        raise


def _read_state(path: Path) -> State:
    new = vars(State())
    known = {name: value for name, value in files.read_json(path).items() if name in new}
    for name, value in known.items():
        has_type = type(value) in (type(new[name]), int) and is_number(value)
        if not has_type or value < min(new[name], 0):
            raise RunError(f"{path}: {name} is not a valid number; damaged")
    return State(**known)


def load_best(folder: Path, run_id: str | None = None) -> dict[str, Tensor]:
    """The best tables of the last checkpoint."""
    found = verify(last_folder(folder), run_id)
    return read(found.get("best") or found["tables"])


def last_folder(folder: Path) -> Path:
    """The folder of the last checkpoint."""
    name = _pointed(folder)
    if name is None:
        raise RunError(f"{folder.parent}: nothing is trained yet; run `allneg resume`")
    return folder / name


def last_state(folder: Path) -> State:
    """The progress that the last checkpoint holds."""
    return _read_state(last_folder(folder) / "state.json")


def names(folder: Path) -> list[str]:
    """The checkpoints in a folder, complete or not, oldest first."""
    with files.read_errors(folder):
        found = [path.name for path in plain.entries(folder)]
    return [name for name in found if _NAME.fullmatch(name)]


def verify(
    folder: Path, run_id: str | None = None, world: World = SINGLE_PROCESS
) -> dict[str, list[Path]]:
    """Check a checkpoint's files, shared among processes; the tensor files of each kind.

    `run_id` is None for runs of format 1, whose manifests do not name their run.
    """
    with files.read_errors(folder):
        plain.check_folder(folder)
    manifest = files.read_json(folder / _MANIFEST)
    if manifest.pop(_RUN, None) != run_id:
        raise RunError(f"{folder}: a checkpoint of another run, or run.json was changed")
    kinds = files_of(manifest) if files.are_checksums(manifest) else {}
    shards = {len(parts) for parts in kinds.values()}
    expected = {"state.json"}.union(*kinds.values())
    if not {"tables", "optimizer"} <= kinds.keys() or len(shards) > 1 or expected != set(manifest):
        raise RunError(f"{folder / _MANIFEST}: does not list the checkpoint's files; damaged")
    own = list(manifest)[world.rank :: world.size]
    files.check_files(folder, {name: manifest[name] for name in own})
    return {kind: [folder / name for name in kinds[kind]] for kind in kinds}


def _pointed(folder: Path) -> str | None:
    """The name in `last`; if the first save did not get to write it, the only checkpoint."""
    path, found = folder / "last", names(folder)
    if not plain.exists(path):
        if len(found) > 1:
            raise RunError(f"{path}: missing, so the last checkpoint is unknown")
        return found[0] if found else None
    name = files.read_bytes(path).decode("ascii", "replace").strip("\r\n")
    if not _NAME.fullmatch(name):
        raise RunError(f"{path}: not the name of a checkpoint; damaged")
    return name
