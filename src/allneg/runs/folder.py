"""The folder of a run: its name, its locks, its environment, and the graph in it."""

import codecs
import contextlib
import os
import platform
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from filelock import Timeout

from allneg import __version__
from allneg.errors import DataError, RecipeError, ResourceError, RunError, printable
from allneg.graph.graph import SPLITS, Graph, Vocabulary
from allneg.graph.mapped import LabelFile, MappedNames, label_lines
from allneg.hardware import find_device
from allneg.recipe import Hardware, Recipe
from allneg.runs import disk, files, plain
from allneg.runs.about import About

_LOCK = ".lock"
_TRIPLES = "triples.safetensors"
LABELS = "labels.tsv"  # only if the graph has labels
GRAPH_FILES = ("entities.txt", "relations.txt", _TRIPLES)
_HOLDER_BYTES = 1 << 10  # of .holder, which names the process that trains
_LARGE = 1 << 25  # bytes; a larger file of names stays on the disk


def new_folder(recipe: Recipe) -> Path:
    """A free name for a run without --out."""
    return free_folder(recipe.data.name, recipe.model.name)


def free_folder(data: str, what: str) -> Path:
    """runs/DATE_DATA_WHAT, with a number if it is taken."""
    data = Path(data).name.split(".")[0] or "data"
    base = Path("runs") / f"{time.strftime('%Y-%m-%d')}_{data}_{what}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}_{number}"), number + 1
    return folder


def check_new(folder: Path) -> None:
    """Raise an `AllnegError` unless a run can be created in a folder; nothing is written."""
    if not plain.is_utf8(folder):
        raise RecipeError(f"{folder}: not a name in UTF-8; choose another --out")
    with files.write_errors(folder):
        if folder.is_symlink():
            raise RecipeError(f"{folder}: is a link; choose another --out, or the link's target")
        if folder.exists() and not folder.is_dir():
            raise RecipeError(f"{folder}: exists and is not a folder; choose another --out")
        if folder.exists() and any(folder.iterdir()):
            raise _taken(folder)
        files.need_writable(existing_parent(folder))


def existing_parent(folder: Path) -> Path:
    """The innermost folder above `folder` that exists."""
    return next(path for path in folder.absolute().parents if path.exists())


def claim(folder: Path) -> None:
    """Create a folder for a run, as `check_new` allows; of several processes, one succeeds."""
    check_new(folder)
    with files.write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            disk.make_folder(folder / "checkpoints")
        except FileExistsError:
            raise _taken(folder) from None
        except BaseException:
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise


def _taken(folder: Path) -> RecipeError:
    if not plain.exists(folder / "run.json"):
        return RecipeError(f"{folder}: not empty and not a run; choose another --out")
    remedy = "choose another --out"
    with contextlib.suppress(RunError):
        if About.read(folder).is_trainable:
            remedy += ", or train it further with `allneg resume`"
    return RecipeError(f"{folder}: already exists; {remedy}")


def is_free(folder: Path) -> bool:
    """Is no process training the run in a folder?"""
    if not plain.exists(folder / _LOCK):
        return True
    try:
        with locked(folder, str):
            return True
    except (RecipeError, ResourceError):  # locked, or another user's file
        return False


@contextlib.contextmanager
def training_lock(folder: Path) -> Iterator[None]:
    """Lock a run for training, and delete what a killed process left behind."""
    holder = folder / ".holder"

    def reason() -> str:
        owner = "another process"
        if plain.exists(holder):
            owner = files.read_bytes(holder, _HOLDER_BYTES).decode(errors="replace")
        return f"is being trained by {owner}; wait for it"

    with locked(folder, reason, seconds=1):  # `is_free` holds the lock for a moment
        with files.read_errors(holder):
            if plain.exists(holder):
                plain.check_file(holder)  # left by a killed process
        files.write_text(holder, f"process {os.getpid()} on {socket.gethostname()}")
        try:
            with files.write_errors(folder):
                for path in leftovers(folder):
                    disk.remove(path)
            yield
        finally:
            holder.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path, reason: Callable[[], str], seconds: float = 0) -> Iterator[None]:
    """Lock a folder, waiting up to `seconds`; `reason` completes the message if it is taken."""
    path = folder / _LOCK
    with files.read_errors(path):
        lock = plain.lock(path, seconds)
    try:
        lock.acquire()
    except Timeout:
        raise RecipeError(f"{folder}: {reason()}") from None
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written ({error.strerror})") from None
    try:
        yield
    finally:
        lock.release()


def leftovers(folder: Path) -> list[Path]:
    """Files and folders that a killed process did not finish."""
    with files.read_errors(folder / "checkpoints"):
        found = [*plain.entries(folder), *plain.entries(folder / "checkpoints")]
    return [path for path in found if path.name.startswith(files.TEMPORARY)]


