"""Runs of earlier versions load, and `allneg verify` finds damage."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.errors import ResourceError, RunError
from allneg.evaluation import evaluate
from allneg.exports.export import export
from allneg.graph import Graph
from allneg.kernels.compiler import find_compiler
from allneg.runs import Run
from allneg.runs.about import FORMAT_VERSION
from allneg.runs.verify import verify
from allneg.training import fit

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = sorted(GOLDEN.iterdir())


def wrong(folder: Path, rank: bool = False) -> dict[str, str]:
    return {check.what: check.wrong for check in verify(folder, rank) if check.wrong is not None}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of the newest golden run."""
    return shutil.copytree(VERSIONS[-1], tmp_path / "run")


@pytest.mark.battery(27)
def test_every_released_format_has_a_golden_run() -> None:
    assert [path.name for path in VERSIONS] == [f"v{i}" for i in range(1, FORMAT_VERSION + 1)]


@pytest.mark.battery(27)
@pytest.mark.parametrize("golden", VERSIONS, ids=lambda path: path.name)
def test_a_golden_run_loads_and_gives_the_same_report(golden: Path, tiny_graph: Graph) -> None:
    run = Run.open(golden)
    assert run.graph.vocabulary == tiny_graph.vocabulary
    assert run.graph.train.tolist() == tiny_graph.train.tolist()
    assert run.recipe.evaluation.filter == "seen"  # which had no name then
    again = evaluate(run.model, run.tables(), run.graph, "test").to_json()
    stored = run.report.to_json()
    again["protocol"] = {name: again["protocol"][name] for name in stored["protocol"]}
    assert {name: again[name] for name in stored} == stored
    assert wrong(golden, rank=True) == {}


@pytest.mark.battery(27)
@pytest.mark.parametrize("golden", VERSIONS, ids=lambda path: path.name)
def test_training_of_a_golden_run_can_continue(golden: Path, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(golden, tmp_path / "run"))
    before = run.report.to_json()
    (run.folder / "report.json").unlink()
    recipe = run.folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 12", "epochs = 14"))
    fit(Run.open(run.folder))
    assert [entry["epoch"] for entry in run.metrics()] == list(range(1, 15))
    assert before["count"] == run.report.count
    assert wrong(run.folder, rank=True) == {}


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


LAST = "checkpoints/epoch-000012-step-00000000"


@pytest.mark.battery(26)
@pytest.mark.parametrize(
    "file, check",
    [
        ("entities.txt", "names and triples"),
        ("relations.txt", "names and triples"),
        ("triples.safetensors", "names and triples"),
        (f"{LAST}/tables.safetensors", "last checkpoint"),
        (f"{LAST}/optimizer.safetensors", "checkpoint epoch-000012-step-00000000"),
        (f"{LAST}/best.safetensors", "checkpoint epoch-000012-step-00000000"),
        (f"{LAST}/state.json", "last checkpoint"),
        (f"{LAST}/manifest.json", "last checkpoint"),
        (
            "checkpoints/epoch-000011-step-00000004/state.json",
            "checkpoint epoch-000011-step-00000004",
        ),
    ],
)
def test_one_flipped_bit_is_found_in_every_file_with_weights_or_names(
    run: Path, file: str, check: str
) -> None:
    _flip(run / file)
    found = wrong(run)
    assert check in found
    # A changed manifest does not fit one of the checkpoint's files.
    assert Path(LAST if "manifest" in file else file).name in found[check]


@pytest.mark.battery(26)
@pytest.mark.parametrize("name", ["environment", "status", "report"])
def test_a_cut_file_is_found(run: Path, name: str) -> None:
    path = run / f"{name}.json"
    path.write_bytes(path.read_bytes()[:-3])
    assert path.name in wrong(run)[name]


