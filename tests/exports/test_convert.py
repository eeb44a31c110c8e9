"""Vectors of other programs as runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from allneg import AllnegError, Run, convert, export, load
from allneg.errors import DataError
from allneg.graph import read_graph
from allneg.runs.verify import verify
from allneg.training.train import resume

FACTS = (("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a"))
ENTITIES, RELATIONS = "cab", "sr"  # not in the order of the graph
COMPLEX = np.random.default_rng(0).normal(size=(5, 4, 2)).astype(np.float32).view(np.complex64)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Complex rows with names, as PyKEEN's users save them."""
    path = tmp_path / "v.npy"
    np.save(path, COMPLEX[:3, :, 0])
    np.save(tmp_path / "v.relations.npy", COMPLEX[3:, :, 0])
    (tmp_path / "v.npy.entities.txt").write_text("".join(f"{name}\n" for name in ENTITIES))
    (tmp_path / "v.npy.relations.txt").write_text("".join(f"{name}\n" for name in RELATIONS))
    return path


@pytest.mark.parametrize("name", ["v.npy", "v.safetensors"])
def test_what_export_writes_becomes_the_same_run(toy_run: Run, tmp_path: Path, name: str) -> None:
    export(toy_run, tmp_path / name)
    made = convert(
        tmp_path / name,
        toy_run.graph,
        model=toy_run.recipe.model.name,
        out=tmp_path / "run",
        device="cpu",
    )
    assert made.recipe.model.reciprocal == toy_run.recipe.model.reciprocal
    for kind, tensor in Run.open(made.folder).tables().weights().items():
        assert tensor.equal(toy_run.tables().weights()[kind])
    assert made.report.mrr == toy_run.report.mrr
    assert [check.wrong for check in verify(made.folder, rank=True) if check.wrong] == []
    with pytest.raises(AllnegError, match="a converted run or a bfloat16 copy is not trained"):
        resume(made.folder, settings=["training.epochs=99"])


def test_complex_rows_give_the_formula_of_complex(vectors: Path, tmp_path: Path) -> None:
    run = convert(vectors, FACTS, model="complex", out=tmp_path / "run", device="cpu")
    rows = dict(zip("cabsr", COMPLEX[:, :, 0], strict=True))
    assert load(run.folder, "cpu").score(FACTS) == pytest.approx(
        [(rows[h] * rows[r] * rows[t].conj()).sum().real for h, r, t in FACTS], rel=1e-5
    )


def test_rotations_of_rotate_become_angles(vectors: Path, tmp_path: Path) -> None:
    relations = COMPLEX[3:, :, 0] / np.abs(COMPLEX[3:, :, 0])
    np.save(tmp_path / "v.relations.npy", relations)
    settings = {"model.norm": 2}  # PyKEEN's RotatE
    run = convert(
        vectors, FACTS, model="RotatE", out=tmp_path / "run", settings=settings, device="cpu"
    )
    rows = dict(zip("cabsr", [*COMPLEX[:3, :, 0], *relations], strict=True))
    assert load(run.folder, "cpu").score(FACTS) == pytest.approx(
        [-np.linalg.norm(rows[h] * rows[r] - rows[t]) for h, r, t in FACTS], rel=1e-5
    )


def test_rows_of_matrices_are_flattened(vectors: Path, tmp_path: Path) -> None:
    entities, relations = torch.randn(3, 2).numpy(), torch.randn(2, 2, 2).numpy()
    save_file({"entities": entities, "relations": relations}, tmp_path / "v.safetensors")
    for kind in ("entities", "relations"):
        (tmp_path / f"v.npy.{kind}.txt").rename(tmp_path / f"v.safetensors.{kind}.txt")
    run = convert(
        tmp_path / "v.safetensors", FACTS, model="rescal", out=tmp_path / "run", device="cpu"
    )
    e, r = dict(zip(ENTITIES, entities, strict=True)), dict(zip(RELATIONS, relations, strict=True))
    assert load(run.folder, "cpu").score([FACTS[0]])[0] == pytest.approx(
        e["a"] @ r["r"] @ e["b"], rel=1e-5
    )


def test_the_command_prints_the_run(
    vectors: Path, tmp_path: Path, allneg: Callable[..., Any]
) -> None:
    data = tmp_path / "facts"
    data.mkdir()
    (data / "train").write_text("a\tr\tb\nb\tr\tc\n")  # without a suffix, as in kbc
    (data / "test").write_text("c\ts\ta\n")
    words = ("--data", data, "--model", "complex", "--device", "cpu", "--out", tmp_path / "run")
    done = allneg("convert", vectors, *words, "--json")
    assert done.code == 0, done.err
    assert done.json["count"] == 2
    assert load(tmp_path / "run", "cpu").tails("a", "r", k=1)


def wrong(path: Path, data: object = FACTS, model: str = "complex") -> str:
    with pytest.raises(AllnegError) as error:
        convert(path, data, model=model, out=path.with_name("run"), device="cpu")
    assert not path.with_name("run").exists()
    return str(error.value)


def test_what_does_not_fit_is_refused_and_nothing_is_written(vectors: Path) -> None:
    assert "there is no model 'complx'; close names: 'complex'" in wrong(vectors, model="complx")
    assert "is not converted" in wrong(vectors, model="tucker")
    assert "rows of 8 and 8 numbers are not those of rescal" in wrong(vectors, model="rescal")
    assert "entity 'd' of the data has no row (1 have none)" in wrong(vectors, [("a", "r", "d")])
    assert "relation 'x' of the data has no row" in wrong(vectors, [("a", "x", "b")])
    assert "read from .npy and .safetensors" in wrong(vectors.with_suffix(".pkl"))
    vectors.with_name("v.npy.entities.txt").write_text("a\nb\nb\n")
    assert "2 names for 3 rows" in wrong(vectors)
    vectors.with_name("v.npy.entities.txt").unlink()
    assert "one name per line is needed here" in wrong(vectors)
    np.save(vectors, np.array([[np.nan]] * 3))
    assert "not finite" in wrong(vectors)


def test_pickled_objects_are_not_loaded(vectors: Path) -> None:
    np.save(vectors, np.array([["a", object]], dtype=object), allow_pickle=True)
    assert "cannot be read as numbers" in wrong(vectors)


def test_a_folder_of_libkge_keeps_its_ids(tmp_path: Path) -> None:
    (tmp_path / "train.del").write_text("0\t0\t1\n1\t1\t2\n")
    (tmp_path / "valid.del").write_text("2\t0\t0\n")
    (tmp_path / "entity_ids.del").write_text('0\t007\n2\tNA\n1\tsay "b"\n')
    (tmp_path / "relation_ids.del").write_text("0\tr\n1\ts\n")
    (tmp_path / "dataset.yaml").write_text("dataset:\n  num_entities: 3\n")
    graph = read_graph(tmp_path)
    assert list(graph.vocabulary.entities) == ["007", 'say "b"', "NA"]
    assert graph.train.tolist() == [[0, 0, 1], [1, 1, 2]]
    assert graph.valid.tolist() == [[2, 0, 0]]
    (tmp_path / "train.del").write_text("0\t0\tx\n")
    with pytest.raises(DataError, match=r"train.del: damaged or of another format"):
        read_graph(tmp_path)
