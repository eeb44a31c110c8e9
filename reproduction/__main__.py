"""`python -m reproduction`: write the pages and the figure, or check that they are up to date."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from allneg.errors import AllnegError
from allneg.reproduce import CELLS, Results
from allneg.runs.files import write_text
from reproduction.findings_page import findings_page
from reproduction.plot import draw
from reproduction.published import Published
from reproduction.results_page import results_page

ROOT = Path(__file__).parents[1]
_SHOWN = 8  # lines of a difference


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if outdated")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="result files")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the pages go")
    chosen = parser.parse_args(arguments)
    published = Published(Results(chosen.results), CELLS, chosen.docs)
    try:
        return _check(published) if chosen.check else _write(published)
    except AllnegError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def pages(published: Published) -> dict[Path, str]:
    """The text of every page, by path."""
    docs = published.docs
    return {
        docs / "results.md": results_page(published),
        docs / "findings.md": findings_page(published),
    }


def _check(published: Published) -> int:
    n_outdated = 0
    for path, text in pages(published).items():
        old = path.read_text() if path.exists() else ""
        if old == text:
            continue
        n_outdated += 1
        print(f"{path}: not up to date; run `python -m reproduction`", file=sys.stderr)
        changes = difflib.unified_diff(old.splitlines(), text.splitlines(), lineterm="", n=0)
        print(*islice(changes, _SHOWN), sep="\n", file=sys.stderr)
    return 1 if n_outdated else 0


def _write(published: Published) -> int:
    (published.docs / "figures").mkdir(parents=True, exist_ok=True)
    for path, text in pages(published).items():
        write_text(path, text)
    draw(published.curves(), published.docs / "figures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
