"""Write the table of cases in docs/reliability.md from the tests marked @pytest.mark.battery(n).

Run it with `python scripts/reliability_table.py`.
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
    5: "CRLF, CR alone, mixed line ends",
    6: "bytes that are not UTF-8",
    7: "NUL and control characters in a name",
    8: "an endless line",
    9: "names that look like numbers, nulls or quotes; look-alikes",
    10: "duplicate triples",
    11: "triples in two splits",
    12: "entities or relations that are not in train",
    13: "UTF-16, compressed or binary files named like text",
    14: "columns in another order",
    15: "archives with outside paths, links, devices or too many bytes",
    16: "a download that is wrong, cut off, endless or forbidden",
    17: "two processes that download the same dataset",
    18: "a damaged cache, or one of another version",
    19: "errors in a recipe",
    20: "a recipe that is huge or deeply nested",
    21: "kill -9 during training",
    22: "kill -9 during a save",
    23: "a power failure that loses data that was not synced",
    24: "Ctrl-C and SIGTERM, once and twice",
    25: "a full disk while saving, logging or reporting",
    26: "a checkpoint or file that is truncated, corrupted, missing or edited",
    27: "weights of another model, size, vocabulary or format",
    28: "a run folder that is read-only, a link, a device or owned by another user",
    29: "a resumed run compared with an uninterrupted one",
    30: "a loss or score that is not finite",
    31: "running out of memory",
    32: "a device that is missing or disappears",
    33: "ties, constant models, scores that are not finite",
    34: "queries with thousands of known answers or none; one entity; one relation",
    35: "two processes on the same run",
    36: "a search with a killed worker",
    37: "the service: invalid queries",
    38: "the service: invalid paths, hosts and bodies",
    39: "the service: slow, many and disconnecting clients",
    40: "the service: headers and start-up",
}


@dataclass(frozen=True)
class Test:
    """A test and the sentence it proves."""

    sentence: str
    file: str  # from the repository's root


def tests_by_case() -> dict[int, list[Test]]:
    """The tests of each case, in order of files and lines."""
    found: dict[int, list[Test]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef):
                sentence = node.name.removeprefix("test_").replace("_", " ")
                for case in _cases(node):
                    found[case].append(Test(sentence, str(path.relative_to(ROOT))))
    return found


def _cases(function: ast.FunctionDef) -> Iterator[int]:
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.battery":
            for argument in mark.args:
                yield int(ast.unparse(argument))


def table() -> str:
    found = tests_by_case()
    unknown = sorted(set(found) - set(CASES))
    if unknown:
        raise SystemExit(f"no case has the number {unknown[0]}: {found[unknown[0]][0].file}")
    lines = ["| # | case | what is tested, and where |", "|---|---|---|"]
    for number, case in CASES.items():
        tests = "<br>".join(
            f"{test.sentence} ([{Path(test.file).stem}](../{test.file}))"
            for test in found.get(number, [])
        )
        lines.append(f"| {number} | {case} | {tests or '*not yet*'} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with an updated table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
