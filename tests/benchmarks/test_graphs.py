"""The graphs of benchmarks/graphs.py: facts of small packages, and files that do not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from allneg.graph import SPLITS

ROOT = Path(__file__).parents[2]
INDEX = """\
Package: tool
Source: tools (1.2)
Section: utils
Maintainer: Ada Lovelace <ada@example.org>
Depends: lib (>= 2), python3:any | other, missing
Tag: role::program, use::editing,
 x11::application

Package: lib
Section: libs
Maintainer: Ada Lovelace <ada@example.org>

Package: python3
Section: python
Maintainer: Ada Lovelace <ada@example.org>
Depends: lib
"""
ANTONYMS = """\
  1 the licence
00001 00 a 02 able 0 apt 1 002 ! 00002 a 0101 + 00003 n 0101 | having power
00002 00 s 01 unable 0 001 ! 00001 a 0101 | not able
"""


@pytest.fixture
def graphs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import graphs

    return graphs


def test_programs_have_links_and_tags(graphs, tmp_path):
    (tmp_path / "Packages").write_text(INDEX)
    assert set(graphs.graph_sources.debian(tmp_path)) == {
        ("tool", "depends", "lib"),
        ("tool", "depends", "python3"),
        ("tool", "section", "section:utils"),
        ("tool", "source", "source:tools"),
        ("tool", "maintainer", "maintainer:Ada Lovelace"),
        ("tool", "tag:role", "role::program"),
        ("tool", "tag:use", "use::editing"),
        ("tool", "tag:x11", "x11::application"),
    }


def test_the_core_has_the_facts_between_frequent_entities(graphs, tmp_path):
    (tmp_path / "Packages").write_text(INDEX.replace("Section: libs", "Section: utils"))
    # `tool` has 8 facts, `lib` 4 and `maintainer:Ada Lovelace` 2; so has section:utils, which is
    # not among the first 3 in alphabetical order of facts.
    found = set(graphs.graph_sources.debian_core(tmp_path, count=3))
    assert found == {
        ("tool", "depends", "lib"),
        ("tool", "maintainer", "maintainer:Ada Lovelace"),
        ("lib", "maintainer", "maintainer:Ada Lovelace"),
    }


def test_synsets_have_pointers(graphs, tmp_path):
    folder = tmp_path / "usr/share/wordnet"
    folder.mkdir(parents=True)
    (folder / "data.adj").write_text(ANTONYMS)
    (folder / "data.verb").write_text("")
    assert set(graphs.graph_sources.wordnet_words(tmp_path)) == {
        ("a00001", "antonym", "a00002"),
        ("a00002", "antonym", "a00001"),
    }


def test_the_same_facts_in_another_order_give_the_same_files(graphs, tmp_path):
    facts = [(f"e{i % 40}", f"r{i % 3}", f"e{i * i % 41}") for i in range(600)]

    class Source(graphs.Cut):
        def fetch(self, folder):
            return {"source": self.name}

        def facts(self, folder):
            return iter(facts)

    made = []
    for name in ("one", "two"):
        made.append(graphs.make(Source("toy", set, "A toy."), tmp_path / name / "toy"))
        graphs.pack(tmp_path / name)
        facts.reverse()
    assert made[0] == made[1]
    assert made[0]["source"] == "toy"
    assert sum(made[0][split] for split in SPLITS) == len(set(facts))
    archives = [tmp_path / name / "all.tar.xz" for name in ("one", "two")]
    assert archives[0].read_bytes() == archives[1].read_bytes()
