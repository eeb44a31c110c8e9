"""Full disks, damaged checkpoints, and folders that cannot be written."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from allneg.errors import RecipeError, ResourceError, RunError
from allneg.graph import Graph, read_graph
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.files import append_text, write_text
from allneg.training import Callbacks, fit

FullDisk = Callable[[int], Any]  # replaces the disk by one with so many bytes left


class Listener(Callbacks):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_message(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def recipe(quick: Callable[..., Recipe]) -> Recipe:
    return quick("training.save_seconds=0", "training.epochs=3")


@pytest.fixture
def run(tmp_path: Path, tiny_graph: Graph, recipe: Recipe) -> Run:
    """A new run."""
    return Run.create(tmp_path / "run", recipe, tiny_graph)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, tiny_graph: Graph, recipe: Recipe) -> Run:
    """A run of the same recipe that nothing interrupted."""
    run = Run.create(tmp_path_factory.mktemp("straight") / "run", recipe, tiny_graph)
    fit(run)
    return run


@pytest.fixture
def trained(straight: Run, tmp_path: Path) -> Run:
    """A copy of the uninterrupted run."""
    return Run.open(shutil.copytree(straight.folder, tmp_path / "trained"))


def losses(run: Run) -> list[float]:
    return [entry["loss"] for entry in run.metrics()]


@pytest.mark.battery(25)
def test_a_disk_full_for_one_save_costs_nothing(
    run: Run, straight: Run, full_disk: FullDisk
) -> None:
    disk = full_disk(20_000)

    class Emptier(Listener):
        def on_message(self, line: str) -> None:
            super().on_message(line)
            if "not saved" in line:
                disk.room = 1 << 30  # the user deletes something

    callbacks = Emptier()
    fit(run, callbacks)
    assert disk.failures > 0
    assert any("the disk is full" in line for line in callbacks.lines)
    assert any("next try in 0 seconds" in line for line in callbacks.lines)
    assert run.tables().entities.equal(straight.tables().entities)
    assert losses(run) == losses(straight)
    assert run.report.to_json() == straight.report.to_json()


@pytest.mark.battery(25)
@pytest.mark.parametrize("room", [0, 300, 3_000, 9_000, 20_000, 35_000])
def test_a_disk_that_stays_full_ends_training_with_what_was_saved(
    run: Run, straight: Run, full_disk: FullDisk, room: int
) -> None:
    full_disk(room)
    with pytest.raises(ResourceError, match=r"the disk is full \([\d,]+ bytes are needed") as full:
        fit(run)
    assert full.value.exit_code == 6
    full_disk(1 << 40)
    fit(Run.open(run.folder))
    assert run.tables().entities.equal(straight.tables().entities)
    assert losses(run) == losses(straight)


@pytest.mark.parametrize("command", [("audit",), ("tune", "--minutes", "1", "--workers", "1")])
def test_the_same_command_continues_if_the_disk_of_a_fold_or_a_trial_is_full(
    allneg: Callable[..., Any], tiny_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...],
) -> None:  # fmt: skip
    def full(*_: object) -> None:
        raise ResourceError("the disk is full; free some space")

    monkeypatch.setattr(Run, "save", full)
    quick = ("--set", "training.epochs=1", "--device", "cpu", "--out", tmp_path / "out.tsv")
    done = allneg(*command, tiny_folder, *quick)
    assert done.code == 6
    assert "free some space\nThen the same command continues the run.\n" in done.err


@pytest.mark.battery(25)
def test_too_little_free_space_is_reported_before_anything_is_written(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allneg.runs.disk.free_bytes", lambda folder: 1_234)
    with pytest.raises(ResourceError, match=r"[\d,]+ bytes are needed, 1,234 are free"):
        fit(run)
    assert list((run.folder / "checkpoints").iterdir()) == []
    assert run.status["state"] == "failed"
    assert "disk is full" in run.status["reason"]


@pytest.mark.battery(25)
def test_a_line_that_does_not_fit_is_not_written_in_part(tmp_path: Path) -> None:
    """The kernel cuts the write: files may have at most 10 bytes."""
    path = tmp_path / "metrics"
    append_text(path, "one\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(ResourceError, match="metrics: cannot be written"):
            append_text(path, "two hundred\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "one\n"
    append_text(path, "two\n")
    assert path.read_text() == "one\ntwo\n"


@pytest.mark.battery(26)
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing", "no folder", "pointer", "lost"])
def test_after_a_damaged_last_checkpoint_training_continues_from_the_one_before(
    trained: Run, straight: Run, damage: str
) -> None:
    checkpoints = trained.folder / "checkpoints"
    before, last = sorted(path.name for path in checkpoints.iterdir() if path.is_dir())
    weights = checkpoints / last / "tables.safetensors"
    content = weights.read_bytes()
    (trained.folder / "report.json").unlink()
    if damage == "flipped":
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "cut":
        weights.write_bytes(content[:-1])
    elif damage == "missing":
        weights.unlink()
    elif damage == "no folder":
        shutil.rmtree(checkpoints / last)
    elif damage == "pointer":
        (checkpoints / "last").write_bytes(b"\xff\x00")
    else:
        (checkpoints / "last").unlink()
    for read in (trained.tables, trained.last):
        with pytest.raises(RunError) as caught:
            read()
        assert caught.value.exit_code == 4
    callbacks = Listener()
    fit(Run.open(trained.folder), callbacks)
    used = last if damage in ("pointer", "lost") else before
    assert any(f"{used} is complete; training continues from it" in it for it in callbacks.lines)
    assert losses(trained) == losses(straight)
    assert trained.report.to_json() == straight.report.to_json()
    assert trained.last() is not None


@pytest.mark.battery(26)
def test_if_every_checkpoint_is_damaged_training_does_not_start_again(trained: Run) -> None:
    for weights in trained.folder.glob("checkpoints/*/tables.safetensors"):
        weights.write_bytes(b"")
    with pytest.raises(RunError, match=r"tables\.safetensors: 0 bytes instead of") as caught:
        fit(trained)
    assert caught.value.exit_code == 4


@pytest.mark.battery(26)
@pytest.mark.parametrize("name", ["../../elsewhere", ".tmp-x", "a/b", ""])
def test_last_can_only_name_a_checkpoint(trained: Run, name: str) -> None:
    (trained.folder / "checkpoints" / "last").write_text(name + "\n")
    with pytest.raises(RunError, match="last: not the name of a checkpoint"):
        trained.tables()


@pytest.mark.battery(28)
@pytest.mark.parametrize("where", ["a folder", "nothing", "a device"])
def test_a_link_cannot_become_a_run(
    tmp_path: Path, tiny_graph: Graph, quick: Callable[..., Recipe], where: str
) -> None:
    target = {"a folder": tmp_path, "nothing": tmp_path / "none", "a device": Path(os.devnull)}
    link = tmp_path / "link"
    link.symlink_to(target[where])
    with pytest.raises(RecipeError, match="link: is a link") as caught:
        Run.create(link, quick(), tiny_graph)
    assert caught.value.exit_code == 2
    assert link.is_symlink()
    with pytest.raises(RecipeError, match="exists and is not a folder"):
        Run.create(Path(os.devnull), quick(), tiny_graph)


@pytest.mark.battery(28)
@pytest.mark.parametrize("what", ["a link", "a pipe", "a folder"])
def test_only_plain_files_are_replaced(tmp_path: Path, what: str) -> None:
    path, other = tmp_path / "report.json", tmp_path / "other"
    other.write_text("mine")
    if what == "a link":
        path.symlink_to(other)
    elif what == "a pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    before = path.lstat()
    for write in (write_text, append_text):
        with pytest.raises(
            ResourceError, match=rf"report\.json: {what}, not a plain file"
        ) as caught:
            write(path, "new")
        assert caught.value.exit_code == 6
    assert path.lstat().st_ino == before.st_ino
    assert other.read_text() == "mine"


@pytest.mark.battery(28)
def test_a_link_left_under_a_temporary_name_is_not_followed(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (run.folder / f".tmp-{os.getpid()}-status.json").symlink_to(other)
    fit(run)
    assert other.read_text() == "mine"
    assert run.status["state"] == "finished"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are private."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.battery(28)
def test_a_read_only_run_is_refused_before_training(
    run: Run, open_folder: Path, as_nobody: Callable[[Callable[[], None]], int]
) -> None:
    protected = Run.open(shutil.copytree(run.folder, open_folder / "run"))
    for path in (protected.folder, *protected.folder.rglob("*")):
        os.chmod(path, 0o555)

    def lock() -> None:
        with protected.locked():
            pass

    def create() -> None:
        Run.create(protected.folder / "inside", run.recipe, protected.graph)

    assert protected.graph.n_entities
    assert as_nobody(lock) == 6
    assert as_nobody(create) == 6
    assert not (protected.folder / "inside").exists()


@pytest.mark.battery(28)
def test_unreadable_data_is_a_data_error(
    tiny_folder: Path, open_folder: Path, as_nobody: Callable[[Callable[[], None]], int]
) -> None:
    folder = shutil.copytree(tiny_folder, open_folder / "data")
    os.chmod(folder, 0o000)

    def read() -> None:
        read_graph(str(folder))

    assert as_nobody(read) == 3
    os.chmod(folder, 0o755)
