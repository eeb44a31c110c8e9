"""What is trained for a cell, in which folder, and in which order."""

from __future__ import annotations

from pathlib import Path

from allneg.recipe import Recipe
from allneg.reproduce import CELLS, MEMBERS, Cell, Task, make_tasks


def by_name(*names: str) -> list[Cell]:
    return [cell for cell in CELLS if cell.name in names]


def test_all_cells_have_the_first_seed_before_any_has_the_next(tmp_path: Path) -> None:
    found = make_tasks(by_name("wn18/complex", "wn18/simple"), (4, 1), tmp_path, quick=False)
    assert [task.name for task in found] == [
        "wn18/simple, seed 4",
        "wn18/complex, seed 4",
        "wn18/simple, seed 1",
        "wn18/complex, seed 1",
    ]


def test_a_cell_has_three_seeds_by_default(tmp_path: Path) -> None:
    found = make_tasks(by_name("wn18/complex"), (), tmp_path, quick=False)
    assert [task.seed for task in found] == [0, 1, 2]


def test_an_ensemble_combines_runs_of_other_cells_with_its_seed(tmp_path: Path) -> None:
    (task,) = make_tasks(by_name("wn18rr/ensemble"), (2,), tmp_path, quick=False)
    rows = [f"wn18rr/{row}" for row in MEMBERS]
    members = make_tasks(by_name(*rows), (2,), tmp_path, quick=False)
    assert {member.folder for member in task.members} == {member.folder for member in members}
    assert [member.cell.name for member in task.members] == rows
    assert task.folder.name.startswith("ensemble-")
    assert task.folder.name.endswith("-seed-2")


def test_cells_with_the_same_recipe_share_a_run(tmp_path: Path) -> None:
    one = Task(Cell("norms", "fb15k", "one"), Recipe(), tmp_path)
    twin = Task(Cell("table2", "fb15k", "twin"), Recipe(), tmp_path)
    other = Task(one.cell, Recipe().with_settings(["model.dim=7"]), tmp_path)
    seed = Task(one.cell, Recipe().with_settings(["training.seed=7"]), tmp_path)
    assert one.folder == twin.folder
    assert len({one.folder, other.folder, seed.folder}) == 3


def test_a_new_run_is_started_and_an_existing_one_is_resumed(tmp_path: Path) -> None:
    task = Task(Cell("table1", "tiny", "row"), Recipe(), tmp_path)
    task.folder.mkdir(parents=True)
    (task.folder / "entities.txt").write_text("half a run")
    assert task.arguments()[:2] == ["train", "countries"]
    assert not task.folder.exists()
    assert Recipe.read(task.arguments()[3]) == task.recipe
    task.folder.mkdir()
    (task.folder / "run.json").write_text('{"format_version": 1, "data": "x"}')
    (task.folder / "recipe.toml").write_text(task.recipe.to_toml())
    (task.folder / "status.json").write_text('{"state": "interrupted"}')
    assert task.arguments()[:2] == ["resume", str(task.folder)]


def test_a_quick_recipe_is_a_small_model_of_the_embedded_graph(tmp_path: Path) -> None:
    found = make_tasks(by_name("fb15k/figure1/k-14000", "wn18/rotate"), (3,), tmp_path, quick=True)
    assert {task.recipe.data.name for task in found} == {"countries"}
    assert {task.recipe.model.dim for task in found} == {16}
    assert {task.recipe.training.epochs for task in found} == {3}
    assert [task.recipe.loss.n_negatives for task in found] == [256, 50]
    assert [task.seed for task in found] == [3, 3]
