"""Exports are read back by the programs that they are for."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from safetensors.numpy import load_file
from usearch.index import MetricKind, search

from allneg.errors import UsageError
from allneg.exports.export import export
from allneg.exports.formats import FORMATS
from allneg.graph import Graph, read_graph
from allneg.graph.graph import SPLITS, Vocabulary
from allneg.models import MODELS
from allneg.predict.predictor import Predictor, load
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training import fit

# Names that separators, quotes and number formats could damage.
NAMES = (
    "plain", "New York", "New_York", 'say "hi"', "a,b", "tab\there", "back\\slash", " outer ",
    "007", "1e5", "NA", "null", "é", "e\u0301", "東京", "two\u2028lines", "no\xa0break", "=1+1",
    "{}", "return\r",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, quick: Callable[..., Recipe]) -> Run:
    """A ComplEx with reciprocal relations over awkward names."""
    n = len(NAMES)
    triples = np.array([[i, i % 2, (i * 7 + 1) % n] for i in range(n)])
    graph = Graph(
        "odd", Vocabulary(NAMES, ("likes, a lot", "in")), triples, triples[:2], triples[2:4]
    )
    run = Run.create(tmp_path_factory.mktemp("odd") / "run", quick(), graph)
    fit(run)
    return run


@pytest.fixture(scope="module")
def predictor(run: Run) -> Predictor:
    return load(run.folder, device="cpu")


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "safetensors"])
def test_bfloat16_weights_become_float32(tmp_path: Path, format: str) -> None:
    written = export("countries-demo", tmp_path / "vectors", format)
    if format == "npy":
        rows = load("countries-demo", device="cpu").tables.entities.detach().numpy()
        assert np.array_equal(np.load(written[0]), rows)


def about(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(path.read_text())
    return found


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


def test_npy_has_the_vectors_and_names_in_one_order(
    run: Run, predictor: Predictor, tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "vectors.npy"
    written = export(run.folder, str(out))
    assert sorted(written) == sorted(out.parent.iterdir())
    assert written[0] == out
    assert tuple(lines(out.parent / "vectors.npy.entities.txt")) == NAMES
    assert np.array_equal(np.load(out), predictor.embedding(NAMES))
    relations = np.load(out.parent / "vectors.relations.npy")
    names = lines(out.parent / "vectors.npy.relations.txt")
    assert names == ["likes, a lot", "in", "likes, a lot (inverse)", "in (inverse)"]
    assert np.array_equal(relations[1], predictor.relation_embedding("in"))
    assert np.array_equal(relations[3], predictor.relation_embedding("in", side="head"))
    described = about(out.parent / "vectors.npy.json")
    assert described["model"] == "complex"
    assert described["score"] == "score(h, r, t) = Re sum_k h_k r_k conj(t_k)"
    assert "real parts, then `dim` imaginary" in str(described["layout"])
    assert described["entities"] == {"rows": len(NAMES), "width": 8}
    assert set(described["files"]) == {path.name for path in written[:-1]}  # type: ignore[call-overload]


def test_csv_keeps_names_and_numbers(run: Run, predictor: Predictor, tmp_path: Path) -> None:
    export(run, tmp_path / "vectors.csv")
    with (tmp_path / "vectors.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["name", *map(str, range(8))]
    assert tuple(row[0] for row in rows) == NAMES
    numbers = np.array([row[1:] for row in rows], dtype=np.float32)
    assert np.array_equal(numbers, predictor.embedding(NAMES))


def test_parquet_has_names_and_vectors(run: Run, predictor: Predictor, tmp_path: Path) -> None:
    export(run, tmp_path / "vectors.parquet")
    table = parquet.read_table(tmp_path / "vectors.parquet")
    assert tuple(table["name"].to_pylist()) == NAMES
    vectors = np.array(table["vector"].to_pylist(), dtype=np.float32)
    assert np.array_equal(vectors, predictor.embedding(NAMES))
    relations = parquet.read_table(tmp_path / "vectors.relations.parquet")
    assert relations.num_rows == 4


def test_parquet_without_pyarrow_names_the_extra_and_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"Parquet needs pyarrow: pip install 'allneg\[tables\]'"):
        export(run, tmp_path / "vectors.parquet")
    assert list(tmp_path.iterdir()) == []


def test_safetensors_are_the_weights_with_names(
    run: Run, predictor: Predictor, tmp_path: Path
) -> None:
    export(run, tmp_path / "w.safetensors")
    found = load_file(tmp_path / "w.safetensors")
    assert np.array_equal(found["entities"], predictor.embedding(NAMES))
    assert len(found["relations"]) == 4
    assert tuple(lines(tmp_path / "w.safetensors.entities.txt")) == NAMES


def test_word2vec_lines_have_a_unique_token_and_its_numbers(
    run: Run, predictor: Predictor, tmp_path: Path
) -> None:
    export(run, tmp_path / "w.vec")
    first, *rows = lines(tmp_path / "w.vec")
    assert first == f"{len(NAMES)} 8"
    split = [row.split(" ") for row in rows]
    assert {len(fields) for fields in split} == {9}
    tokens = [fields[0] for fields in split]
    assert len(set(tokens)) == len(NAMES)
    assert tokens[1:3] == ["New_York", "New_York_"]
    numbers = np.array([fields[1:] for fields in split], dtype=np.float32)
    assert np.array_equal(numbers, predictor.embedding(NAMES))


def test_gensim_opens_the_word2vec_file(run: Run, predictor: Predictor, tmp_path: Path) -> None:
    from gensim.models import KeyedVectors  # its import takes seconds

    export(run, tmp_path / "w.txt")
    vectors = KeyedVectors.load_word2vec_format(tmp_path / "w.txt")
    names = dict(zip(vectors.index_to_key, lines(tmp_path / "w.txt.entities.txt"), strict=True))
    assert tuple(names.values()) == NAMES
    assert np.array_equal(vectors["New_York"], predictor.embedding("New York"))
    found = [names[token] for token, _ in vectors.most_similar("東京", topn=5)]
    assert found == [item.entity for item in predictor.neighbours("東京", k=5)]


def test_an_inner_product_index_finds_the_answers_of_predict(
    run: Run, predictor: Predictor, tmp_path: Path
) -> None:
    export(run, tmp_path / "vectors.npy")
    rows, names = np.load(tmp_path / "vectors.npy"), lines(tmp_path / "vectors.npy.entities.txt")
    for relation in predictor.graph.vocabulary.relations:
        for name in NAMES:
            for given, ask in (("head", predictor.tails), ("tail", predictor.heads)):
                query = predictor.query_vector(relation=relation, **{given: name})
                found = search(rows, query, 10, MetricKind.IP, exact=True)
                answers = ask(name, relation, k=10)
                assert [names[i] for i in found.keys] == [item.entity for item in answers]
                expected = [item.score for item in answers]
                assert (1 - found.distances).tolist() == pytest.approx(expected, abs=1e-5)


def test_neo4j_files_are_as_its_importer_documents(
    run: Run, predictor: Predictor, tmp_path: Path
) -> None:
    """ID, LABEL, START_ID, END_ID, TYPE; arrays by semicolons; quotes are doubled."""
    out = tmp_path / "graph"
    written = export(run, out, "neo4j")
    assert sorted(written) == sorted(out.iterdir())
    with (out / "nodes.csv").open(newline="", encoding="utf-8") as file:
        nodes = list(csv.DictReader(file))
    assert tuple(node["name:ID"] for node in nodes) == NAMES
    assert {node[":LABEL"] for node in nodes} == {"Entity"}
    vectors = [node["embedding:float[]"].split(";") for node in nodes]
    assert np.array_equal(np.array(vectors, dtype=np.float32), predictor.embedding(NAMES))
    with (out / "relationships.csv").open(newline="", encoding="utf-8") as file:
        links = list(csv.DictReader(file))
    expected = [(h, t, r, split) for split in SPLITS for h, r, t in run.graph.facts(split)]
    keys = (":START_ID", ":END_ID", ":TYPE", "split")
    assert [tuple(link[key] for key in keys) for link in links] == expected
    assert '"say ""hi"""' in (out / "nodes.csv").read_text()


