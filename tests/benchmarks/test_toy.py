"""The benchmarks stay alive: each runs at toy size, and the page's tables come from results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]


def _run(program: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, HOUSE / "benchmarks" / program, *options],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(HOUSE / "src"), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kernel, other", [("l1", "torch.cdist"), ("modulus", "reference")])
def test_a_distance_benchmark_measures_and_says_on_which_machine(kernel, other, tmp_path):
    out = tmp_path / "result.json"
    ways = f"engine,{other}"
    _run(f"bench_{kernel}.py", "--toy", "--device", "cpu", "--seconds", "0.01",
         "--ways", ways, "--out", str(out))  # fmt: skip
    report = json.loads(out.read_text())
    assert report["kernel"] == kernel
    assert report["machine"]
    assert [row["way"] for row in report["rows"]] == ways.split(",")
    assert all(row["milliseconds"] > 0 for row in report["rows"])


def test_the_tables_of_the_page_are_those_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(HOUSE / "benchmarks")
    import tables

    page = tables.PAGE.read_text()
    paths = sorted((tables.HERE / "results").glob("*.json"))
    reports = [json.loads(path.read_text()) for path in paths]
    assert tables.page_with_tables(page, [each for each in reports if "kernel" in each]) == page


def test_a_table_has_a_line_for_each_size_and_a_column_for_each_way(monkeypatch):
    monkeypatch.syspath_prepend(HOUSE / "benchmarks")
    import tables

    size = {"b": 1, "n": 2000, "dim": 3}
    report = {
        "kernel": "l1", "machine": "an NVIDIA card", "threads": "1", "torch": "2", "triton": "3",
        "rows": [
            {**size, "way": "engine", "milliseconds": 1.234, "extra_mib": 5.0},
            {**size, "way": "torch.cdist", "problem": "out of memory"},
        ],
    }  # fmt: skip
    text = tables.tables([report])
    assert "| 1 | 2,000 | 3 | 1.23 / 5 | out of memory |" in text
    assert "| B | N | D | engine | torch.cdist |" in text


def test_the_mesh_benchmark_sends_the_bytes_that_the_cost_model_says(tmp_path):
    out = tmp_path / "result.json"
    _run("bench_mesh.py", "--toy", "--steps", "1", "--out", str(out))
    rows = json.loads(out.read_text())["rows"]
    assert [row["mesh"] for row in rows] == [
        "rows=1",
        "rows=2",
        "batch=2",
        "rows=4",
        "rows=2,batch=2",
    ]
    assert [row["sent"] for row in rows] == [row["predicted_sent"] for row in rows]
    assert rows[1]["sent"] > 0
    assert all(row["milliseconds"] > 0 and row["predicted"] > 0 for row in rows)


def test_the_tables_about_many_gpus_are_those_of_the_program(monkeypatch):
    monkeypatch.syspath_prepend(HOUSE / "benchmarks")
    import mesh_tables

    page = mesh_tables.PAGE.read_text()
    assert mesh_tables.page_with_tables(page) == page
