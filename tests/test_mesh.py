"""A mesh is read strictly, and must have as many processes as were started."""

from __future__ import annotations

import pytest

from allneg.errors import RecipeError
from allneg.recipe import Mesh, Recipe


@pytest.mark.parametrize(
    "text, mesh",
    [
        ("rows=4,batch=2", Mesh(4, 2)),
        ("batch=2,rows=4", Mesh(4, 2)),
        ("rows=3", Mesh(3, 1)),
        ("batch=16", Mesh(1, 16)),
    ],
)
def test_an_axis_without_a_number_is_one(text: str, mesh: Mesh) -> None:
    assert Mesh.read(text) == mesh
    assert Mesh.read(str(mesh)) == mesh
    assert mesh.size == mesh.rows * mesh.batch


@pytest.mark.parametrize(
    "text", ["", "4", "rows", "rows=0", "rows=-1", "rows=2,rows=2", "rows=2;batch=2", "lines=2",
             "rows=2,", "rows=two", "rows=2 ", "rows=12345678"]
)  # fmt: skip
def test_a_text_that_is_no_mesh_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="is not a mesh; write rows=4,batch=2"):
        Mesh.read(text)
    with pytest.raises(RecipeError, match=r"hardware.mesh must have the form rows=4,batch=2"):
        Recipe.from_tables({"hardware": {"mesh": text}})


def test_without_a_mesh_processes_share_the_rows() -> None:
    assert Mesh.of(None, 1) == Mesh()
    assert Mesh.of(None, 6) == Mesh(rows=6)


def test_a_mesh_must_have_as_many_processes_as_were_started() -> None:
    assert Mesh.of("rows=4,batch=2", 8) == Mesh(4, 2)
    with pytest.raises(RecipeError, match=r"rows=4,batch=2 needs 8 processes, but 6 started"):
        Mesh.of("rows=4,batch=2", 6)


def test_a_recipe_carries_its_mesh() -> None:
    recipe = Recipe.from_tables({"hardware": {"mesh": "rows=4,batch=2"}})
    assert 'mesh = "rows=4,batch=2"' in recipe.to_toml()
    assert "mesh" not in Recipe().to_toml()
