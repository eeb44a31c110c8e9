"""Check pages, notebooks and source for the phrases in phrases.txt.

python scripts/prose.py
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "notebooks", "src", "scripts", "reproduction", "benchmarks")
SUFFIXES = (".md", ".py", ".ipynb", ".toml", ".js", ".html")


@functools.cache
def phrases() -> list[tuple[re.Pattern[str], str]]:
    """Each banned phrase, and what to write instead."""
    lines = (ROOT / "scripts" / "phrases.txt").read_text().splitlines()
    pairs = [line.split(" -> ") for line in lines if line and not line.startswith("#")]
    return [(re.compile(phrase, re.IGNORECASE), advice) for phrase, advice in pairs]


def found(text: str) -> list[tuple[int, str, str]]:
    """The line, the phrase and the advice of each match."""
    return [
        (number, match[0], advice)
        for number, line in enumerate(text.splitlines(), 1)
        if '"image/png"' not in line
        for phrase, advice in phrases()
        for match in phrase.finditer(line)
    ]


def main() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {phrase!r}: {advice}"
        for path in [*sorted(ROOT.glob("*.md")), *files]
        if path.suffix in SUFFIXES and path.name != "ATTRIBUTION.md"  # licences
        for number, phrase, advice in found(path.read_text())
    ]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
