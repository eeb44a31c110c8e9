"""What strangers' bytes may do: be read, or be refused by a `AllnegError`. Nothing else.

Each target takes any bytes. An `AllnegError` is a good end; another exception, or a value that does
not hold what it promises, is a failure.
"""

from __future__ import annotations

import io
import json
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from allneg.errors import AllnegError
from allneg.graph.files import TripleFile
from allneg.graph.lines import Ids, read_lines
from allneg.graph.spilled import read_spilled
from allneg.recipe import Data, Recipe, load_tables, parse_settings
from allneg.runs.checkpoint import Checkpoint, State, load, save
from allneg.runs.files import read_tensors

_SEPARATORS = "\t,"
_COLUMNS = ("hrt", "htr", "trh")


def triples(data: bytes) -> None:
    """The first byte chooses the settings, the rest is the file."""
    if not data:
        return
    choice, content = data[0], data[1:]
    separator = _SEPARATORS[choice & 1]
    settings = Data(columns=_COLUMNS[(choice >> 1) % 3], skip_bad_lines=choice >> 6)
    entities, relations = Ids(), Ids()
    file = TripleFile("fuzz", separator, lambda: io.BytesIO(content), len(content))
    try:
        found, _ = read_lines(file, settings, entities, relations)
    except AllnegError as problem:
        _check_message(problem)
        if choice & 8:
            _is_refused_out_of_core(file, settings, str(problem))
        return
    if choice & 8 and len(found):
        with tempfile.TemporaryDirectory() as folder:
            splits, names, _ = read_spilled({"train": file}, settings, Path(folder))
            assert splits["train"].tolist() == found.tolist()
            assert list(names.entities) == list(entities)
            assert list(names.relations) == list(relations)
    assert found.shape[1:] == (3,)
    assert ((found >= 0) & (found < (len(entities), len(relations), len(entities)))).all()
    assert list(entities.values()) == list(range(len(entities)))
    for name in (*entities, *relations):
        assert name
        assert not {"\0", "\n", "\t" if separator == "\t" else "\0"} & set(name)
        if separator == "\t":
            assert name.encode() in content  # names are kept exactly
    # Ids in order of appearance, so that reading what was read gives the same.
    if separator == "\t" and len(found):
        names, links = list(entities), list(relations)
        lines = "".join(f"{names[h]}\t{links[r]}\t{names[t]}\n" for h, r, t in found.tolist())
        again = TripleFile("fuzz", "\t", lambda: io.BytesIO(lines.encode()), len(lines))
        # A name that is a header's or begins with a mark may be left out the second time.
        if not lines.startswith("\ufeff") and "\r\n" not in lines and not _is_header(lines):
            twice, _ = read_lines(again, Data(), Ids(), Ids())
            assert twice.tolist() == found.tolist()


def _is_refused_out_of_core(file: TripleFile, settings: Data, said: str) -> None:
    """A text is refused alike whether names are numbered in memory or on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            read_spilled({"train": file}, settings, Path(folder))
            refused = "nothing"
        except AllnegError as problem:
            refused = str(problem)
        assert refused == said


def _is_header(lines: str) -> bool:
    first = lines.partition("\n")[0].lower().split("\t")
    return any(each in ("head", "subject", "relation", "predicate") for each in first)


def recipe(data: bytes) -> None:
    """A TOML file; what is accepted is written and read again as it was."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        try:
            made = Recipe.from_tables(load_tables(file.name))
        except AllnegError as problem:
            _check_message(problem)
        else:
            assert Recipe.from_tables(tomllib.loads(made.to_toml())) == made
    text = data.decode(errors="surrogateescape")
    try:
        Recipe.from_tables(parse_settings(text.split("\n")))
    except AllnegError as problem:
        _check_message(problem)


_FILES = (
    "a/manifest.json", "a/state.json", "a/tables.safetensors", "a/optimizer.safetensors", "last",
)  # fmt: skip


def manifest(data: bytes) -> None:
    """The first byte chooses the file of a checkpoint that the rest takes the place of."""
    if not data:
        return
    folder, name = _checkpoint(), _FILES[data[0] % len(_FILES)]
    path, new = folder / name, data[1:]
    old, honest = path.read_bytes(), json.loads((folder / "a/manifest.json").read_text())
    try:
        path.write_bytes(new)
        if name == "last":
            assert _loads(folder) is (new.strip(b"\r\n") == b"a")
        else:
            # Nothing but the very bytes passes: the manifest is checked by what it proves.
            same = new == old or (name == "a/manifest.json" and _means(new) == honest)
            assert _loads(folder) is same
        if name.endswith("safetensors"):
            try:
                read_tensors(path)
            except AllnegError as problem:
                _check_message(problem)
    finally:
        path.write_bytes(old)


def _loads(folder: Path) -> bool:
    try:
        load(folder)
    except AllnegError as problem:
        _check_message(problem)
        return False
    return True


def _means(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


@cache
def _checkpoint() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="allneg-fuzz-"))
    rows = {"entities": torch.zeros(2, 2), "relations": torch.zeros(1, 2)}
    save(folder, "a", Checkpoint(State(), rows, rows))
    return folder


def _check_message(problem: AllnegError) -> None:
    assert 0 < len(str(problem)) < 100_000
    assert 2 <= problem.exit_code <= 6


TARGETS: dict[str, Callable[[bytes], None]] = {
    "triples": triples,
    "recipe": recipe,
    "manifest": manifest,
}
