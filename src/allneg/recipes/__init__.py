"""The recipes that ship with the package, by name: DATA/ROW, such as fb15k-237/complex-n3.

`plans/` holds recipes for graphs too large for one device, `search/` examples for `allneg search`.
"""

from pathlib import Path

from allneg.errors import RecipeError, close_names

FOLDER = Path(__file__).parent


def recipe_names() -> list[str]:
    """The names of all shipped recipes."""
    paths = (path.relative_to(FOLDER) for path in FOLDER.rglob("*.toml"))
    return sorted(path.with_suffix("").as_posix() for path in paths)


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe: an existing file, or else the shipped recipe of that name."""
    path = Path(name)
    if path.exists():
        return path
    names, wanted = recipe_names(), path.as_posix().removesuffix(".toml")
    if wanted in names:
        return FOLDER / f"{wanted}.toml"
    close = close_names(wanted, names) or "; a shipped recipe is fb15k-237/complex-n3, for example"
    raise RecipeError(f"{name}: there is no such file or shipped recipe{close}")
