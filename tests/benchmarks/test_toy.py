"""The benchmarks stay alive: each runs at toy size, and the page's tables come from results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
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


@pytest.mark.parametrize("ids", [True, False])
def test_the_large_benchmark_reads_plans_and_trains(ids, tmp_path):
    out = tmp_path / "result.json"
    more = ["--ids"] if ids else ["--work", str(tmp_path)]
    _run("bench_large.py", "--toy", "--device", "cpu", "--out", str(out), *more)
    report = json.loads(out.read_text())
    assert report["large"]["entities"] == 2000
    assert ids or report["first"]["entities"] == report["cached"]["entities"] == 2000
    assert all(row["seconds_a_million_questions"] > 0 for row in report["rows"])
    assert all(row["planned_bytes"] > 0 for row in report["rows"])


def test_the_page_of_large_graphs_is_that_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(HOUSE / "benchmarks")
    import large_tables

    page, found = large_tables.PAGE.read_text(), large_tables.reports()
    assert found
    assert large_tables.page_with_tables(page, found) == page
    assert all(f"{report['machine']}" in page for report in found)


def test_a_made_up_graph_is_the_same_as_text_and_as_ids(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(HOUSE / "benchmarks")
    import large_graph

    from allneg.graph import SPLITS, read_graph
    from allneg.recipe import Data

    size = large_graph.Size(entities=300, triples=1000, relations=7, held_out=30)
    made = large_graph.in_memory(size)
    large_graph.write(tmp_path / "large", size)
    read = read_graph(tmp_path / "large", Data(keep_duplicates=True))
    assert read.n_entities == made.n_entities == 300
    assert read.n_relations == made.n_relations == 7

    def named(graph, split):
        entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
        return [(entities[h], relations[r], entities[t]) for h, r, t in graph.split(split).tolist()]

    for split in SPLITS:
        assert named(read, split) == named(made, split)
    # Popular entities are in many triples: an even choice would give the first 3 or so each.
    degrees = sorted(np.bincount(made.train[:, 2], minlength=300))
    assert sum(degrees[-30:]) > 0.4 * len(made.train)
    assert degrees[-1] > 30
