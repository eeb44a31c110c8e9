from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allneg.errors import RecipeError, ResourceError, RunError
from allneg.evaluation import evaluate
from allneg.graph import Graph
from allneg.graph.graph import Vocabulary
from allneg.recipe import Recipe
from allneg.runs import Run, new_folder
from allneg.runs.files import checksum
from allneg.training import fit

GOLDEN = Path(__file__).parents[1] / "golden"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_copied_run_is_complete(toy_run: Run, tmp_path: Path, tiny_graph: Graph) -> None:
    copied = Run.open(shutil.copytree(toy_run.folder, tmp_path / "elsewhere"))
    assert copied.recipe == toy_run.recipe
    assert copied.graph.vocabulary == tiny_graph.vocabulary
    for split in ("train", "valid", "test"):
        assert np.array_equal(copied.graph.split(split), tiny_graph.split(split))
    again = evaluate(copied.model, copied.tables(), copied.graph, "test")
    assert again.to_json() == replace(copied.report, baselines={}, calibration={}).to_json()


def test_a_finished_run_has_status_metrics_and_environment(toy_run: Run) -> None:
    assert toy_run.finished
    assert toy_run.status["state"] == "finished"
    assert [entry["epoch"] for entry in toy_run.metrics()] == list(
        range(1, toy_run.status["epoch"] + 1)
    )
    assert {"python", "torch", "threads", "command"} <= toy_run.environment.keys()


def test_names_with_unusual_characters_survive(made: Callable[..., Run]) -> None:
    odd = ("a\x85b", "\u2028", "a\x0bb", "tab\there", " spaced ", "a\rb", "é", "e\u0301")
    triples = np.array([[0, 0, 1], [2, 1, 3]])
    graph = Graph("odd", Vocabulary(odd, ("r\x1c", "s")), triples, triples[:0], triples[:0])
    assert Run.open(made(graph=graph).folder).graph.vocabulary == graph.vocabulary


@pytest.mark.parametrize("what", ["a file", "a folder with something in it"])
def test_existing_files_are_not_overwritten(
    tmp_path: Path, tiny_graph: Graph, quick: Callable[..., Recipe], what: str
) -> None:
    out = tmp_path / "run"
    if what == "a file":
        out.write_text("mine")
    else:
        out.mkdir()
        (out / "mine").write_text("mine")
    with pytest.raises(
        RecipeError, match=r"already exists|not empty and not a run|exists and is not a folder"
    ) as caught:
        Run.create(out, quick(), tiny_graph)
    assert caught.value.exit_code == 2
    assert (out if what == "a file" else out / "mine").read_text() == "mine"


@pytest.mark.battery(28)
@pytest.mark.parametrize("name", ["file/run", "x" * 300])
def test_a_folder_that_cannot_be_created_is_an_error(
    tmp_path: Path, tiny_graph: Graph, quick: Callable[..., Recipe], name: str
) -> None:
    (tmp_path / "file").write_text("")  # even root cannot make a folder under a file
    with pytest.raises(ResourceError, match="cannot be written"):
        Run.create(tmp_path / name, quick(), tiny_graph)


@pytest.mark.battery(25)
def test_a_run_that_cannot_be_written_completely_is_removed(
    tmp_path: Path,
    tiny_graph: Graph,
    quick: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = os.fsync
    for moment in range(50):
        calls = 0

        def full(handle: int, moment: int = moment) -> None:
            nonlocal calls
            calls += 1
            if calls > moment:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        monkeypatch.setattr(os, "fsync", full)
        try:
            Run.create(tmp_path / "run", quick(), tiny_graph)
        except ResourceError:
            assert not (tmp_path / "run").exists()
        else:
            break
    assert moment > 5
    assert Run.open(tmp_path / "run").recipe == quick()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"data": "x"}', '{"format_version": "1"}'])
