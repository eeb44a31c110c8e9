"""The programs that build the site and check its links, pages and words."""

from __future__ import annotations

from pathlib import Path

import build_site
import notebooks
import prose
import pytest


def test_dead_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_site, "SITE", tmp_path)
    (tmp_path / "a.html").write_text('<h2 id="here">A</h2> <a href="b.html#there">B</a>')
    (tmp_path / "b.html").write_text(
        '<a href="a.html#here"> <a href="a.html#gone"> <a href="c.html"> <img src="d.png">'
        '<a href="https://example.org/x"> <a href="#nowhere">'
    )
    assert sorted(build_site.dead_links()) == [
        "a.html: b.html#there",
        "b.html: #nowhere",
        "b.html: a.html#gone",
        "b.html: c.html",
        "b.html: d.png",
    ]


def test_pages_for_github_are_changed_outside_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_site, "ROOT", tmp_path)
    monkeypatch.setattr(build_site, "STAGED", tmp_path / "staged")
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path / "notebooks")
    monkeypatch.setattr(build_site, "ELSEWHERE", {"changelog.md": "CHANGELOG.md"})
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(
        "Text:\n- [b](b.md#x)\n- [c](../CHANGELOG.md)\n- [d](../d.toml), [e](https://e.org/)\n\n"
        "| `x\\|y` | z |\n\n```\nText:\n- `x\\|y`\n```\n"
    )
    (tmp_path / "docs" / "b.md").write_text("# X\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n")
    (tmp_path / "d.toml").write_text("d = 1\n")
    build_site.stage()
    assert (tmp_path / "staged" / "a.md").read_text() == (
        "Text:\n\n- [b](b.md#x)\n- [c](changelog.md)\n- [d](files/d.toml), [e](https://e.org/)\n\n"
        "| <code>x&#124;y</code> | z |\n\n```\nText:\n- `x\\|y`\n```\n"
    )
    assert (tmp_path / "staged" / "files" / "d.toml").read_text() == "d = 1\n"


def test_a_cell_shows_what_jupyter_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = [
        "import matplotlib.pyplot as plt\nprint('text')\n1 + 1",
        "x = 2",
        "x;",
        "plt.plot([1, 2]);",
    ]
    notebook = {"cells": [{"cell_type": "code", "source": [cell]} for cell in cells]}
    notebooks.execute(notebook)
    kinds = [[output["output_type"] for output in cell["outputs"]] for cell in notebook["cells"]]
    assert kinds == [["stream", "execute_result"], [], [], ["display_data"]]
    assert notebook["cells"][0]["outputs"][1]["data"] == {"text/plain": ["2"]}


def test_banned_phrases_are_found_with_advice() -> None:
    assert prose.found("first\nWe utilize it in order to win.") == [
        (2, "utilize", "use"),
        (2, "in order to", "to"),
    ]
    assert prose.found("We use it to win.") == []
