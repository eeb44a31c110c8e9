"""Lines for a terminal, with control characters escaped: names come from files."""

import sys


def note(text: str) -> None:
    """Print lines on stderr."""
    for line in text.splitlines():
        print(clean(line), file=sys.stderr)


def clean(text: str) -> str:
    """`text` with control characters escaped: names from files must not control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
