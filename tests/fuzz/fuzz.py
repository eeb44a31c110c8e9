"""Fuzz a target with atheris: `python tests/fuzz/fuzz.py triples -max_total_time=600`.

Inputs that reach new code are kept for the session only. A failing input is written to the
current folder as crash-…: fix the bug, then add the input to tests/fuzz/corpus.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["allneg", "tomllib", "json"]):
    from targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    name, *flags = sys.argv[1:]
    with tempfile.TemporaryDirectory() as new:
        # libFuzzer adds to the first folder and reads from all.
        atheris.Setup([sys.argv[0], new, str(CORPUS / name), *flags], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
