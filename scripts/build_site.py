"""Build the documentation site in build/site and check its links.

python scripts/build_site.py

The pages of docs/ are written for GitHub. Some lie elsewhere (`ELSEWHERE`), the tutorials are
notebooks, and model cards are made here. All of them are staged in build/docs. A file of the
repository that a page links to, such as a recipe or a result, becomes a file of the site.
"""

from __future__ import annotations

import functools
import html
import itertools
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import api_page
import model_cards
import notebooks

import allneg

ROOT = Path(__file__).parents[1]
STAGED, SITE = ROOT / "build" / "docs", ROOT / "build" / "site"
ELSEWHERE = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "roadmap.md": "ROADMAP.md",
    "security.md": "SECURITY.md",
    "reproduction.md": "reproduction/README.md",
}
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
BARS = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def sources() -> dict[str, Path]:
    """The file of every page of the site that is Markdown in the repository."""
    pages = {path.name: path for path in sorted((ROOT / "docs").glob("*.md"))}
    return pages | {name: ROOT / path for name, path in ELSEWHERE.items()}


def stage() -> None:
    """Write all pages, and the files that they link to, to build/docs."""
    shutil.rmtree(STAGED, ignore_errors=True)
    shutil.copytree(ROOT / "docs", STAGED, ignore=shutil.ignore_patterns("*.md"))
    for name, path in sources().items():
        text = path.read_text()
        for change in (_space_lists, _bars, functools.partial(_relink, source=path)):
            text = _outside_code(change, text)
        (STAGED / name).write_text(text)
    (STAGED / "reference.md").write_text(reference())
    notebooks.write_pages(STAGED, _relink)
    model_cards.write_cards(STAGED, ROOT / "results")


def reference() -> str:
    """The whole public API, rendered by mkdocstrings; docs/api.md is its overview."""
    text = "# Python API in full\n\nSignatures and docstrings. [The overview](api.md) is shorter.\n"
    for name in (*api_page.FUNCTIONS, *api_page.CLASSES):
        thing = getattr(allneg, name)
        text += f"\n::: {thing.__module__}.{thing.__qualname__}\n"
        if members := api_page.CLASSES.get(name):
            text += f"    options:\n      members: [{', '.join(members)}]\n"
    return text


def _outside_code(change: Callable[[str], str], text: str) -> str:
    """The text with its parts between code blocks changed."""
    code = FENCE.findall(text)
    parts = [change(part) for part in FENCE.split(text)]
    return "".join(part + block for part, block in zip(parts, [*code, ""], strict=True))


def _space_lists(text: str) -> str:
    """GitHub needs no empty line before a list, Python-Markdown does."""
    lines = text.split("\n")
    out = lines[:1]
    for before, line in itertools.pairwise(lines):
        starts = ITEM.match(line) and before.strip() and not before.startswith((" ", "#"))
        if starts and not ITEM.match(before):
            out.append("")
        out.append(line)
    return "\n".join(out)


def _bars(text: str) -> str:
    """In code in a table, GitHub shows `\\|` as a bar, Python-Markdown as both characters."""

    def code(found: re.Match[str]) -> str:
        shown = html.escape(found[1].replace("\\|", "|")).replace("|", "&#124;")
        return f"<code>{shown}</code>"

    return BARS.sub(code, text)


def _relink(text: str, source: Path) -> str:
    """Links of a page as they are in the site."""
    pages = {path.resolve(): name for name, path in sources().items()}
    pages |= {path.resolve(): name for name, path in notebooks.pages().items()}

    def link(found: re.Match[str]) -> str:
        if ":" in found[0]:
            return found[0]
        target = (source.parent / found[0]).resolve()
        if target in pages:
            return pages[target]
        inside = target.relative_to(ROOT).as_posix()
        if inside.startswith("docs/"):
            return inside.removeprefix("docs/")
        return f"files/{_copy(target, inside)}"

    return LINK.sub(link, text)


def _copy(target: Path, inside: str) -> str:
    """Copy a file or a folder of the repository into the site; its address there."""
    copy = STAGED / "files" / inside
    copy.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        shutil.copytree(target, copy, dirs_exist_ok=True)
        names = sorted(path.name for path in target.iterdir() if path.is_file())
        items = "".join(f'<li><a href="{name}">{name}</a></li>' for name in names)
        (copy / "index.html").write_text(f"<title>{inside}</title><ul>{items}</ul>\n")
        return f"{inside.rstrip('/')}/index.html"
    if target.is_file():
        shutil.copyfile(target, copy)
    return inside


class _Page(HTMLParser):
    """The ids and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def dead_links() -> list[str]:
    """Links of the built site that lead nowhere; those to other sites are not followed."""
    pages = {path: _Page(path) for path in SITE.rglob("*.html") if path.name != "404.html"}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            name = urllib.parse.unquote(parts.path)
            target = (path.parent / name).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            anchor = urllib.parse.unquote(parts.fragment)
            found = pages.get(target)
            missing = anchor and found and anchor not in found.ids | {"__skip"}
            if not target.exists() or missing:
                dead.append(f"{path.relative_to(SITE)}: {link}")
    return dead


def main() -> None:
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    colours = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=colours)
    said = done.stdout + done.stderr
    if done.returncode or re.search("warning|error", said, re.IGNORECASE):
        sys.exit(said)
    if dead := dead_links():
        sys.exit("dead links:\n" + "\n".join(dead))
    print(f"{len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
