from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch

from allneg.errors import ResourceError, RunError
from allneg.runs.checkpoint import Checkpoint, State, load, load_best, save

ONE, TWO, THREE = (f"epoch-{epoch:06d}-step-00000000" for epoch in (1, 2, 3))


def made(epoch: int, best: bool = False) -> Checkpoint:
    rows = {"entities": torch.full((3, 2), float(epoch)), "relations": torch.zeros(1, 2)}
    optimizer = {"entities.sum": torch.ones(3, 2)}
    kept = {name: tensor + 100 for name, tensor in rows.items()} if best else {}
    return Checkpoint(State(epoch=epoch, loss=0.1 + 0.2), rows, optimizer, kept)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Checkpoints after epochs 1 and 2."""
    folder = tmp_path / "checkpoints"
    save(folder, ONE, made(1))
    save(folder, TWO, made(2))
    return folder


def epoch_of(folder: Path) -> int:
    saved = load(folder)
    assert saved is not None
    assert saved.tables["entities"].eq(saved.state.epoch).all()
    return saved.state.epoch


def test_a_checkpoint_survives(tmp_path: Path) -> None:
    save(tmp_path, ONE, made(1, best=True))
    saved = load(tmp_path)
    assert saved is not None
    assert saved.state == made(1).state
    for found, true in [(saved.tables, made(1).tables), (saved.best, made(1, best=True).best)]:
        assert found.keys() == true.keys()
        assert all(tensor.equal(true[name]) for name, tensor in found.items())
    assert saved.optimizer["entities.sum"].equal(torch.ones(3, 2))


def test_there_is_no_checkpoint_before_the_first(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    with pytest.raises(RunError, match="nothing is trained yet"):
        load_best(tmp_path)


def test_without_last_several_checkpoints_are_an_error(tmp_path: Path) -> None:
    save(tmp_path, ONE, made(1))
    save(tmp_path, TWO, made(2))
    (tmp_path / "last").unlink()
    for read in (load, load_best):
        with pytest.raises(RunError, match="last: missing, so the last checkpoint is unknown"):
            read(tmp_path)


def test_the_best_tables_are_the_last_ones_if_no_others_are_saved(tmp_path: Path) -> None:
    save(tmp_path, ONE, made(1))
    assert load_best(tmp_path)["entities"].eq(1).all()
    save(tmp_path, TWO, made(2, best=True))
    assert load_best(tmp_path)["entities"].eq(102).all()


def test_only_the_last_two_are_kept(folder: Path) -> None:
    save(folder, THREE, made(3))
    assert sorted(path.name for path in folder.iterdir()) == [TWO, THREE, "last"]
    assert epoch_of(folder) == 3


def test_the_same_step_can_be_saved_repeatedly(folder: Path) -> None:
    for _ in range(3):
        save(folder, TWO, made(2))
        assert epoch_of(folder) == 2


@pytest.mark.battery(25)
@pytest.mark.parametrize("name", [TWO, THREE])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_save_that_fails_anywhere_keeps_the_last_one_complete(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, name: str
) -> None:
    real, n_failures = getattr(os, call), 0

    def saved_with(calls: int) -> bool:
        """Save on a disk that is full after `calls` calls; did it work?"""
        left = calls

        def full(*arguments: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(os, call, full)
            try:
                save(folder, name, made(3))
            except ResourceError:
                return False
            return True

    while not saved_with(n_failures):
        n_failures += 1
        assert epoch_of(folder) in (2, 3)
        assert n_failures < 50
    assert n_failures > 0
    assert epoch_of(folder) == 3


@pytest.mark.battery(22)
@pytest.mark.parametrize("name", [TWO, THREE])
def test_a_process_killed_while_saving_leaves_a_complete_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Before every step that changes the folder, its last checkpoint is complete."""
    seen = 0

    def watched(call: str) -> None:
        owner = shutil if call == "rmtree" else os
        real = getattr(owner, call)

        def look(*arguments: object, **more: object) -> object:
            nonlocal seen
            seen += 1
            assert epoch_of(folder) in (2, 3)
            return real(*arguments, **more)

        monkeypatch.setattr(owner, call, look)

    for call in ("replace", "fsync", "rmtree"):
        watched(call)
    save(folder, name, made(3))
    assert seen > 5
    assert epoch_of(folder) == 3


@pytest.mark.battery(26)
@pytest.mark.parametrize("file", ["tables.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "longer"])
def test_damage_is_noticed_and_the_file_named(folder: Path, file: str, damage: str) -> None:
    path = folder / TWO / file
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "longer":
        path.write_bytes(content + b"\x00")
    else:
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    for read in (load, load_best):
        with pytest.raises(RunError, match=file.replace(".", r"\.")) as caught:
            read(folder)
        assert caught.value.exit_code == 4


@pytest.mark.battery(26)
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"tables.safetensors": 3}'])
def test_an_edited_manifest_is_noticed(folder: Path, text: str) -> None:
    (folder / TWO / "manifest.json").write_text(text)
    with pytest.raises(RunError, match=r"manifest\.json"):
        load(folder)


@pytest.mark.battery(26)
def test_a_manifest_that_leaves_a_file_out_is_noticed(folder: Path) -> None:
    manifest = folder / TWO / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace("tables.safetensors", "others.safetensors"))
    with pytest.raises(RunError, match=r"manifest\.json: does not list"):
        load(folder)


def test_files_that_are_not_in_the_manifest_are_not_read(folder: Path) -> None:
    (folder / TWO / "tables-1-of-2.safetensors").write_bytes(b"of another save")
    assert epoch_of(folder) == 2


@pytest.mark.battery(26)
def test_a_last_that_names_nothing_is_noticed(folder: Path) -> None:
    (folder / "last").write_text("epoch-000007-step-00000000\n")
    with pytest.raises(RunError, match=r"epoch-000007-step-00000000: cannot be read"):
        load(folder)
