"""Neo4j's CSV: files of relationships are triples, and names of nodes are labels."""

import csv
from collections.abc import Iterable
from typing import TYPE_CHECKING

from allneg.errors import DataError
from allneg.graph.blocks import plain_name

if TYPE_CHECKING:
    from allneg.graph.files import Files, TripleFile

_LABELS = ("name", "label", "title", "rdfs:label", "rdfs__label")
_LONGEST_HEADER = 1 << 16  # bytes


def neo4j_files(files: Iterable["TripleFile"]) -> "Files":
    """The relationships ("") and the nodes among CSV files; empty without relationships."""
    found: Files = {"": [], "nodes": []}
    for file in files:
        if file.suffix == ".csv":
            names = set(map(plain_name, _header(file)))
            if {":start_id", ":end_id"} <= names:
                found[""].append(file)
            elif ":id" in names:
                found["nodes"].append(file)
    return found if found[""] else {}


def read_labels(files: Iterable["TripleFile"]) -> dict[str, str]:
    """The names of nodes by their ids."""
    labels: dict[str, str] = {}
    spaces = set()
    for file in files:
        header = _header(file)
        plain = [plain_name(name) for name in header]
        key = plain.index(":id")
        spaces.add(header[key].partition("(")[2])
        named = [i for i, name in enumerate(plain) if name.partition(":")[0] in _LABELS]
        # The column of ids may be called name:ID.
        named = [i for i in named if i != key]
        with file.stream() as stream:
            lines = (line.decode(errors="replace") for line in stream)
            for row in csv.reader(lines) if named else ():
                if len(row) == len(header) and row[named[0]] and row != header:
                    labels.setdefault(row[key], " ".join(row[named[0]].split()))
    if len(spaces) > 1:
        raise DataError(
            f"{file.where}: the nodes have several ID spaces, so an id may be two nodes; "
            "export them with ids that are unique in the whole graph"
        )
    return labels


def _header(file: "TripleFile") -> list[str]:
    with file.stream() as stream:
        line = stream.readline(_LONGEST_HEADER).decode(errors="replace")
    return next(csv.reader([line.removeprefix("\ufeff").rstrip("\r\n")]), [])
