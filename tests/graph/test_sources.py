"""Columns, headers, RDF, parts, ids of others and URLs: what is taken, dropped and reported."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from allneg import AllnegError, Run, train
from allneg.errors import DataError, RecipeError, UsageError
from allneg.graph import Graph, read_graph
from allneg.graph.check import graph_hashes
from allneg.recipe import Data
from allneg.runs.copy import export

Read = Callable[..., Graph]
WHOLE = Data(valid_share=0, test_share=0)
Triples = list[tuple[str, str, str]]


def write_table(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def whole(source: Any, **settings: Any) -> Graph:
    return read_graph(source, Data(valid_share=0, test_share=0, **settings))


# Columns and headers.

ROWS = b"".join(b"e%d\tlinks\te%d\n" % (i, i + 1) for i in range(12))


def test_an_unusual_header_is_pointed_out_and_not_learned(read: Read) -> None:
    graph = read(b"from_node\tkind\tto_node\n" + ROWS)
    assert graph.facts("train") == read(ROWS).facts("train")
    (note,) = [note for note in graph.notes if "data.header=false" in note]
    assert r"looks like names of columns ('from_node\tkind\tto_node')" in note
    assert len(read(b"from_node\tkind\tto_node\n" + ROWS, header=False).train) == 13


def test_a_first_triple_with_a_name_that_occurs_again_is_no_header(read: Read) -> None:
    assert len(read(b"new\tother\te3\n" + ROWS).train) == 13
    assert len(read(b"new\tlinks\tother\n" + ROWS).train) == 13


def test_a_header_can_be_announced(read: Read) -> None:
    graph = read(b"x\ty\tz\na\tr\tb\n", header=True)
    assert graph.facts("train") == [("a", "r", "b")]
    assert any("read as head, relation and tail" in note for note in graph.notes)


def test_columns_are_found_by_their_usual_names_among_others(read: Read) -> None:
    text = b"id,object,note,subject,predicate\n1,b,,a,r\n2,c,x,b,r\n"
    assert read(text, ending="csv").facts("train") == [("a", "r", "b"), ("b", "r", "c")]


def test_columns_can_be_named(tmp_path: Path, read: Read) -> None:
    text = b"when,who,what,whom\n1,a,r,b\n2,b,r,c\n"
    expected = [("a", "r", "b"), ("b", "r", "c")]
    assert read(text, ending="csv", columns="who,what,whom").facts("train") == expected
    columns = {"when": [1, 2], "who": ["a", "b"], "what": ["r", "r"], "whom": ["b", "c"]}
    path = write_table(tmp_path / "all.parquet", **columns)
    assert whole(path, columns="who,what,whom").facts("train") == expected
    with pytest.raises(DataError, match=r"which of the columns 'when', 'who', 'what', 'whom'"):
        whole(path)
    with pytest.raises(DataError, match=r"'who' is twice in the columns 'who', 'who', 'what'$"):
        read(b"who,who,what\na,r,b\n", ending="csv", columns="who,what,whom")
    with pytest.raises(DataError, match=r"'wo' is not among the columns .*close names: 'who'"):
        whole(path, columns="wo,what,whom")
    with pytest.raises(DataError, match=r"rows have no columns who,what,whom; give their order"):
        whole(expected, columns="who,what,whom")


def test_names_of_relations_to_keep_that_no_relation_has_are_noted(read: Read) -> None:
    text = b"a\thttp://example.org/knows\tb\nb\tlikes\tc\nc\tsees\ta\n"
    graph = read(text, keep_relations="knows,likes,Sees, sees")
    note = "toy: names in data.keep_relations that no relation has: 'Sees', ' sees'"
    assert note in graph.notes
    graph = read(text, keep_relations="knows,likes")
    assert not any("no relation has" in line for line in graph.notes)


def test_a_table_without_columns_is_an_error() -> None:
    pandas = pytest.importorskip("pandas")
    for empty, name in ((pandas.DataFrame(), "DataFrame"), ({}, "dict")):
        with pytest.raises(DataError, match=f"^{name}: it has no columns; give head, relation and"):
            read_graph(empty)


def test_a_relation_to_keep_whose_name_has_a_comma_is_quoted(read: Read) -> None:
    text = b"a\tin, or at\tb\nb\tlikes\tc\nc\tsees\ta\n"
    graph = read(text, keep_relations='"in, or at",likes,"x, y"')
    assert graph.vocabulary.relations == ("in, or at", "likes")
    assert "toy: names in data.keep_relations that no relation has: 'x, y'" in graph.notes


def test_a_column_name_with_a_comma_is_quoted(read: Read) -> None:
    text = b'who,what,"""whom"", or what"\na,r,b\n'
    columns = 'who,what,"""whom"", or what"'
    assert read(text, ending="csv", columns=columns).facts() == [("a", "r", "b")]
    swapped = text + b"".join(b"%d,%d,%d\n" % (i, i % 2, i * 7 % 12) for i in range(12))
    advice = f"most likely `--set 'data.columns={columns}'`"
    with pytest.raises(DataError, match=re.escape(advice)):
        read(swapped, ending="csv", columns='who,"""whom"", or what",what')
    with pytest.raises(RecipeError, match="a name with a comma needs quotes"):
        read(text, ending="csv", columns='who,what,"whom", or what')