def test_a_damaged_run_json_is_a_run_error(toy_copy: Run, content: str) -> None:
    (toy_copy.folder / "run.json").write_text(content)
    with pytest.raises(RunError) as caught:
        Run.open(toy_copy.folder)
    assert caught.value.exit_code == 4


def test_other_folders_are_not_runs(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RunError, match="not a run"):
            Run.open(folder)


@pytest.mark.battery(27)
def test_a_newer_format_is_refused_with_both_versions(toy_copy: Run) -> None:
    edit(toy_copy.folder / "run.json", '"format_version": 2', '"format_version": 99')
    with pytest.raises(RunError, match=r"format version 99, .* up to 3") as caught:
        Run.open(toy_copy.folder)
    assert caught.value.exit_code == 4


@pytest.mark.battery(27)
@pytest.mark.parametrize(
    "old, new, shapes",
    [
        ("dim = 4", "dim = 5", r"\(12, 8\).*\(12, 10\)"),
        ("reciprocal = true", "reciprocal = false", r"\(6, 8\).*\(3, 8\)"),
        ('name = "complex"', 'name = "distmult"', r"\(12, 8\).*\(12, 4\)"),
    ],
)
def test_weights_of_other_shapes_are_refused_with_both_shapes(
    tmp_path: Path, old: str, new: str, shapes: str
) -> None:
    """In a run of format 1, which does not record its recipe."""
    folder = shutil.copytree(GOLDEN / "v1", tmp_path / "run")
    edit(folder / "recipe.toml", old, new)
    run = Run.open(folder)
    for read in (run.tables, run.last, lambda: fit(run)):
        with pytest.raises(RunError, match=shapes):
            read()


@pytest.mark.battery(27)
def test_another_vocabulary_is_refused_with_both_sizes(toy_copy: Run) -> None:
    with (toy_copy.folder / "entities.txt").open("a") as file:
        file.write("Atlantis\n")
    with pytest.raises(RunError, match=r"entities\.txt: 90 bytes instead of 81"):
        Run.open(toy_copy.folder).tables()


@pytest.mark.battery(27)
@pytest.mark.parametrize("file, one, other", [("entities", "Spain", "Italy"), ("relations", 0, 1)])
def test_names_in_another_order_are_noticed(
    toy_copy: Run, file: str, one: str | int, other: str | int
) -> None:
    path = toy_copy.folder / f"{file}.txt"
    names = path.read_text().splitlines()
    i, j = (names.index(name) if isinstance(name, str) else name for name in (one, other))
    names[i], names[j] = names[j], names[i]
    path.write_text("".join(name + "\n" for name in names))
    with pytest.raises(
        RunError, match=rf"{file}\.txt: its SHA-256 is \w{{12}}… instead of \w{{12}}…;"
    ):
        assert Run.open(toy_copy.folder).graph


@pytest.mark.battery(26)
@pytest.mark.parametrize(
    "file, content",
    [
        ("recipe.toml", b"[model]\nname = 'none'"),
        ("recipe.toml", None),
        ("entities.txt", b"\xff\n"),
        ("entities.txt", b"twice\ntwice\n"),
        ("entities.txt", None),
        ("triples.safetensors", b"{}"),
        ("triples.safetensors", None),
        ("report.json", b"{}"),
        ("report.json", b"[]"),
        ("metrics.jsonl", b"no\n"),
        ("metrics.jsonl", b"\xff\n"),
        ("metrics.jsonl", b"[1]\n"),
        ("status.json", b"no"),
        ("status.json", b"[1]"),
        ("status.json", b"{}"),
        ("environment.json", b"[{}]"),
    ],
)
def test_an_error_names_the_damaged_file(toy_copy: Run, file: str, content: bytes | None) -> None:
    path = toy_copy.folder / file
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(RunError, match=file.replace(".", r"\.")) as caught:
        read_all(toy_copy.folder)
    assert caught.value.exit_code == 4


def read_all(folder: Path) -> tuple[object, ...]:
    run = Run.open(folder)
    return run.graph, run.report, run.metrics(), run.live_status, run.environment


