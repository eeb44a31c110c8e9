"""Writes the table of cases in docs/reliability.md from the tests marked @pytest.mark.battery(n).

python scripts/reliability_table.py
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- cases: written by scripts/reliability_table.py -->", "<!-- end of cases -->"

CASES = {
    1: "an empty file of triples, or only blank lines",
    2: "a line with too few or too many fields",
    3: "an empty head, relation or tail",
    4: "a byte order mark",
    5: "CRLF, lone CR, mixed line ends",
    6: "bytes that are not UTF-8",
    7: "NUL and control characters in a name",
    8: "a line without an end",
    9: "names that look like numbers, nulls or quotes; look-alikes",
    10: "duplicate triples",
    11: "triples in two splits",
    12: "entities or relations that train does not have",
    13: "UTF-16, packed or binary files taken for text",
    14: "columns in another order",
    15: "archives that reach outside, hold links or devices, or unpack to too much",
    16: "a download that is wrong, cut off or forbidden",
    17: "two processes that fetch one set",
    18: "a damaged or foreign cache",
    19: "mistakes in a recipe",
    20: "a recipe that is huge or deeply nested",
    21: "kill -9 in training",
    22: "kill -9 in a save",
    23: "a power cut that forgets what was not synced",
    24: "Ctrl-C, SIGTERM, and both again",
    25: "a full disk while saving, logging or reporting",
    26: "a checkpoint or file that is cut, flipped, missing or edited",
    27: "weights of another model, size, vocabulary or format",
    28: "a place that is read-only, a link, a device or somebody else's",
    29: "stopped and resumed against straight through",
    30: "a loss or score that is not finite",
    31: "memory that runs out",
    32: "a device that is not there, or vanishes",
    33: "ties, constant models, scores that are not finite",
    34: "questions with thousands of known answers or none; one entity; one relation",
    35: "two processes on one run",
    36: "a search with a killed worker",
    37: "the service: strange questions",
    38: "the service: strange paths, hosts and bodies",
    39: "the service: slow, many and leaving clients",
    40: "the service: headers and start-up",
}


@dataclass(frozen=True)
class Proof:
    """A test and the sentence it proves."""

    sentence: str
    file: str  # from the repository's root


def proofs() -> dict[int, list[Proof]]:
    """The tests of every case, in the order of files and lines."""
    found: dict[int, list[Proof]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef):
                sentence = node.name.removeprefix("test_").replace("_", " ")
                for case in _cases(node):
                    found[case].append(Proof(sentence, str(path.relative_to(ROOT))))
    return found


def _cases(function: ast.FunctionDef) -> Iterator[int]:
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.battery":
            for argument in mark.args:
                yield int(ast.unparse(argument))


def table() -> str:
    found = proofs()
    strange = sorted(set(found) - set(CASES))
    if strange:
        raise SystemExit(f"no case has the number {strange[0]}: {found[strange[0]][0].file}")
    lines = ["| # | case | what is proven, and where |", "|---|---|---|"]
    for number, case in CASES.items():
        said = "<br>".join(
            f"{proof.sentence} ([{Path(proof.file).stem}](../{proof.file}))"
            for proof in found.get(number, [])
        )
        lines.append(f"| {number} | {case} | {said or '*not yet*'} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
