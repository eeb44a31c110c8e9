"""Fuzz targets. Each takes any bytes, which must be read correctly or raise an `AllnegError`."""

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
from allneg.graph.advice import N_TRIPLES
from allneg.graph.files import TripleFile
from allneg.graph.number import read_files
from allneg.recipe import Data, Recipe, load_tables, parse_settings
from allneg.runs.checkpoint import Checkpoint, State, load, save
from allneg.runs.files import read_tensors

_SUFFIXES = (".tsv", ".csv", ".jsonl", ".nt")
_COLUMNS = ("hrt", "htr", "trh")


def triples(data: bytes) -> None:
    """The first byte chooses the settings, the rest is the file."""
    if not data:
        return
    choice, content = data[0], data[1:]
    suffix = _SUFFIXES[(choice & 1) + (choice >> 3 & 2)]
    settings = Data(columns=_COLUMNS[(choice >> 1) % 3], skip_bad_lines=choice >> 6)
    files = {"train": [_file(content, suffix)]}
    try:
        read = read_files(files, settings)
    except AllnegError as error:
        _check_message(error)
        message = str(error)
        assert not choice & 8 or _error_on_disk(files, settings) == message
        return
    found, names = read.splits["train"].tolist(), read.names
    if choice & 8:
        with tempfile.TemporaryDirectory() as folder:
            on_disk = read_files(files, settings, Path(folder))
            assert on_disk.splits["train"].tolist() == found
            assert tuple(on_disk.names.entities) == names.entities
            assert on_disk.names.relations == names.relations
    entities, relations = names.entities, names.relations
    lines = "".join(f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in found)
    assert {h for h, _, _ in found} | {t for _, _, t in found} == set(range(len(entities)))
    assert {r for _, r, _ in found} == set(range(len(relations)))
    for names_of_kind in (entities, relations):
        assert len(set(names_of_kind)) == len(names_of_kind)
    for name in (*entities, *relations):
        assert name
        assert not {"\0", "\n", "\t"} & set(name)
        if suffix == ".tsv":
            assert name.encode() in content  # names are kept exactly
    # Ids follow the order of appearance, so reading the triples again gives the same ids.
    # A byte order mark may be removed the second time, and N-Triples are refused.
    if suffix == ".tsv" and not (
        lines.startswith("\ufeff")
        or "\r\n" in lines
        or N_TRIPLES.fullmatch(lines.partition("\n")[0])
    ):
        again = read_files({"train": [_file(lines.encode(), ".tsv")]}, Data(header=False))
        assert again.splits["train"].tolist() == found


def _file(content: bytes, suffix: str) -> TripleFile:
    return TripleFile("fuzz", suffix, lambda: io.BytesIO(content), len(content))


def _error_on_disk(files: dict[str, list[TripleFile]], settings: Data) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            read_files(files, settings, Path(folder))
        except AllnegError as error:
            return str(error)
    return None


def recipe(data: bytes) -> None:
    """A TOML file. An accepted recipe is unchanged after writing and reading it."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        try:
            made = Recipe.from_tables(load_tables(file.name))
        except AllnegError as error:
            _check_message(error)
        else:
            assert Recipe.from_tables(tomllib.loads(made.to_toml())) == made
    text = data.decode(errors="surrogateescape")
    try:
        Recipe.from_tables(parse_settings(text.split("\n")))
    except AllnegError as error:
        _check_message(error)


_NAME = "epoch-000001-step-00000000"
_FILES = (
    f"{_NAME}/manifest.json", f"{_NAME}/state.json", f"{_NAME}/tables.safetensors",
    f"{_NAME}/optimizer.safetensors", "last",
)  # fmt: skip


def manifest(data: bytes) -> None:
    """The first byte chooses a file of a checkpoint; the rest replaces its content."""
    if not data:
        return
    folder, name = _checkpoint(), _FILES[data[0] % len(_FILES)]
    path, new = folder / name, data[1:]
    old, honest = path.read_bytes(), json.loads((folder / _FILES[0]).read_text())
    try:
        path.write_bytes(new)
        if name == "last":
            assert _loads(folder) is (new.strip(b"\r\n") == _NAME.encode())
        else:
            # Only identical bytes pass. A manifest passes if it means the same.
            same = new == old or (name == _FILES[0] and _means(new) == honest)
            assert _loads(folder) is same
        if name.endswith("safetensors"):
            try:
                read_tensors(path)
            except AllnegError as error:
                _check_message(error)
    finally:
        path.write_bytes(old)


def _loads(folder: Path) -> bool:
    try:
        load(folder)
    except AllnegError as error:
        _check_message(error)
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
    save(folder, _NAME, Checkpoint(State(), rows, rows))
    return folder


def _check_message(error: AllnegError) -> None:
    assert 0 < len(str(error)) < 100_000
    assert 2 <= error.exit_code <= 6


TARGETS: dict[str, Callable[[bytes], None]] = {
    "triples": triples,
    "recipe": recipe,
    "manifest": manifest,
}