def environment(hardware: Hardware) -> dict[str, Any]:
    """What environment.json holds about this process."""
    device = find_device(hardware.device)
    return {
        "command": shlex.join(["allneg", *sys.argv[1:]]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "allneg": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "threads": hardware.threads or torch.get_num_threads(),
        "device": str(device),
        "cuda": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "launcher": _launcher(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def is_ours(folder: Path) -> bool:
    """Has the torchrun that started the run in a folder restarted it after a failure?"""
    if _launcher() is None or not plain.exists(folder / "run.json"):
        return False
    return bool(files.read_json(folder / "environment.json").get("launcher") == _launcher())


def _launcher() -> str | None:
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    if run_id is None:
        return None
    return f"torchrun {run_id}, process {os.getppid()} on {socket.gethostname()}"


def write_graph(folder: Path, graph: Graph) -> dict[str, Any]:
    """Write a graph's files; their checksums, which belong in run.json."""
    _check_writable(graph)
    for kind in ("entities", "relations"):
        names = getattr(graph.vocabulary, kind)
        files.write_text(folder / f"{kind}.txt", "".join(f"{name}\n" for name in names))
    splits = {name: torch.from_numpy(graph.split(name)) for name in SPLITS}
    if not isinstance(graph.train, np.memmap):
        # Half the bytes. The triples of a large graph are mapped, and stay 64 bits wide.
        splits = {name: triples.to(torch.int32) for name, triples in splits.items()}
    if graph.weights is not None:
        splits["weights"] = torch.from_numpy(graph.weights)
    files.write_tensors(folder / _TRIPLES, splits)
    written = [*GRAPH_FILES]
    if graph.labels:
        lines = (f"{line}\n".encode() for line in label_lines(graph.labels))
        files.write_parts(folder / LABELS, lines)
        written.append(LABELS)
    return {name: files.checksum(folder / name) for name in written}


def graph_files(folder: Path) -> dict[str, Any]:
    """The files of a run's graph and their checksums."""
    recorded: Any = files.read_json(folder / "run.json").get("files")
    if not files.are_checksums(recorded) or recorded.keys() - {LABELS} != set(GRAPH_FILES):
        raise RunError(f"{folder / 'run.json'}: does not list the run's files; damaged")
    checksums: dict[str, Any] = recorded
    return checksums


def read_graph(folder: Path) -> Graph:
    """The graph of a run, after checking that files have their checksums and ids have names."""
    about = files.read_json(folder / "run.json")
    recorded = graph_files(folder)
    files.check_files(folder, recorded)
    names = Vocabulary(
        _read_names(folder / "entities.txt"), tuple(_read_names(folder / "relations.txt"))
    )
    splits = files.read_tensors(folder / _TRIPLES)
    for name in SPLITS:
        if name not in splits or splits[name].dtype not in (torch.int32, torch.int64):
            raise RunError(f"{folder / _TRIPLES}: has no split {name}, or not as ids")
    # int64 triples are not copied: they stay on the disk until they are used.
    train, valid, test = (splits[name].numpy().astype(np.int64, copy=False) for name in SPLITS)
    weights = splits.get("weights")
    if weights is not None and (weights.dtype != torch.float32 or len(weights) != len(train)):
        raise RunError(f"{folder / _TRIPLES}: its weights do not fit its triples; damaged")
    graph = Graph(
        about["data"], names, train, valid, test,
        labels=LabelFile(folder / LABELS) if LABELS in recorded else {},
        weights=None if weights is None else weights.numpy(),
    )  # fmt: skip
    if not _has_valid_ids(graph):
        raise RunError(f"{folder / _TRIPLES}: has ids that the vocabulary does not have; damaged")
    if not len(train):
        raise RunError(f"{folder / _TRIPLES}: train is empty; damaged")
    return graph


def _check_writable(graph: Graph) -> None:
    """Raise a `DataError` if a graph made in Python could not be read again or trained on."""
    vocabulary = graph.vocabulary
    for kind, names in (("entities", vocabulary.entities), ("relations", vocabulary.relations)):
        if isinstance(names, MappedNames):
            continue  # checked when they were numbered
        if len(set(names)) != len(names):
            raise DataError(f"{graph.name}: two {kind} have the same name")
        if bad := next((name for name in names if "\n" in name), None):
            raise DataError(f"{graph.name}: {printable(bad)} has a line feed; rename it")
    if not _has_valid_ids(graph):
        raise DataError(f"{graph.name}: triples must be (n, 3) ids of its entities and relations")
    if not len(graph.train):
        raise DataError(f"{graph.name}: train is empty; add triples to it")


def _read_names(path: Path) -> Sequence[str]:
    try:
        with files.read_errors(path):
            if plain.check_file(path).st_size > _LARGE:
                _check_utf8(path)
                return MappedNames.open(path)
            # Only a line feed ends a name: other characters that split lines may be part of one.
            names = plain.read(path, _LARGE).decode().split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: cannot be read ({error})") from None
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RunError(f"{path}: {printable(twice)} occurs twice; the file is damaged")
    return tuple(names)


def _check_utf8(path: Path) -> None:
    """Raise a `UnicodeDecodeError` if a large file is not UTF-8; its names are read later."""
    with plain.open_file(path) as file:
        decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
        for block in iter(lambda: file.read(1 << 24), b""):
            decoder.decode(block)
        decoder.decode(b"", final=True)


def _has_valid_ids(graph: Graph) -> bool:
    sizes = (graph.n_entities, graph.n_relations, graph.n_entities)
    for triples in map(graph.split, SPLITS):
        if triples.ndim != 2 or triples.shape[1] != 3:
            return False
        if len(triples) and ((triples.min(0) < 0).any() or (triples.max(0) >= sizes).any()):
            return False
    return True