def test_three_columns_of_other_names_are_read_in_order_and_noted(tmp_path: Path) -> None:
    graph = whole(write_table(tmp_path / "all.parquet", x=["a"], y=["r"], z=["b"]))
    assert graph.facts("train") == [("a", "r", "b")]
    assert any(
        "columns 'x', 'y', 'z' are read as head, relation and tail" in n for n in graph.notes
    )


# Weights.


@pytest.mark.parametrize("kind", ["tsv", "letters", "parquet", "jsonl", "list", "columns"])
def test_weights_are_read_and_follow_their_triples(tmp_path: Path, kind: str) -> None:
    rows = [(f"e{i % 8}", "r", f"e{i % 5}", 1 + i % 3) for i in range(40)]
    rows.insert(5, rows[2])  # a duplicate
    columns = dict(zip(("head", "relation", "tail", "score"), zip(*rows, strict=True), strict=True))
    how: dict[str, Any] = {"weight": "score"}
    source: Any = tmp_path / f"all.{kind}"
    if kind in ("tsv", "letters"):
        text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
        if kind == "letters":
            source, how = tmp_path / "all.tsv", {"columns": "hrtw"}
        else:
            text = "\t".join(columns) + "\n" + text
        source.write_text(text)
    elif kind == "parquet":
        write_table(source, **columns)
    elif kind == "jsonl":
        source.write_text(
            "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        )
    else:
        source = columns if kind == "columns" else rows
        how = {"columns": "hrtw"} if kind == "list" else how
    graph = read_graph(source, Data(**how))
    weights = {(h, r, t): weight for h, r, t, weight in rows}
    assert graph.weights is not None
    assert len(graph.train) < 40 == sum(map(len, (graph.train, graph.valid, graph.test)))
    assert graph.weights.tolist() == [weights[triple] for triple in graph.facts("train")]


@pytest.mark.parametrize("wrong", ["0", "-1", "x", "nan", "inf", ""])
def test_a_weight_that_is_not_above_zero_is_a_bad_line(read: Read, wrong: str) -> None:
    text = f"head\trelation\ttail\tweight\na\tr\tb\t2\nb\tr\tc\t{wrong}\n".encode()
    with pytest.raises(DataError, match=rf"train\.txt:3: .*found the weight '{wrong}'"):
        read(text)
    assert len(read(text, skip_bad_lines=1).train) == 1


# RDF.

N_TRIPLES = """
# a comment
<http://x/a> <http://x/r> <http://x/b> . # another
<http://x/b>\t<http://x/s>\t<http://x/c>  .
_:node <http://x/r> <http://x/b> .
<http://x/a> <http://x/r> "a text"@en .
<http://x/a> <http://x/r> "5"^^<http://www.w3.org/2001/XMLSchema#int> .
<http://x/a> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://x/Thing> .
<http://x/a> <http://www.w3.org/2000/01/rdf-schema#label> "Ding"@de .
<http://x/a> <http://www.w3.org/2000/01/rdf-schema#label> "thing \\"A\\""@en .
<http://x/b> <http://www.w3.org/2000/01/rdf-schema#label> "B"@fr .
<http://x/unused> <http://www.w3.org/2000/01/rdf-schema#label> "not in the graph" .
"""
DROPPED = {
    "literals (data.keep_literals)": 2,
    "type declarations (data.keep_types)": 1,
    "blank nodes (data.keep_blank_nodes)": 1,
}


@pytest.mark.parametrize("ending", ["nt", "nt.gz", "ttl"])
def test_what_rdf_loses_is_counted_by_reason(tmp_path: Path, ending: str) -> None:
    path, data = tmp_path / f"all.{ending}", N_TRIPLES.encode()
    path.write_bytes(gzip.compress(data) if ending == "nt.gz" else data)
    graph = whole(path)
    assert graph.facts("train") == [
        ("http://x/a", "http://x/r", "http://x/b"),
        ("http://x/b", "http://x/s", "http://x/c"),
    ]
    for reason, count in DROPPED.items():
        assert f"{path}: dropped {reason}: {count}" in graph.notes
    assert graph.labels == {"http://x/a": 'thing "A"', "http://x/b": "B"}
    assert whole(path, language="de").labels["http://x/a"] == "Ding"


@pytest.mark.parametrize(
    "setting, fact",
    [
        ("keep_literals", ("http://x/a", "http://x/r", '"a text"@en')),
        (
            "keep_types",
            ("http://x/a", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "http://x/Thing"),
        ),
        ("keep_blank_nodes", ("_:", "http://x/r", "http://x/b")),
    ],
)
@pytest.mark.parametrize("ending", ["nt", "ttl"])
def test_what_rdf_loses_can_be_kept(tmp_path: Path, ending: str, setting: str, fact: Any) -> None:
    (tmp_path / f"all.{ending}").write_text(N_TRIPLES)
    found = whole(tmp_path / f"all.{ending}", **{setting: True}).facts("train")
    assert any(one[0].startswith(fact[0]) and one[1:] == fact[1:] for one in found)


def test_a_bad_line_of_n_triples_is_located_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "all.nt"
    path.write_bytes(
        b"<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> <http://x/r> b .\n\xff\n"
    )
    with pytest.raises(DataError, match=r"all\.nt:2: not a line of N-Triples"):
        whole(path)
    graph = whole(path, skip_bad_lines=2)
    assert len(graph.train) == 1
    assert any("2 (not a line of N-Triples: 1, not utf-8: 1)" in note for note in graph.notes)


@pytest.mark.parametrize("escape", [r"\uD800", r"\U00110000", r"\u000A", r"\u0000", r"\u0009"])
def test_escapes_of_no_character_or_of_none_in_a_name_are_bad_lines(
    tmp_path: Path, escape: str
) -> None:
    path = tmp_path / "all.nt"
    path.write_text(f"<http://x/a> <http://x/r> <http://x/{escape}> .\n<a:a> <a:r> <a:b> .\n")
    with pytest.raises(DataError, match=r"all\.nt:1: not a line of N-Triples"):
        whole(path)
    assert len(whole(path, skip_bad_lines=1).train) == 1


def test_damaged_turtle_is_located(tmp_path: Path) -> None:
    (tmp_path / "all.ttl").write_text("<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> oops")
    with pytest.raises(DataError, match=r"all\.ttl:2: not TURTLE"):
        whole(tmp_path / "all.ttl")


def test_a_dump_of_wikidata_is_filtered_and_its_prefixes_are_shortened(
    tmp_path: Path, allneg: Callable[..., Any]
) -> None:
    wd, wdt = "http://www.wikidata.org/entity/", "http://www.wikidata.org/prop/direct/"
    facts = [("Q1", "P31", "Q2"), ("Q2", "P279", "Q3"), ("Q1", "P50", "Q4"), ("Q2", "P310", "Q1")]
    lines = [f"<{wd}{h}> <{wdt}{r}> <{wd}{t}> .\n" for h, r, t in facts]
    (tmp_path / "truthy.nt.gz").write_bytes(gzip.compress("".join(lines).encode()))
    graph = whole(tmp_path / "truthy.nt.gz", keep_relations="P31,P279")
    assert graph.vocabulary.relations == (f"{wdt}P31", f"{wdt}P279")
    assert graph.labels[f"{wd}Q1"] == "wd:Q1"
    assert any("dropped other relations than data.keep_relations: 2" in n for n in graph.notes)
    done = allneg("data", "check", tmp_path / "truthy.nt.gz", "--keep", "P31")
    assert "wdt:P31" in done.out
    assert "P279" not in done.out + done.err


def test_relations_of_any_format_are_filtered(tmp_path: Path) -> None:
    columns = {"head": ["a", "b"], "relation": ["r", "s"], "tail": ["b", "c"]}
    path = write_table(tmp_path / "all.parquet", **columns)
    for source in (path, columns, list(zip(*columns.values(), strict=True))):
        graph = whole(source, keep_relations="s")
        assert graph.facts("train") == [("b", "s", "c")]
        assert any("than data.keep_relations: 1" in note for note in graph.notes)
    with pytest.raises(DataError, match=r"has no triples of data.keep_relations; give at least"):
        whole(path, keep_relations="other")


# Folders of parts, and ids computed elsewhere.


def part(*rows: tuple[str, str, str]) -> dict[str, Any]:
    return dict(zip(("subject", "predicate", "object"), zip(*rows, strict=True), strict=True))


def test_a_folder_of_parts_is_one_graph_in_natural_order(tmp_path: Path) -> None:
    folder = tmp_path / "facts.parquet"
    for number in (0, 1, 2, 10):
        write_table(folder / f"part.{number}.parquet", **part((f"a{number}", "r", "b")))
    (folder / "_SUCCESS").touch()
    graph = whole(folder)
    assert [head for head, _, _ in graph.facts("train")] == ["a0", "a1", "a2", "a10"]


def test_a_split_may_be_a_folder_of_parts(tmp_path: Path) -> None:
    for split, n_parts in (("train", 2), ("valid", 1), ("test", 1)):
        for number in range(n_parts):
            path = tmp_path / split / f"part-{number}.snappy.parquet"
            write_table(path, **part((f"{split}{number}", "r", "b")))
    graph = read_graph(tmp_path)
    assert [len(graph.split(split)) for split in ("train", "valid", "test")] == [2, 1, 1]
    (tmp_path / "train" / "part-0.snappy.parquet").unlink()
    (tmp_path / "train" / "part-1.snappy.parquet").unlink()
    with pytest.raises(DataError, match="train: no parts in it"):
        read_graph(tmp_path)


def ids_folder(folder: Path, **changes: Any) -> Path:
    tables: dict[str, dict[str, Any]] = {
        "entities": {"id": [2, 0, 1], "name": ["c", "a", "b"]},
        "relations": {"id": [0, 1], "name": ["unused", "r"]},
        "train": {"head": [2, 1], "relation": [1, 1], "tail": [1, 0]},
        "test": {"head": [0], "relation": [1], "tail": [2]},
    }
    for name, columns in {**tables, **changes}.items():
        write_table(folder / f"{name}.parquet", **columns)
    return folder


def test_ids_computed_elsewhere_are_taken_as_they_are(tmp_path: Path) -> None:
    graph = read_graph(ids_folder(tmp_path))
    assert graph.vocabulary.entities == ("a", "b", "c")
    assert graph.vocabulary.relations == ("unused", "r")
    assert graph.train.tolist() == [[2, 1, 1], [1, 1, 0]]
    given = {
        "entities": ["a", "b", "c"],
        "relations": ["unused", "r"],
        "train": np.array([[2, 1, 1], [1, 1, 0]]),
        "test": np.array([[0, 1, 2]]),
    }
    assert graph_hashes(read_graph(given)) == graph_hashes(graph)
    assert any("1 relation are not in train" in note for note in graph.notes)


def test_a_folder_of_parts_with_ids_is_split_and_keeps_its_ids(tmp_path: Path) -> None:
    n = 200
    ids = np.random.default_rng(0).permutation(n)
    names = {"id": list(range(n)), "name": [f"e{i}" for i in range(n)]}
    rows = {"head": ids, "relation": [0] * n, "tail": np.roll(ids, 1)}
    write_table(tmp_path / "entities.parquet", **names)
    write_table(tmp_path / "relations.parquet", id=[0], name=["next"])
    write_table(tmp_path / "part-0.parquet", **rows)
    graph = read_graph(tmp_path)
    assert list(graph.vocabulary.entities) == names["name"]
    assert sum(len(graph.split(split)) for split in ("train", "valid", "test")) == n
    written = set(zip(rows["head"].tolist(), rows["tail"].tolist(), strict=True))
    assert {(h, t) for h, _, t in graph.train.tolist()} <= written


@pytest.mark.parametrize(
    "change, message",
    [
        ({"train": {"head": [3], "relation": [1], "tail": [0]}}, "has an id without a name"),
        (
            {"train": {"head": ["a"], "relation": ["r"], "tail": ["b"]}},
            "expected ids, found string",
        ),
        ({"entities": {"id": [0, 0, 1], "name": ["a", "b", "c"]}}, "every number from 0 to n - 1"),
        ({"entities": {"id": [0, 1, 2], "name": ["a", "b", "a"]}}, "a name has two ids"),
        ({"entities": {"id": [0, 1, 2], "name": ["a", "b", "c\n"]}}, "a line feed inside a name"),
        ({"relations": {"key": [0], "name": ["r"]}}, "expected the columns id and name"),
    ],
)
def test_wrong_ids_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_graph(ids_folder(tmp_path, **change))


# URLs.


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ALLNEG_OFFLINE", raising=False)
    return tmp_path / "home"


def test_a_url_is_fetched_once_and_checked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/facts.tsv", b"a\tr\tb\nb\tr\tc\n")
    graph = read_graph("memory://facts.tsv", WHOLE)
    assert graph.facts("train") == [("a", "r", "b"), ("b", "r", "c")]
    assert graph.name == "facts.tsv"
    memory.rm("/facts.tsv")
    monkeypatch.setenv("ALLNEG_OFFLINE", "1")
    assert graph_hashes(read_graph("memory://facts.tsv", WHOLE)) == graph_hashes(graph)
    (copy,) = home.rglob("facts.tsv")
    copy.write_bytes(b"x\tr\tb\n")  # damaged
    with pytest.raises(DataError, match="ALLNEG_OFFLINE forbids downloads"):
        read_graph("memory://facts.tsv")
    monkeypatch.delenv("ALLNEG_OFFLINE")
    with pytest.raises(DataError, match=r"memory://facts\.tsv: no such file or folder"):
        read_graph("memory://facts.tsv")


@pytest.mark.usefixtures("home")
def test_a_url_may_be_a_folder_of_parts(tmp_path: Path) -> None:
    for number in range(2):
        path = tmp_path / "facts" / "train" / f"part-{number}.parquet"
        write_table(path, **part((f"a{number}", "r", "b")))
    graph = read_graph(f"file://{tmp_path}/facts")
    assert [head for head, _, _ in graph.facts("train")] == ["a0", "a1"]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "url, message",
    [
        ("nonsense://x/y", "cannot be opened"),
        ("http://127.0.0.1:9/facts.tsv", r"127\.0\.0\.1:9/facts\.tsv: "),
        ("file:///no/such/file.tsv", "no such file or folder"),
    ],
)
def test_a_url_that_cannot_be_opened_is_one_error(
    monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    monkeypatch.setattr("allneg.graph.datasets._RETRIES", 0)
    with pytest.raises(DataError, match=message):
        read_graph(url)


# What is missing, and runs.


@pytest.mark.parametrize(
    "name, package, extra",
    [
        ("all.parquet", "pyarrow", "tables"),
        ("all.arrow", "pyarrow", "tables"),
        ("all.ttl", "pyoxigraph", "rdf"),
    ],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    (tmp_path / name).write_bytes(b"ARROW1")
    for module in [package, *(m for m in sys.modules if m.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"needs {package}: pip install 'allneg\[{extra}\]'"):
        read_graph(tmp_path / name)


@pytest.mark.parametrize("name", ["all.parquet", "all.feather", "all.arrow"])
def test_a_damaged_table_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"ARROW1 and nothing else")
    with pytest.raises(DataError, match="damaged or of another format"):
        read_graph(tmp_path / name)


def test_a_dict_with_an_unknown_split_is_refused() -> None:
    with pytest.raises(UsageError, match="called train, valid, test, not 'training'"):
        read_graph({"training": [("a", "r", "b")]})
    with pytest.raises(UsageError, match="'dev' is not one of train, valid, test"):
        read_graph({"train": [("a", "r", "b")], "dev": []})
    with pytest.raises(DataError, match=r"expected rows of 3 values, found \('a', 'r'\)"):
        read_graph([("a", "r")])


@pytest.mark.parametrize(
    "name, content, advice",
    [
        ("facts.csv", b"who,what,whom,when\na,r,b,1\n", "`--set data.columns=HEAD,RELATION,TAIL`"),
        ("facts.json", b'[{"head": "a", "relation": "r", "tail": "b"}]', "an object per line"),
        ("facts.txt", b'["a", "r", "b", 1]', "an object per line"),
        ("facts.xlsx", b"PK\x03\x04", "save a spreadsheet as .csv"),
        ("facts.nt", b"hello\n", "data.skip_bad_lines=N"),
    ],
)
def test_a_wrong_file_is_refused_with_advice(
    tmp_path: Path, name: str, content: bytes, advice: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as refused:
        read_graph(tmp_path / name)
    assert advice in str(refused.value)


def test_a_single_column_is_no_table() -> None:
    with pytest.raises(DataError, match="ChunkedArray: not a table with columns of heads"):
        read_graph(pa.chunked_array([["a", "b"]]))


def test_settings_of_reading_are_given_as_to_train() -> None:
    table = pa.table({"when": ["1"], "whom": ["b"], "what": ["r"], "who": ["a"]})
    graph = read_graph(table, {"data.columns": "who,what,whom"})
    assert graph.vocabulary.entities == ("a", "b")
    with pytest.raises(RecipeError, match=r"data\.colums is not a setting"):
        read_graph(table, ["data.colums=who,what,whom"])


SETTINGS = ["model.dim=4", "training.epochs=2", "training.batch_size=64", "hardware.device=cpu"]


def test_a_run_on_triples_in_memory_can_be_resumed_and_evaluated(
    tmp_path: Path, allneg: Callable[..., Any]
) -> None:
    rows = [(f"e{i}", "r" if i % 3 else "s", f"e{i * 7 % 40}", 1.0 + i % 2) for i in range(40)]
    frame = pa.table(
        dict(zip(("head", "relation", "tail", "weight"), zip(*rows, strict=True), strict=True))
    )
    run = train(frame, settings=SETTINGS, out=tmp_path / "run")
    assert run.recipe.data.name == "Table"
    opened = Run.open(run.folder)
    assert opened.graph.weights is not None
    assert set(opened.graph.weights.tolist()) == {1.0, 2.0}
    done = allneg("resume", run.folder, "--set", "training.epochs=3", "-q")
    assert done.code == 0, done.err
    assert len(Run.open(run.folder).metrics()) == 3
    done = allneg("evaluate", run.folder, "--split", "train")
    assert done.code == 0, done.err


def test_labels_are_kept_in_a_run_and_shown(tmp_path: Path, allneg: Callable[..., Any]) -> None:
    facts = "".join(f"<http://x/{i}> <http://x/r> <http://x/{(i + 1) % 9}> .\n" for i in range(9))
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    facts += "".join(f'<http://x/{i}> {label} "node {i}" .\n' for i in range(9))
    (tmp_path / "all.nt").write_text(facts)
    settings = (word for setting in SETTINGS for word in ("--set", setting))
    done = allneg("train", tmp_path / "all.nt", "--out", tmp_path / "run", "-q", *settings)
    assert done.code == 0, done.err
    assert Run.open(tmp_path / "run").graph.labels["http://x/3"] == "node 3"
    query = ("--head", "http://x/3", "--relation", "http://x/r", "--device", "cpu")
    assert "node 4 (http://x/4)" in allneg("predict", tmp_path / "run", *query).out
    export(Run.open(tmp_path / "run"), tmp_path / "copy")
    assert Run.open(tmp_path / "copy").graph.labels["http://x/8"] == "node 8"
    (tmp_path / "run" / "labels.tsv").write_text("http://x/3\tother\n")
    with pytest.raises(AllnegError, match=r"labels\.tsv: .* damaged"):
        _ = Run.open(tmp_path / "run").graph


def test_the_pages_queries_for_duckdb_write_folders_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "preprocess.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("dump.csv").write_text("s,p,o\nb,r,a\nb,r,007\na,s,007\nb,r,a\na,comment,x\n")
    Path("numbered").mkdir()
    queries = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(queries) == 2
    with duckdb.connect() as connection:
        for query in queries:
            connection.execute(query)
    expected = [("a", "s", "007"), ("b", "r", "007"), ("b", "r", "a")]
    assert sorted(whole("facts").facts("train")) == expected
    numbered = whole("numbered")
    assert sorted(numbered.facts("train")) == expected
    assert list(numbered.vocabulary.entities) == ["007", "a", "b"]
