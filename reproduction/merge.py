"""`python -m reproduction.merge FOLDER INTO`: add result files of another place to a folder.

It works for folders of `allneg reproduce` and of `reproduction.trials`. Files are matched by their
path. Seeds that INTO lacks are added to its file; a seed that it has stays as it is. A file of
another recipe is left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from allneg.errors import AllnegError
from allneg.reproduce import Result
from allneg.terminal import note
from reproduction.trials import SUMMARY


def merge(folder: Path, into: Path) -> list[Path]:
    """Add the files of `folder`; the paths of those that `into` has of another recipe."""
    clashes = []
    for path in sorted(folder.rglob("*.json")):
        if path.name == SUMMARY:
            continue
        target, new = into / path.relative_to(folder), Result.read(path)
        if not target.exists():
            new.write(target)
            continue
        old = Result.read(target)
        if _kind(old) != _kind(new) or not old.is_of(new.made_by):
            clashes.append(path)
        elif lacking := [entry for entry in new.seeds if old.seed(entry["seed"]) is None]:
            old.with_seeds(lacking).write(target)
    return clashes


def _kind(result: Result) -> tuple[object, ...]:
    return result.data, result.row, result.quick, result.members


def main(arguments: Sequence[str] | None = None) -> int:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m reproduction.merge", description=description)
    parser.add_argument("folder", type=Path, help="result files to add")
    parser.add_argument("into", type=Path, help="such as results or trials")
    chosen = parser.parse_args(arguments)
    try:
        clashes = merge(chosen.folder, chosen.into)
    except AllnegError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for path in clashes:
        note(f"{path}: left out, because {chosen.into} has a result of another recipe there")
    return 1 if clashes else 0


if __name__ == "__main__":
    sys.exit(main())
