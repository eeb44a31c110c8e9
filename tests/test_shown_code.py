"""Every block of code on a page is run by a test, checked here, or marked with a reason."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import allneg
from allneg.cli import allneg as cli
from allneg.tuning.space import read_space

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("reproduction/*.md")])
GENERATED = ("docs/api.md", "docs/commands.md")  # tests/test_docs.py writes them again
STORIES = ("docs/complete.md", "docs/growing.md")  # tests/test_docs.py runs every line with $
MARK = r"^(?P<mark><!-- not run: [^\n]+ -->\n)?"
FENCED = re.compile(MARK + r"```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:(?<=\n\n)|(?<=\n))(?P<code>(?:    .*\n)(?:    .*\n|\n(?=    ))*)")
ADVICE = "write <!-- not run: reason --> above the block"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def shown(text: str) -> Iterator[tuple[str, str]]:
    """The language and the code of every block of a page that has no mark."""
    for found in FENCED.finditer(text):
        if not found["mark"]:
            yield found["language"], found["code"]
    for found in INDENTED.finditer(FENCED.sub("", text)):
        before = text.partition(found["code"])[0].rstrip("\n").rpartition("\n")[2]
        if not re.match(r"(?:[-*]|\d+\.) ", before):  # the text of a list
            yield "", re.sub("^    ", "", found["code"], flags=re.MULTILINE)


def commands(code: str) -> list[str]:
    """The lines of a block that are commands. Where some begin with $, the others are output."""
    lines = [line for line in code.replace("\\\n", " ").splitlines() if line.strip()]
    typed = [line for line in lines if line.startswith("$ ")]
    return [line.removeprefix("$ ") for line in typed] or lines


def mistake(line: str) -> str | None:
    """What is wrong with a command, which is not run."""
    if re.match(r"allneg .*(\[--|…)", line):
        return None  # a synopsis; test_commands_and_their_options_exist reads it
    words = shlex.split(line, comments=True)
    if words[0] == "torchrun" and "allneg" in words:
        words = words[words.index("allneg") :]
    match words:
        case ["allneg", *rest]:
            return _parse(rest)
        case ["make", target]:
            exists = re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["python", "-m", module, *_]:
            exists = importlib.util.find_spec(module)
        case ["python", file, *_]:
            exists = (ROOT / file).is_file()
        case ["pip", "install", package]:
            exists = set(re.findall(r"\w+", package)) <= EXTRAS.keys()
        case _:
            return ADVICE
    return None if exists else "no such file, module, target or extra"


def _parse(words: list[str]) -> str | None:
    """What the command line says of words after `allneg`: arguments, options and their values."""
    command: click.Command = cli
    parent = None
    try:
        while isinstance(command, click.Group):
            parent = click.Context(command, parent)
            name, found, words = command.resolve_command(parent, words)
            assert found is not None
            command = found
            parent.info_name = name
        command.make_context(parent.info_name if parent else None, list(words), parent)
    except click.ClickException as error:
        return error.format_message()
    return None


def mistakes(name: str, language: str, code: str) -> list[str]:
    """What is wrong with a block of a page that has no mark."""
    if language in ("python", "toml"):  # python: tests/test_docs.py; toml: below
        return []
    if language == "sql" and name == "docs/preprocess.md":  # tests/graph/test_sources.py
        return []
    if language:
        return [f"{name}: {language}: {ADVICE}"]
    if name in GENERATED or code.startswith("src/allneg/"):  # the map of the README
        return []
    is_run = name in STORIES and code.startswith("$ ")
    lines = [] if is_run else commands(code)
    return [f"{name}: {line}: {advice}" for line in lines if (advice := mistake(line))]


def test_every_block_is_run_checked_or_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)  # of `python -m reproduction`
    wrong = []
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        for language, code in shown(page.read_text()):
            wrong += mistakes(name, language, code)
    assert not wrong


def test_toml_on_pages_is_a_recipe_or_a_search_space(tmp_path: Path) -> None:
    (tmp_path / "my-recipe.toml").touch()
    n_blocks = 0
    for page in PAGES:
        for language, code in shown(page.read_text()):
            if language == "toml":
                path = tmp_path / f"{page.stem}.toml"
                path.write_text(code)
                is_space = "search" in tomllib.loads(code)
                assert read_space(path).axes if is_space else allneg.Recipe.read(path)
                n_blocks += 1
    assert n_blocks >= 3


@pytest.mark.parametrize(
    "block, wrong",
    [
        ("```\nallneg train facts.tsv --out runs/mine\n```\n", None),
        ("Text:\n\n    allneg train facts.tsv --epochs 3\n", "No such option"),
        ("```\nallneg tune facts.tsv --out x\n```\n", "Missing option '--minutes'"),
        ("```\n$ allneg predict\nanything\n```\n", "Missing argument 'RUN'"),
        ("## Title\n    make gold\n", "no such file, module, target or extra"),
        ("```\ndocker run allneg\n```\n", "<!-- not run: reason -->"),
        ("<!-- not run: needs Docker -->\n```\ndocker run allneg\n```\n", None),
        (
            "<!-- not run: a -->\n```\n```\n\n    sbatch a\n\n<!-- not run: b -->\n```\n```\n",
            "sbatch a: write <!-- not run: reason -->",
        ),
        ("```nginx\nlocation /\n```\n", "<!-- not run: reason -->"),
        ("```sql\nSELECT 1\n```\n", "<!-- not run: reason -->"),
        ("- a list\n    docker run allneg\n", None),
    ],
)
def test_an_unmarked_block_is_found(block: str, wrong: str | None) -> None:
    blocks = list(shown(f"# A\n\n{block}\n"))
    found = [text for language, code in blocks for text in mistakes("a.md", language, code)]
    assert found == [] if wrong is None else wrong in found[0]
