"""The page's files by themselves: small, alone, and never markup from names."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import allneg

STATIC = Path(allneg.__file__).parent / "serve" / "static"
FILES = sorted(STATIC.iterdir())
NAMES = [path.name for path in FILES]


def test_the_page_is_small() -> None:
    assert sum(len(gzip.compress(path.read_bytes())) for path in FILES) < 150_000


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_nothing_comes_from_elsewhere(path: Path) -> None:
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", path.read_text()))
    assert addresses <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_no_text_becomes_markup_or_code(path: Path) -> None:
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function"
    assert not re.search(unsafe, path.read_text())


def test_the_document_has_no_inline_script_or_style() -> None:
    text = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", text)


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".js"], ids=str)
def test_every_import_exists(path: Path) -> None:
    for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
        assert name in NAMES, f"{path.name} imports {name}"
