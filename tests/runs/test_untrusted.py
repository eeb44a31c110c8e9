"""Untrusted run folders: nothing outside them changes, and false content is refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from allneg.errors import AllnegError, RecipeError, ResourceError, RunError
from allneg.exports.export import export
from allneg.graph import Graph
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.runs.about import about_hash
from allneg.runs.checkpoint import State
from allneg.runs.files import checksum
from allneg.runs.verify import verify
from allneg.training import fit
from allneg.training.train import resume

GOLDEN = Path(__file__).parents[1] / "golden"
LAST = "epoch-000012-step-00000000"
FILES = (
    "run.json", "recipe.toml", "status.json", "metrics.jsonl", "environment.json", "report.json",
    "entities.txt", "relations.txt", "triples.safetensors", "checkpoints/last",
    f"checkpoints/{LAST}/manifest.json", f"checkpoints/{LAST}/state.json",
    f"checkpoints/{LAST}/tables.safetensors", f"checkpoints/{LAST}/optimizer.safetensors",
)  # fmt: skip
MORE = ["training.epochs=13"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of the newest golden run."""
    return shutil.copytree(GOLDEN / "v2", tmp_path / "run")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Folders and files beside the run, which must stay."""
    (tmp_path / "home" / "thesis").mkdir(parents=True)
    (tmp_path / "home" / "thesis" / "chapter").write_text("mine")
    (tmp_path / "home" / "notes").write_text("mine")
    return tmp_path / "home"


def forge(run: Path) -> None:
    """Make every checksum and id in a run right, as an attacker would."""
    about = json.loads((run / "run.json").read_text())
    about["files"] = {name: checksum(run / name) for name in about["files"]}
    (run / "run.json").write_text(json.dumps(about))
    for folder in (run / "checkpoints").glob("epoch-*"):
        names = [path.name for path in folder.iterdir() if path.name != "manifest.json"]
        manifest = {name: checksum(folder / name) for name in names}
        if about["format_version"] > 1:
            manifest["run"] = about_hash(about)  # type: ignore[assignment]
        (folder / "manifest.json").write_text(json.dumps(manifest))


def wrong(run: Path) -> str:
    """What `allneg verify` finds."""
    return "\n".join(check.wrong for check in verify(run) if check.wrong is not None)


def use(run: Path) -> None:
    """Read every file of a run, then train it further."""
    if found := wrong(run):
        raise RunError(found)
    assert Run.open(run).tables()
    resume(run, settings=MORE)


def edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.battery(41)
def test_checkpoints_that_are_a_link_are_refused_and_their_target_stays(
    run: Path, home: Path
) -> None:
    for path in (run / "checkpoints").iterdir():
        path.rename(home / path.name)
    (home / ".tmp-draft").mkdir()
    (run / "checkpoints").rmdir()
    (run / "checkpoints").symlink_to(home)
    before = content(home)
    for command in (use, wrong, lambda folder: fit(Run.open(folder)), _tables):
        with pytest.raises(RunError, match=r"checkpoints: cannot be read .a link, not a folder"):
            command(run)
    assert content(home) == before
    assert (home / ".tmp-draft").exists()


def _tables(folder: Path) -> None:
    Run.open(folder).tables()


@pytest.mark.battery(41)
@pytest.mark.parametrize("name", [*FILES, f"checkpoints/{LAST}"])
def test_a_link_in_a_run_is_refused_even_if_it_leads_to_the_right_file(
    run: Path, home: Path, name: str
) -> None:
    (run / name).rename(home / "target")
    (run / name).symlink_to(home / "target")
    before = content(home)
    with pytest.raises(RunError, match=rf"{Path(name).name}: cannot be read .a link, not a"):
        use(run)
    assert content(home) == before


@pytest.mark.battery(41)
@pytest.mark.parametrize("name", ["environment.json", "report.json", "metrics.jsonl"])
def test_export_does_not_copy_what_a_link_leads_to(run: Path, home: Path, name: str) -> None:
    (run / name).unlink()
    (run / name).symlink_to(home / "notes")
    with pytest.raises(RunError, match="a link, not a plain file"):
        export(Run.open(run), run.parent / "out")
    assert not (run.parent / "out").exists()


@pytest.mark.battery(42)
def test_only_checkpoints_that_the_run_wrote_are_deleted(run: Path) -> None:
    folder = run / "checkpoints"
    shutil.copytree(folder / LAST, folder / "my-backup")
    other = folder / "epoch-000003-step-00000000"  # of another run
    shutil.copytree(GOLDEN / "v1" / "checkpoints" / LAST, other)
    with_notes = shutil.copytree(folder / LAST, folder / "epoch-000004-step-00000000")
    (with_notes / "notes.txt").write_text("mine")
    old = shutil.copytree(folder / LAST, folder / "epoch-000005-step-00000000")
    kept = [content(path) for path in (folder / "my-backup", other, with_notes)]
    resume(run, settings=["training.epochs=15"])
    assert [content(path) for path in (folder / "my-backup", other, with_notes)] == kept
    assert not old.exists()
    assert not (folder / LAST).exists()


@pytest.mark.battery(42)
def test_a_folder_in_the_way_of_a_checkpoint_is_not_replaced(run: Path) -> None:
    mine = run / "checkpoints" / "epoch-000013-step-00000000"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(ResourceError, match="not a checkpoint of this run, so it is not replaced"):
        resume(run, settings=MORE)
    assert content(mine) == {"notes.txt": b"mine"}


@pytest.mark.battery(43)
@pytest.mark.parametrize("name", [".lock", ".holder"])
def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(
    run: Path, home: Path, name: str
) -> None:
    (run / name).symlink_to(home / "notes")
    with pytest.raises(RunError, match=rf"{name}: cannot be read .a link, not a plain file"):
        resume(run, settings=MORE)
    if name == ".lock":
        edit(run / "status.json", state="running")
        for command in (verify, lambda folder: Run.open(folder).live_status):
            with pytest.raises(RunError, match=r"\.lock: cannot be read .a link"):
                command(run)
    assert (home / "notes").read_text() == "mine"
    assert (run / name).is_symlink()


@pytest.mark.battery(43)
def test_a_lock_with_a_second_name_is_refused(run: Path, home: Path) -> None:
    (run / ".lock").hardlink_to(home / "notes")
    with pytest.raises(RunError, match=r"\.lock: .*several names"):
        resume(run, settings=MORE)
    assert (home / "notes").read_text() == "mine"


@pytest.mark.battery(43)
def test_a_locked_run_with_a_pipe_as_its_holder_is_refused(run: Path) -> None:
    with Run.open(run).locked():
        (run / ".holder").unlink()
        os.mkfifo(run / ".holder")
        with pytest.raises(RunError, match=r"\.holder: cannot be read .a pipe"):
            Run.open(run).locked().__enter__()


@pytest.mark.battery(44)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", FILES)
def test_a_pipe_is_refused_without_waiting_for_it(run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(RunError, match=rf"{Path(name).name}: cannot be read .a pipe"):
        use(run)


@pytest.mark.battery(44)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", FILES)
def test_an_endless_device_is_refused(run: Path, name: str) -> None:
    (run / name).unlink()
    (run / name).symlink_to("/dev/zero")
    with pytest.raises(RunError, match=rf"{Path(name).name}: cannot be read"):
        use(run)


@pytest.mark.battery(45)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", FILES)
def test_a_huge_file_is_refused_before_it_is_read(run: Path, name: str) -> None:
    os.truncate(run / name, 1 << 42)  # a sparse file needs no space
    with pytest.raises(RunError, match=rf"{Path(name).name}: (cannot be read .larger|.* bytes)"):
        use(run)
    if "checkpoints" not in name:
        with pytest.raises(RunError):
            export(Run.open(run), run.parent / "out")


@pytest.mark.battery(45)
@pytest.mark.parametrize("depth", [100, 100_000])
@pytest.mark.parametrize("name", [name for name in FILES if ".json" in name])
def test_deeply_nested_json_is_refused(run: Path, name: str, depth: int) -> None:
    nested = '{"a": ' * depth + "1" + "}" * depth + "\n"
    (run / name).write_text(nested)
    if "state" in name:
        forge(run)
    with pytest.raises(RunError, match=rf"{Path(name).name}: not JSON.* .*nested too deeply"):
        use(run)


@pytest.mark.battery(46)
@pytest.mark.parametrize("number", [10**400, -(10**400), float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name, field",
    [
        ("metrics.jsonl", "epoch"),
        ("metrics.jsonl", "seconds"),
        ("report.json", "mrr"),
        ("report.json", "candidates"),
        *((f"checkpoints/{LAST}/state.json", field) for field in vars(State())),
    ],
)
def test_numbers_that_no_run_has_are_refused(
    run: Path, name: str, field: str, number: float
) -> None:
    path = run / name
    text = path.read_text()
    *others, last = text.splitlines() if path.suffix == ".jsonl" else [text]
    changed = json.dumps({**json.loads(last), field: number})
    path.write_text("".join(f"{line}\n" for line in (*others, changed)))
    forge(run)
    with pytest.raises(RunError, match=Path(name).name):
        use(run)


@pytest.mark.battery(46)
@pytest.mark.parametrize("field", ["epoch", "step", "stale", "seconds"])
def test_a_negative_progress_is_refused(run: Path, field: str) -> None:
    edit(run / "checkpoints" / LAST / "state.json", **{field: -1})
    forge(run)
    with pytest.raises(RunError, match=rf"state\.json: {field} is not a valid number"):
        use(run)


CHANGES = [
    ('name = "complex"', 'name = "simple"', "model.name is 'simple', .* with 'complex'"),
    ('name = "complex"', 'name = "distmult"', "model.name"),
    ("dim = 4", "dim = 8", "model.dim is 8, .* with 4"),
    ("reciprocal = true", "reciprocal = false", "model.reciprocal"),
    ('columns = "hrt"', 'columns = "trh"', "data.columns"),
    ('name = "adagrad"', 'name = "adam"', "optimizer.name is 'adam', .* with 'adagrad'"),
    ('name = "adagrad"', 'name = "sgd"', "optimizer.name"),
    ("learning_rate = 0.1", "learning_rate = 0.2", "optimizer.learning_rate"),
    ('name = "softmax"', 'name = "logistic"', "loss.name"),
    ('name = "n3"', 'name = "l2"', "regularizer.name"),
    ("batch_size = 8", "batch_size = 16", "training.batch_size"),
    ("seed = 0", "seed = 1", "data.split_seed is 1|training.seed is 1"),
    ("[evaluation]\nevery = 2", "[evaluation]\nevery = 3", "evaluation.every"),
]


@pytest.mark.battery(47)
@pytest.mark.parametrize("old, new, message", CHANGES, ids=[new for _, new, _ in CHANGES])
def test_a_changed_recipe_is_refused_with_the_setting(
    run: Path, old: str, new: str, message: str
) -> None:
    text = (run / "recipe.toml").read_text()
    assert old in text
    (run / "recipe.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(RunError, match=rf"recipe\.toml: {message}") as caught:
        Run.open(run)
    assert caught.value.exit_code == 4


@pytest.mark.battery(47)
def test_epochs_patience_and_hardware_may_be_edited(run: Path) -> None:
    text = (run / "recipe.toml").read_text()
    for old, new in [("epochs = 12", "epochs = 13"), ("patience = 5", "patience = 9"),
                     ("threads = 1", "threads = 2")]:  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    (run / "recipe.toml").write_text(text)
    edit(run / "status.json", state="interrupted")
    assert fit(Run.open(run)) is not None
    assert len(Run.open(run).metrics()) == 13
    assert wrong(run) == ""


@pytest.fixture(scope="module")
def other(
    tmp_path_factory: pytest.TempPathFactory, quick: Callable[..., Recipe], tiny_graph: Graph
) -> Run:
    """A run that differs in its seed only."""
    recipe = quick("training.epochs=12", "training.seed=1", "data.name=tiny")
    made = Run.create(tmp_path_factory.mktemp("other") / "run", recipe, tiny_graph)
    fit(made)
    return made


@pytest.mark.battery(48)
def test_checkpoints_of_another_run_are_refused(run: Path, other: Run) -> None:
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(other.folder / "checkpoints", run / "checkpoints")
    opened = Run.open(run)
    actions = (opened.tables, opened.last, lambda: use(run), lambda: export(opened, run / "out"))
    for action in actions:
        with pytest.raises(RunError, match="a checkpoint of another run"):
            action()


@pytest.mark.battery(48)
def test_a_recipe_and_a_run_json_of_another_run_are_refused(run: Path, other: Run) -> None:
    for name in ("run.json", "recipe.toml"):
        shutil.copy(other.folder / name, run / name)
    with pytest.raises(RunError, match=r"a checkpoint of another run, or run\.json was changed"):
        Run.open(run).tables()


@pytest.mark.battery(48)
def test_names_and_their_checksums_of_another_run_are_refused(run: Path) -> None:
    names = (run / "entities.txt").read_text().splitlines()
    names[0], names[1] = names[1], names[0]
    (run / "entities.txt").write_text("".join(f"{name}\n" for name in names))
    about = json.loads((run / "run.json").read_text())
    about["files"]["entities.txt"] = checksum(run / "entities.txt")
    (run / "run.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match=r"a checkpoint of another run, or run\.json was changed"):
        Run.open(run).tables()


@pytest.mark.battery(48)
def test_metrics_of_another_run_are_found_by_verify(run: Path, other: Run) -> None:
    shutil.copy(other.folder / "metrics.jsonl", run / "metrics.jsonl")
    assert "metrics.jsonl: the best valid MRR is" in wrong(run)


@pytest.mark.battery(48)
def test_a_run_can_be_moved_and_copied(run: Path, tmp_path: Path) -> None:
    moved = run.rename(tmp_path / "moved")
    copied = shutil.copytree(moved, tmp_path / "copied")
    for folder in (moved, copied):
        use(folder)
        assert wrong(folder) == ""


@pytest.mark.battery(49)
@pytest.mark.parametrize(
    "golden, key",
    [("v1", "files"), ("v2", "files"), ("v2", "recipe"), ("v1", "format_version")],
)
def test_a_run_json_without_a_part_is_refused(tmp_path: Path, golden: str, key: str) -> None:
    run = shutil.copytree(GOLDEN / golden, tmp_path / "run")
    about = json.loads((run / "run.json").read_text())
    for less in ({k: v for k, v in about.items() if k != key}, {**about, key: {}}):
        (run / "run.json").write_text(json.dumps(less))
        with pytest.raises(RunError, match=r"run\.json|but the run was started with"):
            Run.open(run).tables()


@pytest.mark.battery(49)
def test_a_run_cannot_be_turned_into_an_earlier_format(run: Path) -> None:
    edit(run / "run.json", format_version=1)
    with pytest.raises(RunError, match=r"a checkpoint of another run, or run\.json was changed"):
        Run.open(run).tables()


@pytest.mark.battery(49)
def test_a_run_of_format_1_continues_in_its_format(tmp_path: Path) -> None:
    run = shutil.copytree(GOLDEN / "v1", tmp_path / "run")
    resume(run, settings=MORE)
    assert json.loads((run / "run.json").read_text())["format_version"] == 1
    assert len(Run.open(run).metrics()) == 13
    assert wrong(run) == ""


@pytest.mark.battery(50)
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_state_of_another_optimizer_is_refused(tmp_path: Path, name: str) -> None:
    """In a run of format 1, which does not record its recipe."""
    run = shutil.copytree(GOLDEN / "v1", tmp_path / "run")
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(text.replace('name = "adagrad"', f'name = "{name}"'))
    with pytest.raises(RunError, match=f"another optimizer than {name} wrote it") as caught:
        resume(run, settings=MORE)
    assert caught.value.exit_code == 4


def edit_tensors(run: Path, kind: str, change: Callable[[dict[str, Any]], object]) -> None:
    for folder in (run / "checkpoints").glob("epoch-*"):
        path = folder / f"{kind}.safetensors"
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        change(tensors)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    forge(run)


@pytest.mark.battery(50)
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.clear(),
        lambda tensors: tensors.pop("entities.step"),
        lambda tensors: tensors.update(more=torch.zeros(2)),
        lambda tensors: tensors.update({"entities.step": torch.zeros(2)}),
        lambda tensors: tensors.update({k: v[:-1] for k, v in tensors.items() if v.dim()}),
        lambda tensors: tensors.update({k: v.sum() for k, v in tensors.items()}),
        lambda tensors: tensors.update({k: v.flatten() for k, v in tensors.items() if v.dim()}),
        lambda tensors: tensors.update({k: v.long() for k, v in tensors.items()}),
    ],
    ids=["none", "missing", "more", "counter", "rows", "scalars", "flat", "whole numbers"],
)
def test_missing_or_misshapen_optimizer_state_is_refused(
    trained: Callable[..., Run], optimizer: str, change: Callable[[dict[str, Any]], object]
) -> None:
    run = trained(f"optimizer.name={optimizer}", "training.epochs=1")
    edit_tensors(run.folder, "optimizer", change)
    with pytest.raises(RunError, match="optimizer"):
        resume(run.folder, settings=["training.epochs=2"])


@pytest.mark.battery(51)
@pytest.mark.parametrize("kind", ["tables", "best"])
@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64", "bfloat16", "float16", "uint8"])
def test_weights_of_a_type_that_cannot_be_used_are_refused(
    run: Path, kind: str, dtype: str
) -> None:
    edit_tensors(
        run,
        kind,
        lambda tensors: tensors.update(
            {k: v.to(getattr(torch, dtype)) for k, v in tensors.items()}
        ),
    )
    assert dtype in wrong(run)
    for action in (use, _tables if kind == "best" else use):
        with pytest.raises(RunError, match=dtype):
            action(run)


@pytest.mark.battery(51)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64"])
def test_triples_that_are_not_ids_are_refused(run: Path, dtype: str) -> None:
    path = run / "triples.safetensors"
    triples = {name: ids.to(getattr(torch, dtype)) for name, ids in load_file(path).items()}
    save_file(triples, path)
    forge(run)
    with pytest.raises(RunError, match=r"triples\.safetensors"):
        assert Run.open(run).graph


@pytest.mark.battery(51)
def test_shards_that_do_not_fit_together_are_refused(run: Path) -> None:
    for folder in (run / "checkpoints").glob("epoch-*"):
        for kind in ("tables", "optimizer", "best"):
            tensors = load_file(folder / f"{kind}.safetensors")
            (folder / f"{kind}.safetensors").unlink()
            rows = {
                name: tensor[:6] if tensor.dim() else tensor for name, tensor in tensors.items()
            }
            save_file(rows, folder / f"{kind}-1-of-2.safetensors")
            wide = {"entities": torch.zeros(6, 9)}
            save_file(wide, folder / f"{kind}-2-of-2.safetensors")
    forge(run)
    with pytest.raises(RunError, match="'entities' has a type or shape of another run"):
        use(run)


@pytest.mark.battery(52)
def test_settings_change_how_long_a_run_is_trained(run: Path) -> None:
    before = Run.open(run)
    after = resume(run, settings=["training.epochs=14", "evaluation.patience=9"])
    assert Run.open(run).recipe == after.recipe
    assert (after.recipe.training.epochs, after.recipe.evaluation.patience) == (14, 9)
    assert [entry["epoch"] for entry in after.metrics()] == list(range(1, 15))
    assert after.finished
    assert Run.open(run).id == before.id
    assert wrong(run) == ""


@pytest.mark.battery(52)
@pytest.mark.parametrize(
    "setting, message",
    [
        ("model.name=distmult", "model.name is 'distmult'.* only .*training.epochs.* may change"),
        ("optimizer.learning_rate=3", "optimizer.learning_rate is 3.0"),
        ("training.epochs=0", "training.epochs must be more than 0"),
        ("hardware.device=cuda:77", "cuda:77"),
    ],
)
def test_settings_that_may_not_change_leave_the_run_as_it_is(
    run: Path, setting: str, message: str
) -> None:
    before = content(run)
    with pytest.raises(AllnegError, match=message) as caught:
        resume(run, settings=[setting])
    assert isinstance(caught.value, RecipeError) or "cuda" in setting
    assert content(run) == before


@pytest.mark.battery(52)
def test_the_same_settings_leave_a_finished_run_as_it_is(run: Path) -> None:
    before = content(run)
    resume(run, settings=["training.epochs=12"])
    assert content(run) == before


@pytest.mark.battery(54)
def test_a_folder_whose_name_is_not_utf8_is_refused_before_anything_is_written(
    run: Path, quick: Callable[..., Recipe], tiny_graph: Graph
) -> None:
    out = run.parent / os.fsdecode(b"r\xff")
    for write in (
        lambda: Run.create(out, quick(), tiny_graph),
        lambda: export(Run.open(run), out),
        lambda: export(Run.open(run), out.with_suffix(".safetensors")),
    ):
        with pytest.raises(RecipeError, match="not a name in UTF-8; choose another --out"):
            write()
    assert list(run.parent.iterdir()) == [run]
    with pytest.raises(RunError, match="not a name in UTF-8; rename the folder"):
        Run.open(run.rename(out))


@pytest.mark.battery(54)
def test_arguments_that_are_not_utf8_are_recorded(
    made: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["allneg", "train", os.fsdecode(b"r\xff")])
    assert made().environment["command"] == r"allneg train 'r\udcff'"


ESCAPE = "\x1b]0;title\x07\x9b31m\u202e"


@pytest.mark.battery(52)
def test_the_command_resume_takes_settings(run: Path, allneg: Callable[..., Any]) -> None:
    assert "already finished" in allneg("resume", run, "--set", "training.epochs=12").err
    done = allneg("resume", run, "--set", "training.epochs=13", "--quiet")
    assert "MRR" in done.out
    assert "already finished" not in done.err
    assert len(Run.open(run).metrics()) == 13


@pytest.mark.battery(53)
@pytest.mark.parametrize(
    "command",
    [("resume",), ("info",), ("info", "--json"), ("evaluate",), ("resume", "--json")],
    ids=" ".join,
)
def test_no_text_of_a_run_controls_the_terminal(
    run: Path, allneg: Callable[..., Any], command: tuple[str, ...]
) -> None:
    report = json.loads((run / "report.json").read_text())
    report["protocol"] |= {"in_words": ESCAPE, "name": ESCAPE, "split": ESCAPE}
    report["by_relation"][ESCAPE] = report["by_relation"].pop("in")
    report["hits"][ESCAPE] = 0.5
    (run / "report.json").write_text(json.dumps(report))
    edit(run / "status.json", reason=ESCAPE)
    edit(run / "environment.json", command=ESCAPE)
    edit(run / "run.json", data=ESCAPE)
    names = (run / "entities.txt").read_text()
    (run / "entities.txt").write_text(names.replace("Corsica", ESCAPE))
    forge(run)
    done = allneg(command[0], run, *command[1:])
    shown = done.out + done.err
    assert "31m" in shown  # the text is there, without its control characters
    assert [c for c in shown if not c.isprintable() and c != "\n"] == []