@pytest.mark.battery(26)
def test_an_id_outside_the_vocabulary_is_noticed(toy_copy: Run) -> None:
    path = toy_copy.folder / "entities.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    about = json.loads((toy_copy.folder / "run.json").read_text())
    about["files"]["entities.txt"] = checksum(path)
    (toy_copy.folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match="triples"):
        assert Run.open(toy_copy.folder).graph


@pytest.mark.battery(21)
def test_an_incomplete_line_of_metrics_does_not_prevent_a_resume(
    trained: Callable[..., Run],
) -> None:
    run = trained("training.epochs=2")
    complete = run.metrics()
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 3, "lo')
    assert run.metrics() == complete
    fit(run)
    assert [json.loads(line) for line in (run.folder / "metrics.jsonl").open()] == complete


def test_rewinding_drops_later_epochs(toy_copy: Run) -> None:
    toy_copy.rewind(3)
    assert [entry["epoch"] for entry in toy_copy.metrics()] == [1, 2, 3]


def test_no_file_of_a_run_is_a_pickle_or_an_archive(toy_run: Run) -> None:
    files = [path for path in toy_run.folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        start = path.read_bytes()[:2]
        assert start[:1] != b"\x80", f"{path.name} is a pickle"
        assert start not in (b"PK", b"\x1f\x8b"), f"{path.name} is an archive"
        assert path.suffix in (".json", ".jsonl", ".toml", ".txt", ".safetensors", "")


@pytest.mark.battery(35)
def test_a_second_process_is_refused_with_the_first_ones_id(toy_copy: Run) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with toy_copy.locked():
            os.write(writer, b"locked")
            signal.pause()
    try:
        assert os.read(reader, 6) == b"locked"
        with pytest.raises(RecipeError, match=rf"process {child} on ") as caught:
            toy_copy.locked().__enter__()
        assert caught.value.exit_code == 2
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    # A killed process leaves its file behind, but not its lock.
    with toy_copy.locked():
        assert f"process {os.getpid()}" in (toy_copy.folder / ".holder").read_text()
    assert not (toy_copy.folder / ".holder").exists()


@pytest.mark.battery(22)
def test_only_leftovers_of_a_killed_process_are_deleted(toy_copy: Run) -> None:
    before = {path for path in toy_copy.folder.rglob("*") if path.name != ".lock"}
    half = toy_copy.folder / "checkpoints" / ".tmp-epoch-000031-step-00000000"
    half.mkdir()
    for left in (
        half / ".tmp-state.json",
        half / "tables.safetensors",
        toy_copy.folder / "checkpoints" / ".tmp-last",
        toy_copy.folder / ".tmp-report.json",
    ):
        left.write_text("half")
    with toy_copy.locked():
        pass
    assert {path for path in toy_copy.folder.rglob("*") if path.name != ".lock"} == before


def test_a_run_without_out_gets_a_free_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = Recipe().with_settings(["data.name=../some/kb.tar.xz"])
    first = new_folder(recipe)
    assert first.parent == Path("runs")
    assert first.name.endswith("_kb_complex")
    first.mkdir(parents=True)
    assert new_folder(recipe).name == f"{first.name}_2"


def test_of_two_processes_that_create_a_run_the_second_fails(
    tmp_path: Path, quick: Callable[..., Recipe], tiny_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Run.create(tmp_path / "run", quick(), tiny_graph)
    monkeypatch.setattr(
        "allneg.runs.folder.check_new", lambda folder: None
    )  # it was free a moment ago
    with pytest.raises(RecipeError, match="run: already exists"):
        Run.create(tmp_path / "run", quick(), tiny_graph)
    assert Run.open(first.folder).graph.vocabulary == tiny_graph.vocabulary


def test_the_environment_records_the_threads_of_the_recipe(made: Callable[..., Run]) -> None:
    assert made("hardware.threads=7").environment["threads"] == 7
