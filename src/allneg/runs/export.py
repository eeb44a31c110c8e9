"""Join the shards of a run into one file, or into a run of one process."""

from collections.abc import Mapping
from pathlib import Path

from allneg.errors import RecipeError
from allneg.runs import files
from allneg.runs.checkpoint import last_folder, verify
from allneg.runs.run import Run
from allneg.runs.shards import opened

_COPIED = (
    "recipe.toml", "entities.txt", "relations.txt", "triples.safetensors", "environment.json",
    "metrics.jsonl", "status.json", "report.json", "run.json",
)  # fmt: skip
_BLOCK = 1 << 24  # bytes copied at once


def export(run: Run, out: Path) -> None:
    """Write the best weights to `out`, a .safetensors file, or the whole run to `out`, a folder.

    Only one block of rows is in memory at a time, however many processes trained the run.
    """
    if out.exists() or out.is_symlink():
        raise RecipeError(f"{out}: already exists; choose another --out")
    run.need_weights()
    last = last_folder(run.folder / "checkpoints")
    kinds = {kind: [last / name for name in names] for kind, names in verify(last).items()}
    with opened(kinds["tables"]) as tensors:
        run.check_shapes(tensors)
    if out.suffix == ".safetensors":
        with files.write_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        _join(kinds.get("best", kinds["tables"]), out)
    else:
        _export_run(run, last, kinds, out)


def _export_run(run: Run, last: Path, kinds: Mapping[str, list[Path]], out: Path) -> None:
    """Write a run as one process would have; run.json is last, since it makes a folder a run."""
    target = out / "checkpoints" / last.name
    with files.write_errors(out):
        target.mkdir(parents=True)
    with files.removed_on_error(out):
        for kind, shards in kinds.items():
            _join(shards, target / f"{kind}.safetensors")
        _copy(last / "state.json", target / "state.json")
        manifest = {path.name: files.checksum(path) for path in target.iterdir()}
        files.write_json(target / "manifest.json", manifest)
        files.write_text(target.parent / "last", f"{last.name}\n")
        for name in _COPIED:
            if (run.folder / name).exists():
                _copy(run.folder / name, out / name)
        files.sync(out)
        files.sync(out.parent)


def _join(shards: list[Path], out: Path) -> None:
    """Write one safetensors file from several, atomically."""
    files.need_bytes(out.parent, sum(path.stat().st_size for path in shards))
    with opened(shards) as tensors:
        about = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        files.write_parts(out, files.tensor_bytes(about, lambda name: tensors[name].blocks()))


def _copy(old: Path, new: Path) -> None:
    with files.read_errors(old):
        file = old.open("rb")
    with file:
        files.write_parts(new, iter(lambda: file.read(_BLOCK), b""))