def test_every_file_of_a_run_is_checked(run: Path) -> None:
    """A run that lacks any one of its files is damaged or not a run."""
    files = [path for path in run.rglob("*") if path.is_file()]
    assert len(files) == 20
    for path in files:
        content = path.read_bytes()
        path.unlink()
        if path.name in ("run.json", "recipe.toml"):
            with pytest.raises(RunError):
                verify(run)
        elif path.name not in ("status.json", "report.json"):
            # An unfinished run has no report, and a new one no status.
            assert wrong(run), f"{path.name} is missing, but verify finds nothing"
        path.write_bytes(content)
    assert wrong(run, rank=True) == {}


def test_epochs_missing_from_the_metrics_are_found(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:3] + lines[4:]))
    assert "missing, repeated or out of order" in wrong(run)["metrics"]
    (run / "metrics.jsonl").write_text("".join(lines[:-1]))
    assert "11 epochs, but the last checkpoint is after 12" in wrong(run)["metrics"]


def test_a_file_that_is_not_in_the_manifest_is_found(run: Path) -> None:
    (run / LAST / "more.bin").write_bytes(b"?")
    assert "not in the manifest" in wrong(run)[f"checkpoint {Path(LAST).name}"]


def test_leftovers_are_found(run: Path) -> None:
    (run / "checkpoints" / ".tmp-epoch-000013").mkdir()
    assert "`allneg resume` deletes it" in wrong(run)["leftovers"]


def test_a_changed_metric_is_found_by_ranking_again(run: Path) -> None:
    content = json.loads((run / "report.json").read_text())
    content["mrr"] = 0.99
    (run / "report.json").write_text(json.dumps(content))
    assert wrong(run) == {}
    assert "mrr is 0.99, but 0." in wrong(run, rank=True)["report, ranked again"]


@pytest.mark.battery(26)
@pytest.mark.parametrize(
    "field, value",
    [
        ("protocol", {}),
        ("hits", {"1": 0.5}),
        ("by_side", {}),
        ("by_side", []),
        ("by_relation", {"r": 1}),
        ("by_category", {"1-1": {}}),
        ("optimistic", None),
        ("unseen", {}),
        ("candidates", "12"),
        ("mrr", True),
        ("mrr", float("nan")),
    ],
)
def test_a_damaged_report_is_found(run: Path, field: str, value: object) -> None:
    content = json.loads((run / "report.json").read_text())
    (run / "report.json").write_text(json.dumps({**content, field: value}))
    assert "not a report" in wrong(run)["report"]


@pytest.mark.parametrize("engine", ["auto", "cpu", "reference", "compiled"])
def test_a_run_trained_by_any_engine_passes(engine: str, trained: Callable[..., Run]) -> None:
    if engine == "compiled" and find_compiler() is None:
        pytest.skip("there is no C compiler")
    run = trained("model.name=rotate", "model.dim=33", f"hardware.engine={engine}")
    assert wrong(run.folder, rank=True) == {}


def test_baselines_are_counted_again(toy_copy: Run) -> None:
    path = toy_copy.folder / "report.json"
    content = json.loads(path.read_text())
    content["baselines"]["rules"]["by_relation"]["in"]["head"] = 0.99
    path.write_text(json.dumps(content))
    assert "baselines is different" in wrong(toy_copy.folder, rank=True)["report, ranked again"]
    content["baselines"] = {"rules": {}}
    path.write_text(json.dumps(content))
    assert "not a report" in wrong(toy_copy.folder)["report"]


def test_rounding_differences_in_a_report_pass(run: Path) -> None:
    """A GPU may give one query of many another rank."""
    content = json.loads((run / "report.json").read_text())
    content["mrr"] *= 1 + 1e-4
    (run / "report.json").write_text(json.dumps(content))
    assert wrong(run, rank=True) == {}


