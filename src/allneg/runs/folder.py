"""The folder of a run that is to be: its name, and whose it is."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from allneg.errors import RecipeError
from allneg.recipe import Recipe
from allneg.runs import disk as seam
from allneg.runs.files import full_disk_named, need_writable


def new_folder(recipe: Recipe) -> Path:
    """A name for a run that was given none: runs/DATE_DATA_MODEL, with a number if taken."""
    data = Path(recipe.data.name).name.split(".")[0] or "data"
    base = Path("runs") / f"{time.strftime('%Y-%m-%d')}_{data}_{recipe.model.name}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}_{number}"), number + 1
    return folder


def check_new(folder: Path) -> None:
    """Raise a `AllnegError` unless a run can be made in a folder, which is not touched."""
    with full_disk_named(folder):
        if folder.is_symlink():
            raise RecipeError(f"{folder}: is a link; choose another --out, or where it leads to")
        if folder.exists() and not folder.is_dir():
            raise RecipeError(f"{folder}: is there, and no folder; choose another --out")
        if folder.exists() and any(folder.iterdir()):
            raise _taken(folder)
        home = next(each for each in folder.absolute().parents if each.exists())
        need_writable(home)


def take(folder: Path) -> None:
    """Make a folder ours: of all who would, one makes the folder in it."""
    with full_disk_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            seam.disk.make_folder(folder / "checkpoints")
        except FileExistsError:
            raise _taken(folder) from None
        except BaseException:
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise


def _taken(folder: Path) -> RecipeError:
    if not (folder / "run.json").exists():
        return RecipeError(f"{folder}: is not empty, and no run; choose another --out")
    return RecipeError(f"{folder}: exists already; `allneg resume` it, or choose another --out")
