"""A disk that is full, a last checkpoint that is damaged, a place that is not ours."""

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
from allneg.runs.disk import Disk
from allneg.runs.files import append_text, write_text
from allneg.training import Callbacks, fit

Made = Callable[..., Run]
Room = Callable[[int], Any]  # bytes to a disk that has room for them


class Listener(Callbacks):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def said(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def made(tmp_path: Path, tiny_graph: Graph, quick: Callable[..., Recipe]) -> Made:
    def create(name: str, *settings: str) -> Run:
        recipe = quick("training.save_seconds=0", "training.epochs=3", *settings)
        return Run.create(tmp_path / name, recipe, tiny_graph)

    return create


def losses(run: Run) -> list[float]:
    return [entry["loss"] for entry in run.metrics()]


@pytest.mark.battery(25)
def test_a_disk_full_for_one_save_costs_nothing(made: Made, full_disk: Room) -> None:
    straight, run = made("straight"), made("run")
    fit(straight)
    disk = full_disk(20_000)

    class Emptier(Listener):
        def said(self, line: str) -> None:
            super().said(line)
            if "not saved" in line:
                disk.room = 1 << 30  # someone tidies up

    callbacks = Emptier()
    fit(run, callbacks)
    assert disk.failures > 0
    assert any("the disk is full" in line for line in callbacks.lines)
    assert any("tries to save again in 0 seconds" in line for line in callbacks.lines)
    assert run.tables().entities.equal(straight.tables().entities)
    assert losses(run) == losses(straight)
    assert run.report.to_json() == straight.report.to_json()


@pytest.mark.battery(25)
@pytest.mark.parametrize("room", [0, 300, 3_000, 9_000, 20_000, 35_000])
def test_a_disk_that_stays_full_ends_training_with_what_was_saved(
    made: Made, full_disk: Room, put_in: Callable[[Disk], None], room: int
) -> None:
    straight, run = made("straight"), made("run")
    fit(straight)
    full_disk(room)
    with pytest.raises(ResourceError, match=r"the disk is full \([\d,]+ bytes are needed") as full:
        fit(run)
    assert full.value.exit_code == 6
    put_in(Disk())
    fit(Run.open(run.folder))
    assert run.tables().entities.equal(straight.tables().entities)
    assert losses(run) == losses(straight)


@pytest.mark.battery(25)
def test_too_little_room_is_said_before_anything_is_written(
    made: Made, put_in: Callable[[Disk], None]
) -> None:
    class Small(Disk):
        def free_bytes(self, folder: Path) -> int:
            return 1_234

    run = made("run")
    put_in(Small())
    with pytest.raises(ResourceError, match=r"[\d,]+ bytes are needed, 1,234 are free"):
        fit(run)
    assert list((run.folder / "checkpoints").iterdir()) == []
    assert run.status["state"] == "failed"
    assert "disk is full" in run.status["reason"]


@pytest.mark.battery(25)
def test_a_line_that_does_not_fit_is_not_there_in_part(tmp_path: Path) -> None:
    """The kernel itself cuts the write: a file may have 10 bytes here."""
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
def test_a_damaged_last_checkpoint_is_told_of_and_the_one_before_it_taken(
    made: Made, damage: str
) -> None:
    straight = made("straight")
    fit(straight)
    checkpoints = straight.folder / "checkpoints"
    before, last = sorted(each.name for each in checkpoints.iterdir() if each.is_dir())
    weights = checkpoints / last / "tables.safetensors"
    wanted, expected, report = weights.read_bytes(), losses(straight), straight.report.to_json()
    (straight.folder / "report.json").unlink()
    if damage == "flipped":
        weights.write_bytes(wanted[:-1] + bytes([wanted[-1] ^ 1]))
    elif damage == "cut":
        weights.write_bytes(wanted[:-1])
    elif damage == "missing":
        weights.unlink()
    elif damage == "no folder":
        shutil.rmtree(checkpoints / last)
    elif damage == "pointer":
        (checkpoints / "last").write_bytes(b"\xff\x00")
    else:
        (checkpoints / "last").unlink()
    for read in (straight.tables, straight.last):
        with pytest.raises(RunError) as caught:
            read()
        assert caught.value.exit_code == 4
    callbacks = Listener()
    fit(Run.open(straight.folder), callbacks)
    whole = last if damage in ("pointer", "lost") else before
    assert any(
        f"{whole} is whole, so training goes on from there" in line for line in callbacks.lines
    )
    assert losses(straight) == expected
    assert straight.report.to_json() == report
    assert straight.last() is not None


@pytest.mark.battery(26)
def test_with_every_checkpoint_damaged_training_does_not_start_again(made: Made) -> None:
    run = made("run")
    fit(run)
    for weights in run.folder.glob("checkpoints/*/tables.safetensors"):
        weights.write_bytes(b"")
    with pytest.raises(RunError, match=r"tables\.safetensors: 0 bytes where") as caught:
        fit(run)
    assert caught.value.exit_code == 4


@pytest.mark.battery(26)
@pytest.mark.parametrize("name", ["../../elsewhere", ".tmp-x", "a/b", ""])
def test_a_pointer_leads_nowhere_but_to_a_checkpoint(made: Made, name: str) -> None:
    run = made("run")
    fit(run)
    (run.folder / "checkpoints" / "last").write_text(name + "\n")
    with pytest.raises(RunError, match="last: names no checkpoint"):
        run.tables()


@pytest.mark.battery(28)
@pytest.mark.parametrize("where", ["a folder", "nothing", "a device"])
def test_a_link_is_not_made_a_run(
    tmp_path: Path, tiny_graph: Graph, quick: Callable[..., Recipe], where: str
) -> None:
    target = {"a folder": tmp_path, "nothing": tmp_path / "none", "a device": Path(os.devnull)}
    link = tmp_path / "link"
    link.symlink_to(target[where])
    with pytest.raises(RecipeError, match="link: is a link") as caught:
        Run.create(link, quick(), tiny_graph)
    assert caught.value.exit_code == 2
    assert link.is_symlink()
    with pytest.raises(RecipeError, match="is there, and no folder"):
        Run.create(Path(os.devnull), quick(), tiny_graph)


@pytest.mark.battery(28)
@pytest.mark.parametrize("what", ["a link", "a pipe", "a folder"])
def test_only_a_plain_file_is_ever_replaced(tmp_path: Path, what: str) -> None:
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
        with pytest.raises(ResourceError, match=r"report\.json: not a plain file") as caught:
            write(path, "new")
        assert caught.value.exit_code == 6
    assert path.lstat().st_ino == before.st_ino
    assert other.read_text() == "mine"


@pytest.mark.battery(28)
def test_a_link_left_under_a_temporary_name_is_not_followed(made: Made, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    run = made("run")
    (run.folder / f".tmp-{os.getpid()}-status.json").symlink_to(other)
    fit(run)
    assert other.read_text() == "mine"
    assert run.status["state"] == "finished"


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that every user may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.battery(28)
def test_a_run_that_may_not_be_written_is_refused_before_training(
    made: Made, open_place: Path, as_nobody: Callable[[Callable[[], None]], int]
) -> None:
    run = Run.open(shutil.copytree(made("run").folder, open_place / "run"))
    for path in (run.folder, *run.folder.rglob("*")):
        os.chmod(path, 0o555)

    def hold() -> None:
        with run.held():
            pass

    def create() -> None:
        Run.create(run.folder / "inside", run.recipe, run.graph)

    assert run.graph.n_entities
    assert as_nobody(hold) == 6
    assert as_nobody(create) == 6
    assert not (run.folder / "inside").exists()


@pytest.mark.battery(28)
def test_data_that_may_not_be_read_are_bad_data(
    tiny_folder: Path, open_place: Path, as_nobody: Callable[[Callable[[], None]], int]
) -> None:
    folder = shutil.copytree(tiny_folder, open_place / "data")
    os.chmod(folder, 0o000)

    def read() -> None:
        read_graph(str(folder))

    assert as_nobody(read) == 3
    os.chmod(folder, 0o755)
