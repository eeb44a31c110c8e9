"""The files of the page: small, without external resources and unsafe markup."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import allneg

STATIC = Path(allneg.__file__).parent / "serve" / "static"
FILES = sorted(STATIC.iterdir())
NAMES = [path.name for path in FILES]


def test_the_page_is_small() -> None:
    assert sum(len(gzip.compress(path.read_bytes())) for path in FILES) < 150_000


def test_nothing_comes_from_elsewhere() -> None:
    for path in FILES:
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", path.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path.name


def test_no_text_becomes_markup_or_code() -> None:
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function"
    for path in FILES:
        assert not re.search(unsafe, path.read_text()), path.name


def test_the_document_has_no_inline_script_or_style() -> None:
    text = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", text)


def test_every_import_exists() -> None:
    for path in FILES:
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert name in NAMES, f"{path.name} imports {name}"
