"""Fuzz whole run folders: change files of a run in many ways, then use it with every command.

    python tests/fuzz/folders.py 100000 [seed]

A run may be used or refused with an `AllnegError`. Other exceptions, an input that takes more than
five seconds, and any change outside the run's folder are failures. A failure prints its number;
`python tests/fuzz/folders.py 1 NUMBER` repeats it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

import allneg
from allneg.cli.reports import print_run
from allneg.cli.runs import info_command
from allneg.errors import AllnegError
from allneg.exports.export import export
from allneg.graph.graph import Graph, Vocabulary
from allneg.paths import remove
from allneg.recipe import Recipe
from allneg.runs import Run, plain
from allneg.runs.about import about_hash
from allneg.runs.ensemble import ensemble
from allneg.runs.finished import export_bf16
from allneg.runs.verify import verify
from allneg.serve.loaded_run import LoadedRun
from allneg.training import fit
from allneg.training.train import resume

SECONDS = 5  # that one input may take
_LARGEST = 1 << 20  # bytes of a file that is changed
_SETTINGS = (
    "model.dim=2", "training.batch_size=8", "training.epochs=2", "evaluation.every=1",
    "training.save_seconds=0", "hardware.device=cpu", "hardware.threads=1",
)  # fmt: skip
# Values that JSON and TOML can express and a run never has.
_VALUES = (
    None, True, -1, 0, 1, 7, 10**400, -(10**30), 1e308, float("nan"), "", "\x1b[31m", "\ud800",
    [], {}, [[1]], {"a": {}}, "x" * 10_000,
)  # fmt: skip


def make_template(folder: Path, *settings: str) -> None:
    """A finished run of a small graph in `folder`, then one epoch more to train."""
    vocabulary = Vocabulary(tuple("abcdef"), ("r", "s"))
    triples = np.array([[h, r, (h + r + 1) % 6] for h in range(6) for r in range(2)])
    graph = Graph("toy", vocabulary, triples[:8], triples[8:10], triples[10:])
    fit(Run.create(folder, Recipe().with_settings([*_SETTINGS, *settings]), graph))


class Fuzzer:
    """A run that is changed at random, another run to take files from, and a canary beside them."""

    def __init__(self, home: Path) -> None:
        torch.set_num_threads(1)
        home = home.resolve()
        self.home, self.folder, self.canary = home, home / "run", home / "canary"
        self.templates = [home / name for name in ("one", "other", "both", "small")]
        make_template(self.templates[0])
        make_template(self.templates[1], "model.name=distmult", "training.seed=1")
        both = ensemble(self.templates[:2], out=self.templates[2], device="cpu")
        export_bf16(both, self.templates[3], "cpu")
        (self.canary / "thesis").mkdir(parents=True)
        for name in ("notes.txt", "thesis/chapter", "thesis/.tmp-draft"):
            (self.canary / name).write_text(name)
        for name in ("epoch-000001-step-00000000", ".tmp-folder"):
            (self.canary / name).mkdir()
            (self.canary / name / "mine").write_text("mine")
        self.before = self._canary_hash()
        self.files: list[str] = []  # of the run, before it is changed
        self.outcomes: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()  # those that could be made

    def run(self, seed: int) -> None:
        """One input; an exception unless the run is used or refused."""
        rng = random.Random(seed)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(rng.choice(self.templates), self.folder, symlinks=True)
        paths = (path for path in self.folder.rglob("*") if path.name != ".lock")
        self.files = sorted(str(path.relative_to(self.folder)) for path in paths)
        changes = [self._change(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        if rng.random() < 0.5:
            with contextlib.suppress(Exception):  # it is too damaged
                forge(self.folder)
        name = rng.choice(list(ACTIONS))
        try:
            with _time_limit(), contextlib.redirect_stdout(io.StringIO()) as out:
                ACTIONS[name](self.folder)
            result = "used"
        except AllnegError as error:
            result = f"refused with {error.exit_code}"
        assert "\x1b" not in out.getvalue(), f"{changes}, {name}: an escape sequence is printed"
        assert self._canary_hash() == self.before, f"{changes}, {name}: the canary has changed"
        self.outcomes[f"{name} {result}"] += 1

    def _change(self, rng: random.Random) -> str:
        extra = (".lock", ".holder", ".tmp-x", "checkpoints/.tmp-x", "checkpoints/mine")
        name = rng.choice([*self.files, *extra])
        kind = rng.choice(list(CHANGES))
        path = self.folder / name
        if os.path.realpath(path.parent) != str(path.parent):
            return "nothing"  # an earlier change made a link: the file is outside
        with contextlib.suppress(Exception):  # the change does not apply to this file
            CHANGES[kind](path, rng, self)
            self.changes[kind] += 1
        return f"{name}: {kind}"

    def _canary_hash(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self.canary.rglob("*")):
            content = path.read_bytes() if path.is_file() else b""
            digest.update(f"{path} {path.lstat().st_mode} ".encode() + content)
        return digest.hexdigest()


def _read(path: Path) -> bytes:
    return plain.read(path, _LARGEST)


def _write(path: Path, content: bytes) -> None:
    remove(path)
    path.write_bytes(content)


def _bytes(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    _write(path, rng.randbytes(rng.choice((0, 1, 50, 5000))))


def _flip(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    content = bytearray(_read(path))
    for _ in range(rng.randint(1, 4)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    _write(path, bytes(content))


def _cut(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    content = _read(path)
    _write(path, content[: rng.randrange(len(content) + 1)])


def _link(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    targets = list(fuzzer.canary.rglob("*"))
    copy = fuzzer.templates[0] / path.relative_to(fuzzer.folder)
    targets += [fuzzer.canary, copy, Path("/dev/zero"), Path("/dev/null"), path, Path("nowhere")]
    remove(path)
    path.symlink_to(rng.choice(sorted(targets)))


def _hard_link(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    remove(path)
    path.hardlink_to(fuzzer.canary / "notes.txt")


def _pipe(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    remove(path)
    os.mkfifo(path)


def _folder(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    remove(path)
    path.mkdir()


def _missing(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    remove(path)


def _sparse(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    _write(path, b"")
    os.truncate(path, 1 << 40)


def _swap(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    """The same file or folder of another run, or another file of the same run."""
    source = rng.choice(fuzzer.templates) / path.relative_to(fuzzer.folder)
    if rng.random() < 0.3:
        source = rng.choice(fuzzer.templates) / rng.choice(fuzzer.files)
    content = source.read_bytes() if source.is_file() else None
    remove(path)
    if content is None:
        shutil.copytree(source, path)
    else:
        path.write_bytes(content)


def _nested(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    depth = rng.choice((40, 600, 100_000))
    _write(path, b"[" * depth + b"]" * depth + b"\n")


def _value(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    """Another value somewhere in JSON, TOML, or the last line of the metrics."""
    text = _read(path).decode()
    if path.suffix == ".toml":
        lines = text.splitlines()
        index = rng.randrange(len(lines))
        value = json.dumps(rng.choice(_VALUES))
        lines[index] = f"{lines[index].partition('=')[0]}= {value}"
        _write(path, "\n".join(lines).encode())
        return
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    content = json.loads(lines[-1])
    _replace_in(content, rng)
    _write(path, ("\n".join([*lines[:-1], json.dumps(content)]) + "\n").encode())


def _replace_in(content: Any, rng: random.Random) -> None:
    key = rng.choice(list(content) if isinstance(content, dict) else range(len(content)))
    if isinstance(content[key], dict | list) and content[key] and rng.random() < 0.7:
        _replace_in(content[key], rng)
    elif rng.random() < 0.2:
        del content[key]
    else:
        content[key] = rng.choice(_VALUES)


def _tensor(path: Path, rng: random.Random, fuzzer: Fuzzer) -> None:
    """A tensor of another type or shape, or with other numbers, or none."""
    tensors = load(_read(path))
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    dtypes = (
        torch.int64, torch.int32, torch.bool, torch.uint8, torch.complex64, torch.float64,
        torch.bfloat16, torch.float16, torch.float8_e4m3fn,
    )  # fmt: skip
    changes: list[Callable[[], Any]] = [
        lambda: tensor.to(rng.choice(dtypes)),
        lambda: tensor[:-1],
        lambda: tensor[:0],
        lambda: tensor.flatten(),
        lambda: tensor.unsqueeze(0).contiguous(),
        lambda: tensor.sum(),
        lambda: tensor * rng.choice((-1, 10**6)),
        lambda: tensor * float("nan"),
        lambda: tensor.float() * 1e30,
    ]
    if rng.random() < 0.2:
        del tensors[name]
    else:
        tensors[name] = rng.choice(changes)()
    _write(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}))


CHANGES: dict[str, Callable[[Path, random.Random, Fuzzer], None]] = {
    "random bytes": _bytes,
    "some bytes changed": _flip,
    "truncated": _cut,
    "a link": _link,
    "a hard link": _hard_link,
    "a pipe": _pipe,
    "a folder": _folder,
    "missing": _missing,
    "a huge sparse file": _sparse,
    "swapped": _swap,
    "nested brackets": _nested,
    "another value": _value,
    "another tensor": _tensor,
}


def forge(folder: Path) -> None:
    """Make all checksums and ids right again, as an attacker would."""
    about = json.loads(_read(folder / "run.json"))
    about["files"] = {name: _checksum(folder / name) for name in about["files"]}
    _write(folder / "run.json", json.dumps(about).encode())
    for path in plain.entries(folder / "checkpoints"):
        if path.is_dir() and not path.is_symlink() and path.name.startswith("epoch-"):
            names = [entry.name for entry in path.iterdir() if entry.name != "manifest.json"]
            manifest = {name: _checksum(path / name) for name in names}
            _write(
                path / "manifest.json", json.dumps({"run": about_hash(about), **manifest}).encode()
            )


def _checksum(path: Path) -> dict[str, Any]:
    content = _read(path)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _load(folder: Path) -> None:
    run = Run.open(folder)
    for read in (run.tables, run.last, run.metrics):
        read()
    assert isinstance(run.environment, dict)
    if run.has_report:
        print_run(run, as_json=False)


def _resume(folder: Path) -> None:
    resume(folder, settings=["training.epochs=3"])


def _explore(folder: Path) -> None:
    loaded = LoadedRun.load(folder, "run", {}, "cpu")
    assert loaded.card.id == "run"


def _export(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        export(Run.open(folder), Path(out) / "exported")


ACTIONS: dict[str, Callable[[Path], object]] = {
    "load": _load,
    "verify": lambda folder: verify(folder, rank=True),
    "resume": _resume,
    "evaluate": lambda folder: allneg.evaluate(folder, device="cpu"),
    "info": lambda folder: info_command.callback(folder, True),
    "explore": _explore,
    "export": _export,
}


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main(count: int, first: int = 0) -> int:
    """Fuzz with seeds from `first`; the number of failures."""
    failures = 0
    with tempfile.TemporaryDirectory(prefix="allneg-fuzz-") as home:
        fuzzer = Fuzzer(Path(home))
        for seed in range(first, first + count):
            if seed > first and (seed - first) % 10_000 == 0:
                print(f"{seed - first:,} inputs, {failures} failures", flush=True)
            try:
                fuzzer.run(seed)
            except Exception:
                failures += 1
                print(f"input {seed}:\n{traceback.format_exc()}", flush=True)
                if fuzzer._canary_hash() != fuzzer.before:
                    break
        for outcome, number in sorted(fuzzer.outcomes.items()):
            print(f"{outcome}: {number:,}")
    print(f"{count:,} inputs, {failures} failures")
    return failures


if __name__ == "__main__":
    sys.exit(min(1, main(*map(int, sys.argv[1:]))))