def test_neo4j_files_are_read_back_as_the_same_triples(toy_run: Run, tmp_path: Path) -> None:
    export(toy_run, tmp_path / "graph", "neo4j")
    found = read_graph(tmp_path / "graph")
    assert set(found.facts()) == set(toy_run.graph.facts())


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_described(name: str, trained: Callable[..., Run], tmp_path: Path) -> None:
    run = trained(f"model.name={name}", "training.epochs=1", "regularizer.name=none")
    export(run, tmp_path / "v.npy")
    found = about(tmp_path / "v.npy.json")
    assert str(found["score"]).startswith("score(h, r, t) =")
    shared = run.tables().shared
    assert (tmp_path / "v.npy.shared.npy").exists() == ("shared" in found) == (shared is not None)
    if shared is not None:
        assert np.array_equal(np.load(tmp_path / "v.npy.shared.npy"), shared.detach().numpy())


def test_the_place_of_a_bias_is_described(
    quick: Callable[..., Recipe], tiny_graph: Graph, tmp_path: Path
) -> None:
    settings = ("model.name=transe", "model.norm=2", "model.squared=true", "model.bias=true")
    run = Run.create(tmp_path / "run", quick(*settings), tiny_graph)
    fit(run)
    export(run, tmp_path / "v.npy")
    assert "The last number of an entity row is its bias" in str(about(tmp_path / "v.npy.json"))


def test_a_format_without_suffix_adds_its_own(run: Run, tmp_path: Path) -> None:
    assert export(run, tmp_path / "v", "csv")[0] == tmp_path / "v.csv"
    assert export(run, tmp_path / "v", "word2vec")[0] == tmp_path / "v.vec"
    with pytest.raises(UsageError, match="already exists"):
        export(run, tmp_path / "v", "csv")


@pytest.mark.parametrize(
    "name, format, message",
    [
        ("v.npz", None, r"\.npz is not a format of export; use \.npy, \.parquet, \.csv, \.vec"),
        ("v.csv", "npy", r"v\.csv: --format npy writes \.npy"),
        ("v.txt", "csv", r"--format csv writes \.csv"),
        ("v.csv", "neo4j", "--format neo4j writes a folder, whose name has no suffix"),
        ("v", "xml", f"'xml' is not a format of export; use {', '.join(FORMATS)}"),
    ],
)
def test_a_wrong_format_is_an_error(
    run: Run, tmp_path: Path, name: str, format: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        export(run, tmp_path / name, format)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", FORMATS)
def test_an_error_leaves_no_file(
    run: Run, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> list[bytes]:
        raise MemoryError

    monkeypatch.setattr("allneg.exports.writers.json_text", fail)
    with pytest.raises(MemoryError):
        export(run, tmp_path / "v", format)
    assert list(tmp_path.iterdir()) == []