def test_a_report_of_a_version_with_other_metrics_passes(run: Path) -> None:
    content = json.loads((run / "report.json").read_text())
    content["new"] = content["by_side"]["head"]["new"] = content["hits"]["5"] = 0.5
    (run / "report.json").write_text(json.dumps(content))
    assert wrong(run, rank=True) == {}
    del content["by_relation"][min(content["by_relation"])]
    (run / "report.json").write_text(json.dumps(content))
    assert "by_relation is different" in wrong(run, rank=True)["report, ranked again"]


def test_every_part_of_a_report_is_compared(run: Path) -> None:
    content = json.loads((run / "report.json").read_text())
    content["by_side"]["head"]["mrr"] = 0.99
    (run / "report.json").write_text(json.dumps(content))
    assert "by_side is different" in wrong(run, rank=True)["report, ranked again"]


@pytest.mark.battery(26)
@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"epoch": 13}',
        '{"epoch": "x"}',
        '{"epoch": 13, "valid": {"mrr": "x"}}',
        '{"epoch": 13.5}',
    ],
)
def test_a_line_of_metrics_that_is_not_an_epoch_is_found(run: Path, line: str) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(f"{line}\n")
    assert "a line is not an epoch's" in wrong(run)["metrics"]


def test_an_unknown_state_is_found(run: Path) -> None:
    (run / "status.json").write_text('{"state": "foo"}')
    assert "unknown state" in wrong(run)["status"]


def test_files_of_a_running_training_are_not_leftovers(run: Path) -> None:
    with Run.open(run).locked():
        (run / "checkpoints" / ".tmp-epoch-000013").mkdir()
        assert wrong(run) == {}


@pytest.mark.battery(26)
@pytest.mark.parametrize("name", ["entities.txt", "triples.safetensors", "recipe.toml"])
def test_a_damaged_run_is_not_exported(run: Path, name: str, tmp_path: Path) -> None:
    (run / name).write_bytes(b"")
    with pytest.raises(RunError):
        export(Run.open(run), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.battery(25)
@pytest.mark.parametrize("name", ["out.safetensors", "out"])
def test_an_export_to_a_full_disk_leaves_nothing(
    run: Path, tmp_path: Path, full_disk: Callable[[int], object], name: str
) -> None:
    full_disk(100)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ResourceError):
        export(Run.open(run), tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.battery(26)
def test_an_error_names_what_export_cannot_read(run: Path, tmp_path: Path) -> None:
    (run / "environment.json").unlink()
    (run / "environment.json").mkdir()
    with pytest.raises(RunError, match=r"run/environment\.json: cannot be read"):
        export(Run.open(run), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.battery(26)
@pytest.mark.parametrize("name", ["metrics.jsonl", "entities.txt", "checkpoints"])
def test_an_error_names_what_verify_cannot_read(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for files of another user; root could read those."""
    opened, listed = os.open, Path.iterdir

    def refused(path: Path) -> None:
        if path == run / name:
            raise PermissionError(13, "Permission denied", str(path))

    def refused_open(path: Path, *how: Any, **more: Any) -> Any:
        refused(path)
        return opened(path, *how, **more)

    def refused_list(path: Path) -> Any:
        refused(path)
        return listed(path)

    monkeypatch.setattr(os, "open", refused_open)
    monkeypatch.setattr(Path, "iterdir", refused_list)
    if name == "checkpoints":
        with pytest.raises(RunError, match="cannot be read"):
            verify(run)
    else:
        assert any(f"{name}: cannot be read" in message for message in wrong(run).values())


def test_the_command_prints_every_check(run: Path, allneg: Callable[..., Any]) -> None:
    done = allneg("verify", run, "--rank")
    assert done.code == 0
    assert " ok " in done.out
    _flip(run / "entities.txt")
    done = allneg("verify", run, "--json")
    assert done.code == 4
    assert done.json["whole"] is False
    assert done.json["schema_version"] == 1
    found = {check["what"]: check["wrong"] for check in done.json["checks"]}
    assert "entities.txt" in found["names and triples"]
    assert found["recipe"] is None
    assert "checks failed" in done.err
    assert allneg("verify", run / "none").code == 4
