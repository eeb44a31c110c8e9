"""One graph in every format: the same hashes, the same names, the same labels."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from allneg.errors import DataError
from allneg.graph import SPLITS, read_graph
from allneg.graph.check import graph_hashes
from allneg.graph.files import FORMATS
from allneg.recipe import Data

Triple = tuple[str, str, str]
COLUMNS = ("head", "relation", "tail")
SPACE = "https://countries.example/"
RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"


def as_iris(triples: list[Triple]) -> list[Triple]:
    return [
        (f"{SPACE}{h}", f"{SPACE}{r}", f"{SPACE}{t}".replace(" ", "_"))
        for h, r, t in ((name.replace(" ", "_") for name in triple) for triple in triples)
    ]


def labels_of(triples: list[Triple]) -> dict[str, str]:
    return {iri: iri.removeprefix(SPACE).replace("_", " ") for h, _, t in triples for iri in (h, t)}


def write_tsv(path: Path, triples: list[Triple]) -> None:
    path.write_text("".join("\t".join(triple) + "\n" for triple in triples))


def write_csv(path: Path, triples: list[Triple]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *triples])


def write_jsonl(path: Path, triples: list[Triple]) -> None:
    rows = (dict(zip(COLUMNS, triple, strict=True)) for triple in triples)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_nt(path: Path, triples: list[Triple]) -> None:
    lines = [f"<{h}> <{r}> <{t}> .\n" for h, r, t in triples]
    labels = labels_of(triples).items()
    lines += [f"<{iri}> <{RDFS_LABEL}> {json.dumps(text)} .\n" for iri, text in labels]
    path.write_text("".join(lines))


def write_nq(path: Path, triples: list[Triple]) -> None:
    write_nt(path, triples)
    path.write_text(path.read_text().replace(" .\n", f" <{SPACE}graph> .\n"))


def write_ttl(path: Path, triples: list[Triple]) -> None:
    write_nt(path, triples)
    path.write_text(f"@prefix c: <{SPACE}> .\n" + path.read_text())


def write_rdf(path: Path, triples: list[Triple]) -> None:
    lines = ['<?xml version="1.0"?>', "<rdf:RDF"]
    lines += ['xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"']
    lines += ['xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#"', f'xmlns:c="{SPACE}">']
    for h, r, t in triples:
        fact = f"<c:{r.removeprefix(SPACE)} rdf:resource={quoteattr(t)}/>"
        lines.append(f"<rdf:Description rdf:about={quoteattr(h)}>{fact}</rdf:Description>")
    for iri, text in labels_of(triples).items():
        label = f"<rdfs:label>{text.replace('&', '&amp;')}</rdfs:label>"
        lines.append(f"<rdf:Description rdf:about={quoteattr(iri)}>{label}</rdf:Description>")
    path.write_text("\n".join([*lines, "</rdf:RDF>"]))


def table_of(triples: list[Triple]) -> pa.Table:
    columns = zip(*triples, strict=True)
    return pa.table({name: list(column) for name, column in zip(COLUMNS, columns, strict=True)})


def write_parquet(path: Path, triples: list[Triple]) -> None:
    pq.write_table(table_of(triples), path)


def write_feather(path: Path, triples: list[Triple]) -> None:
    pyarrow.feather.write_feather(table_of(triples), path)


def write_arrow_stream(path: Path, triples: list[Triple]) -> None:
    table = table_of(triples)
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)


WRITERS: dict[str, Callable[[Path, list[Triple]], None]] = {
    "tsv": write_tsv,
    "csv": write_csv,
    "jsonl": write_jsonl,
    "nt": write_nt,
    "nq": write_nq,
    "ttl": write_ttl,
    "trig": write_ttl,
    "rdf": write_rdf,
    "parquet": write_parquet,
    "feather": write_feather,
    "arrow": write_arrow_stream,
}
RDF = ("nt", "nq", "ttl", "trig", "rdf")
OBJECTS: dict[str, Callable[[list[Triple]], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda triples: (list(triple) for triple in triples),
    "array": np.array,
    "array of objects": lambda triples: np.array(triples, dtype=object),
    "columns": lambda triples: dict(zip(COLUMNS, zip(*triples, strict=True), strict=True)),
    "arrow": table_of,
    "pandas": lambda triples: pd.DataFrame(triples, columns=list(COLUMNS)),
    "pandas categories": lambda triples: pd.DataFrame(triples, columns=list(COLUMNS)).astype(
        "category"
    ),
    "polars": lambda triples: pl.DataFrame(triples, schema=list(COLUMNS), orient="row"),
}


@pytest.fixture(scope="module")
def countries() -> dict[str, list[Triple]]:
    graph = read_graph("countries")
    return {split: as_iris(graph.facts(split)) for split in SPLITS}


@pytest.fixture(scope="module")
def hashes(countries: dict[str, list[Triple]]) -> dict[str, str]:
    return graph_hashes(read_graph(countries))


def write_folder(folder: Path, suffix: str, splits: dict[str, list[Triple]]) -> Path:
    folder.mkdir(exist_ok=True)
    for split, triples in splits.items():
        WRITERS[suffix](folder / f"{split}.{suffix}", triples)
    return folder


def test_every_reader_has_a_writer_here() -> None:
    def reader(suffix: str) -> tuple[Any, ...]:
        found = FORMATS[suffix]
        return getattr(found, "func", found), *getattr(found, "args", ())

    written = {reader(f".{suffix}") for suffix in WRITERS}
    assert [suffix for suffix in FORMATS if reader(suffix) not in written] == []


@pytest.mark.parametrize("suffix", WRITERS)
def test_countries_are_the_same_graph_in_every_format(
    tmp_path: Path, countries: dict[str, list[Triple]], hashes: dict[str, str], suffix: str
) -> None:
    graph = read_graph(write_folder(tmp_path / "countries", suffix, countries))
    assert graph_hashes(graph) == hashes
    if suffix in RDF:
        labels = {name: graph.labels[name] for name in graph.vocabulary.entities}
        assert labels == labels_of([t for split in countries.values() for t in split])
    if suffix in ("ttl", "trig"):
        assert graph.labels[f"{SPACE}borders"] == "c:borders"


@pytest.mark.parametrize("kind", OBJECTS)
def test_countries_are_the_same_graph_in_memory(
    countries: dict[str, list[Triple]], hashes: dict[str, str], kind: str
) -> None:
    graph = read_graph({split: OBJECTS[kind](triples) for split, triples in countries.items()})
    assert graph_hashes(graph) == hashes


def test_one_table_is_split_as_one_file_is(
    tmp_path: Path, countries: dict[str, list[Triple]]
) -> None:
    write_tsv(tmp_path / "all.tsv", countries["train"])
    expected = graph_hashes(read_graph(tmp_path / "all.tsv"))
    assert graph_hashes(read_graph(countries["train"])) == expected
    assert graph_hashes(read_graph(OBJECTS["polars"](countries["train"]))) == expected


def test_neo4j_files_are_one_graph_with_labels(
    tmp_path: Path, countries: dict[str, list[Triple]], hashes: dict[str, str]
) -> None:
    every = [triple for split in countries.values() for triple in split]
    with (tmp_path / "nodes.csv").open("w", newline="") as file:
        rows = [(iri, label, "Place") for iri, label in labels_of(every).items()]
        csv.writer(file).writerows([("iri:ID", "name", ":LABEL"), *rows])
    with (tmp_path / "relationships.csv").open("w", newline="") as file:
        rows = [(h, "1990", t, r) for h, r, t in countries["train"]]
        header = (":START_ID", "since:int", ":END_ID", ":TYPE")
        csv.writer(file).writerows([header, *rows])
    graph = read_graph(tmp_path, Data(valid_share=0, test_share=0))
    assert graph.facts("train") == countries["train"]
    assert graph.labels == labels_of(countries["train"])
    write_tsv(tmp_path.parent / "same.tsv", countries["train"])
    same = read_graph(tmp_path.parent / "same.tsv", Data(valid_share=0, test_share=0))
    assert graph_hashes(graph) == graph_hashes(same)


def test_two_id_spaces_of_neo4j_are_refused(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("id:ID(Person),name\n1,Ada\n")
    (tmp_path / "films.csv").write_text("id:ID(Film),name\n1,Alien\n")
    (tmp_path / "likes.csv").write_text(":START_ID(Person),:END_ID(Film),:TYPE\n1,1,LIKES\n")
    with pytest.raises(DataError, match="several ID spaces"):
        read_graph(tmp_path)


@pytest.mark.parametrize("form", ["zip", "gztar"])
def test_tables_are_read_from_archives(
    tmp_path: Path, countries: dict[str, list[Triple]], hashes: dict[str, str], form: str
) -> None:
    folder = write_folder(tmp_path / "countries", "parquet", countries)
    path = shutil.make_archive(str(folder), form, folder)
    assert graph_hashes(read_graph(path)) == hashes


AWKWARD = [
    "NA", "null", "nan", "None", "007", "1e5", "1.0", "true", '"x"', '"', "'", " x", "x ", "é",
    "e\u0301", "#", "\\N", "a,b", "a;b", "<x>", "\u2028", "\x85", "\x1c", "\x0b", "\ufeffa", "😀",
    "http://x/y", "_:b0", "%41", "&amp;", "-", "0",
]  # fmt: skip


@pytest.mark.battery(9)
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet", "feather", "arrow", *OBJECTS])
def test_awkward_names_are_kept_exactly_by_every_reader(tmp_path: Path, kind: str) -> None:
    triples = [(name, name, name) for name in AWKWARD]
    how = Data(valid_share=0, test_share=0)
    if kind in WRITERS:
        WRITERS[kind](tmp_path / f"all.{kind}", triples)
        graph = read_graph(tmp_path / f"all.{kind}", how)
    else:
        graph = read_graph(OBJECTS[kind](triples), how)
    assert graph.facts("train") == triples


@pytest.mark.battery(9)
@pytest.mark.parametrize("suffix", RDF)
def test_awkward_iris_and_literals_are_kept_exactly_by_every_reader_of_rdf(
    tmp_path: Path, suffix: str
) -> None:
    texts = ["NA", "007", "\\u00e9", "é", "e\u0301", "😀", "a b", "\\\\N", '\\"x\\"', "\\t", "\\n"]
    lines = [f'<{SPACE}é> <{SPACE}r> "{text}"@en .\n' for text in texts]
    lines.append(f'<{SPACE}\\u00e9%41> <{SPACE}r> "5"^^<http://www.w3.org/2001/XMLSchema#int> .\n')
    text = "".join(lines)
    if suffix == "rdf":
        import pyoxigraph as ox

        data = ox.parse(text, format=ox.RdfFormat.N_TRIPLES)
        written = ox.serialize(data, format=ox.RdfFormat.RDF_XML)
        (tmp_path / "all.rdf").write_bytes(written or b"")
    else:
        (tmp_path / f"all.{suffix}").write_text(text)
    how = Data(valid_share=0, test_share=0, keep_literals=True)
    tails = [tail for _, _, tail in read_graph(tmp_path / f"all.{suffix}", how).facts("train")]
    expected = [f'"{text}"@en' for text in texts if text != "\\u00e9"]
    assert tails == [*expected, '"5"^^<http://www.w3.org/2001/XMLSchema#int>']
    entities = read_graph(tmp_path / f"all.{suffix}", how).vocabulary.entities
    assert {f"{SPACE}é", f"{SPACE}é%41"} <= set(entities)


ROWS: dict[str, tuple[Any, str]] = {
    "missing": ([("a", "r", "b"), (None, "r", "b")], "an empty first field"),
    "empty": ([("a", "r", "b"), ("a", "", "b")], "an empty second field"),
    "tab": ([("a", "r", "b"), ("a", "r", "b\tc")], "a tab inside a name"),
    "line feed": ([("a", "r", "b"), ("a", "r", "b\nc")], "a line feed inside a name"),
    "NUL": ([("a", "r", "b"), ("a\0", "r", "b")], "a NUL character inside a name"),
}


@pytest.mark.battery(71)
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "list", "pandas", "polars"])
@pytest.mark.parametrize("fault", ROWS)
def test_bad_rows_are_refused_or_counted_alike(tmp_path: Path, kind: str, fault: str) -> None:
    rows, reason = ROWS[fault]
    source = OBJECTS[kind](rows) if kind in OBJECTS else tmp_path / f"all.{kind}"
    if kind in WRITERS:
        WRITERS[kind](source, rows)
    with pytest.raises(DataError, match=rf":2: expected head, relation, tail; found {reason}"):
        read_graph(source)
    graph = read_graph(source, Data(skip_bad_lines=1))
    assert graph.facts("train") == [("a", "r", "b")]
    assert any(f"(data.skip_bad_lines): 1 (found {reason}: 1)" in note for note in graph.notes)


@pytest.mark.battery(73)
def test_bytes_that_are_not_utf8_are_bad_rows_of_parquet(tmp_path: Path) -> None:
    columns = {name: pa.array([b"a", b"K\xf6ln"], pa.binary()) for name in COLUMNS}
    pq.write_table(pa.table(columns), tmp_path / "all.parquet")
    with pytest.raises(DataError, match=r"all\.parquet:2: .*found bytes"):
        read_graph(tmp_path / "all.parquet")
    graph = read_graph(tmp_path / "all.parquet", Data(skip_bad_lines=1))
    assert graph.facts("train") == [("a", "a", "a")]


def test_whole_numbers_are_names_and_other_numbers_are_refused() -> None:
    ids = np.array([[0, 0, 1], [1, 0, 20]])
    assert read_graph(ids).facts("train") == [("0", "0", "1"), ("1", "0", "20")]
    assert read_graph(pd.DataFrame(ids)).facts("train") == [("0", "0", "1"), ("1", "0", "20")]
    with pytest.raises(DataError, match="convert it to text first"):
        read_graph(pd.DataFrame(ids / 2))
    with pytest.raises(DataError, match="found float as first field"):
        read_graph(ids / 2)
