"""Copies of whole runs."""

from __future__ import annotations

from pathlib import Path

from allneg.errors import RecipeError
from allneg.runs import checkpoint, files, plain
from allneg.runs.folder import GRAPH_FILES, LABELS, graph_files
from allneg.runs.run import Run
from allneg.runs.shards import joined_bytes, opened

# run.json is last, since it makes a folder a run.
_COPIED = (
    "recipe.toml", "environment.json", "metrics.jsonl", "status.json", "report.json", "run.json",
)  # fmt: skip
RUN_FILES = (*GRAPH_FILES, LABELS, *_COPIED)  # and the folder of checkpoints
_BLOCK = 1 << 24  # bytes copied at once


def export(run: Run, out: Path) -> None:
    """Write the whole run to `out`, a new folder, as one process would have written it.

    Only one block of rows is in memory at a time, however many processes trained the run.
    """
    check_absent(out)
    run.need_weights()
    last = checkpoint.last_folder(run.folder / "checkpoints")
    kinds = checkpoint.verify(last, run.id)
    with opened(kinds["tables"]) as tensors:
        run.check_shapes(tensors)
    target = out / "checkpoints" / last.name
    with files.write_errors(out):
        target.mkdir(parents=True)
    with files.removed_on_error(out):
        for kind, shards in kinds.items():
            files.need_bytes(target, sum(path.stat().st_size for path in shards))
            with opened(shards) as tensors:
                files.write_parts(target / f"{kind}.safetensors", joined_bytes(tensors))
        _copy_small(last / "state.json", target)
        checksums = {path.name: files.checksum(path) for path in target.iterdir()}
        checkpoint.write_manifest(target, checksums, run.id)
        files.write_text(target.parent / "last", f"{last.name}\n")
        for name in graph_files(run.folder):
            _copy(run.folder / name, out / name)
        for name in _COPIED:
            if plain.exists(run.folder / name):
                _copy_small(run.folder / name, out)
        files.sync(out)
        files.sync(out.parent)


def check_absent(out: Path) -> None:
    """Raise a `RecipeError` unless `out` can be the name of something new."""
    if not plain.is_utf8(out):
        raise RecipeError(f"{out}: not a name in UTF-8; choose another --out")
    if plain.exists(out):
        raise RecipeError(f"{out}: already exists; choose another --out")


def _copy_small(path: Path, folder: Path) -> None:
    files.write_parts(folder / path.name, [files.read_bytes(path, files.LARGE)])


def _copy(old: Path, new: Path) -> None:
    with files.read_errors(old):
        file = plain.open_file(old)
    with file:
        files.write_parts(new, iter(lambda: file.read(_BLOCK), b""))
