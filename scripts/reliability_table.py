"""Write the table of cases in docs/reliability.md from the tests marked @pytest.mark.battery(n).

python scripts/reliability_table.py
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- cases: written by scripts/reliability_table.py -->", "<!-- end of cases -->"

CASES = {
    1: "triples: empty files, or only blank lines",
    2: "triples: lines with too few or too many fields",
    3: "triples: an empty head, relation or tail",
    4: "triples: a byte order mark",
    5: "triples: CRLF, CR alone, mixed line ends",
    6: "triples: bytes that are not UTF-8",
    7: "triples: NUL and control characters in names",
    8: "triples: an endless line",
    9: "triples: names that look like numbers, nulls or quotes; look-alike characters",
    10: "triples: duplicates",
    11: "triples: the same triple in two splits",
    12: "triples: entities or relations that are not in train",
    13: "triples: UTF-16, compressed or binary files",
    14: "triples: columns in another order",
    15: "archives: paths outside the folder, links, devices, huge content",
    16: "downloads: wrong, incomplete or forbidden",
    17: "downloads: two processes fetch the same dataset",
    18: "cache: damaged, or written by something else",
    19: "recipes: mistakes",
    20: "recipes: huge or deeply nested files",
    21: "kill -9 during training",
    22: "kill -9 during a save",
    23: "a power cut that loses unsynced writes",
    24: "Ctrl-C and SIGTERM, once and repeatedly",
    25: "a full disk during saves, metrics and reports",
    26: "checkpoints and other files of a run: cut, changed, missing or edited",
    27: "weights of another model, size, vocabulary or format",
    28: "folders that are read-only, links, devices or owned by another user",
    29: "a stopped and resumed run against an uninterrupted one",
    30: "losses and scores that are not finite",
    31: "running out of memory",
    32: "devices that are missing or fail",
    33: "ranking: ties, constant models, scores that are not finite",
    34: "ranking: thousands of known answers or none; a single entity or relation",
    35: "two processes on one run",
    36: "tuning: a killed worker",
    37: "server: unusual queries",
    38: "server: unusual paths, hosts and bodies",
    39: "server: slow, many and disconnecting clients",
    40: "server: headers and start-up",
    41: "untrusted runs: links instead of files and folders",
    42: "a user's own files and folders among the checkpoints",
    43: "untrusted runs: locks that are links or have a second name",
    44: "untrusted runs: pipes and devices instead of files",
    45: "untrusted runs: files that are too large or nested too deeply",
    46: "untrusted runs: numbers of hundreds of digits",
    47: "a recipe that was changed after the run was started",
    48: "checkpoints, names or triples of another run",
    49: "a run.json without its hashes, or turned into an earlier format",
    50: "state of another optimizer, or missing or misshapen state",
    51: "weights and ids of types that cannot be used",
    52: "resuming with other settings",
    53: "untrusted runs: control characters in any text that is printed",
    54: "paths that are not UTF-8",
    55: "untrusted runs: anything in place of any file",
    61: "server: a burst of connections, and no free file descriptor",
    62: "server: a line feed after a path",
    63: "server: a run that is deleted or damaged while it is served",
    64: "server: several runs, one of which has diverged",
    65: "names of thousands of characters",
    66: "an unknown name among many entities",
    67: "server: generated requests to every URL",
    71: "triples: quotes and tabs in CSV",
    72: "triples: JSON, N-Triples and other syntaxes",
    73: "triples: bad bytes that may be skipped",
    74: "archives: the same file twice",
    75: "compressed text that unpacks to hundreds of times its size",
    76: "memory that runs out while text is read, or elsewhere",
    77: "objects or endless texts instead of a path",
    78: "compiled libraries: a cache that another user can change",
    79: "downloads: redirects that leave https",
    80: "engines, compilers, meshes and sizes that cannot work here",
    81: "a full disk before a run exists",
    82: "processes: variables that torchrun did not set",
    83: "processes: different arguments",
    84: "runs: a folder that does not exist",
    85: "runs: progress within an epoch",
    86: "exports: formats that are not supported",
}


@dataclass(frozen=True)
class Proof:
    """A test and the sentence that its name states."""

    sentence: str
    file: str  # from the root of the repository


@cache
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
    unknown = sorted(set(found) - set(CASES))
    if unknown:
        raise SystemExit(f"{found[unknown[0]][0].file}: there is no case {unknown[0]}")
    lines = ["| # | case | what the tests prove |", "|---|---|---|"]
    for number, case in CASES.items():
        by_file: dict[str, list[str]] = defaultdict(list)
        for proof in found.get(number, []):
            by_file[proof.file].append(proof.sentence)
        cells = [
            f"[{Path(file).stem}](../{file}): {'; '.join(sentences)}"
            for file, sentences in by_file.items()
        ]
        lines.append(f"| {number} | {case} | {'<br>'.join(cells) or '*not yet*'} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with the current table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
