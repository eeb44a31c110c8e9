"""Every benchmark runs at toy size, and the tables of the pages come from results."""

from __future__ import annotations

import itertools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from allneg.cli import allneg
from allneg.kernels.compiler import find_compiler
from allneg.predict import reach
from allneg.recipe import Recipe, load_tables
from interpreter import interpreted, needs_triton
from processes import forks

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Libraries that a benchmark compiles stay out of the user's cache."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    """The modules of benchmarks/ can be imported."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.fixture
def measured(home, tmp_path):
    """`measured("bench_l1.py --toy", "--ways", ways)`: run a benchmark; its result file."""

    def run(words, *more):
        out = tmp_path / "result.json"
        _run(*words.split(), *map(str, more), "--out", str(out), home=home)
        return json.loads(out.read_text())

    return run


def _run(program: str, *options: str, home: Path) -> None:
    path = ROOT / "benchmarks" / program
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLNEG_HOME", str(home))
        patch.setattr(sys, "argv", [str(path), *options])
        patch.syspath_prepend(path.parent)
        runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("kernel, other", [("l1", "torch.cdist"), ("modulus", "reference")])
def test_a_distance_benchmark_measures_and_names_the_machine(measured, kernel, other):
    ways = f"engine,{other}" + (",compiled" if find_compiler() else "")
    report = measured(f"bench_{kernel}.py --toy --device cpu --seconds 0.01", "--ways", ways)
    assert report["kernel"] == kernel
    assert report["machine"]
    assert [row["way"] for row in report["rows"]] == ways.split(",")
    assert all(row["milliseconds"] > 0 for row in report["rows"])


@needs_triton
def test_the_benchmark_of_attention_checks_and_measures(measured, monkeypatch):
    gpu = interpreted("allneg.kernels.attention.gpu")
    interpreted("allneg.kernels.fused.gpu")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(gpu, "_MOST_QUERIES", 16)  # as many as a toy tile has
    for name in ("ATTEND", "GRADIENTS"):
        monkeypatch.setattr(gpu, name, dict(getattr(gpu, name)))  # the benchmark changes them
    rows = measured("bench_fused_softmax.py --toy --device cpu --seconds 0.01")["rows"]
    assert [row["precision"] for row in rows] == ["bf16", "tf32"]
    for row in rows:
        assert row["step_ms"] > 0 < row["stored_ms"]
        assert row["finite"]
        allowed = 2**-7 if row["precision"] == "bf16" else 1e-5
        assert max(row["mean_error"], row["d_rows_error"]) < allowed


@needs_triton
def test_the_benchmark_of_large_rankings_checks_and_measures(measured, monkeypatch):
    gpu = interpreted("allneg.kernels.attention.gpu")
    interpreted("allneg.kernels.fused.gpu")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    small = gpu.Tile(16, 32, 4, 2, chunk=32)
    monkeypatch.setattr(gpu, "COUNT", {2: {}, 4: {}})
    monkeypatch.setattr(gpu, "CHUNKED", {2: small, 4: small})
    rows = measured("bench_rank_large.py --toy --device cpu --seconds 0.01")["rows"]
    assert [row["precision"] for row in rows] == ["bf16", "tf32"]
    for row in rows:
        assert row["exact"]
        assert row["consistent"]
        assert min(row["counted_s"], row["stored_s"], row["large_s"]) > 0
        assert row["most"] <= 2
        assert all(tile["milliseconds"] > 0 for tile in row["tiles"])


@needs_triton
def test_the_benchmark_of_adagrad_in_a_product_runs_every_tile(measured, monkeypatch):
    interpreted("allneg.kernels.fused.gpu")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    rows = measured("bench_product_adagrad.py --toy --device cpu --seconds 0.01")["rows"]
    own = [row for row in rows if row["way"] in ("triton", "fused")]
    assert len(own) == 12
    assert all(row["milliseconds"] > 0 for row in own)


@needs_triton
def test_instructions_of_a_compiled_loop_are_counted(tmp_path):
    """In a process of its own: Triton's interpreter, which others use, compiles nothing."""
    program, out = ROOT / "benchmarks" / "count_instructions.py", tmp_path / "result.json"
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, str(program), "--most", "1", "--out", str(out)]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["kernel"], row["direction"], row["roots"]) == ("l1", "forward", 0)
    assert 2 < row["instructions"] < 3  # a subtraction, an addition, and a few loads


@needs_triton
def test_packed_words_hold_neighbouring_coordinates():
    from bench_half_distances import packed

    rows = torch.tensor([[1.0, 2.0, 3.0, 5.0, 6.0, 7.0]])
    words = packed(rows, "f16", 2, 0.0, 2.0, 2)
    assert words.shape == (1, 4)
    assert words.view(torch.float16).tolist() == [[2, 4, 6, 0, 10, 12, 14, 0]]
    quarters = packed(rows, "u8", 1, 1.0, 10.0, 2).view(torch.uint8)
    assert quarters.tolist() == [[0, 10, 20, 40, 50, 60, 0, 0]]


def test_the_tables_of_the_pages_are_those_of_the_results():
    import tables

    reports, found = tables.read_reports(), set()
    for page in tables.PAGES:
        text = page.read_text()
        assert tables.page_with_tables(text, reports) == text, page.name
        found |= {name for name in tables.TABLES if f"<!-- table {name} -->" in text}
    assert found == set(tables.TABLES)


def test_the_readmes_ratios_are_those_of_one_run():
    import tables

    size = {"b": 10, "n": 2000, "dim": 3}
    report = {
        "kernel": "l1", "machine": "a card",
        "rows": [
            {**size, "way": "engine", "milliseconds": 3.0, "extra_mib": 5.0},
            {**size, "way": "captured", "milliseconds": 2.0},
            {**size, "way": "reference", "milliseconds": 8.0, "extra_mib": 15.0},
            {**size, "way": "PyKEEN", "problem": "out of memory"},
        ],
    }  # fmt: skip
    text = tables.headline([report])
    what = "TransE, L1, 10 queries × 2,000 entities, dim 3"
    theirs = "8 ms, 15 MiB (4× the time, 3× the memory)"
    assert f"| {what} | 2 ms, 5 MiB | out of memory | {theirs} |" in text


@pytest.mark.parametrize(
    "program, key", [("bench_epoch.py", "epoch"), ("bench_ranking.py", "ranking")]
)
def test_a_loop_benchmark_measures_every_way(measured, program, key):
    words = f"{program} --device cpu --made-up 40,3,300 --dim 4 --batch 50"
    report = measured(words, "--ways", "allneg float32,kbc's loop")
    assert key in report
    assert report["entities"] == 40
    assert [row["way"] for row in report["rows"]] == ["allneg float32", "kbc's loop"]
    assert all(row["seconds"] > 0 for row in report["rows"])


def test_the_benchmark_of_extend_measures_every_way_once(home, tmp_path, tiny_folder):
    out, rows = tmp_path / "result.json", []
    for ways in ("extend,retrain", "extend,neighbours,retrain,warm"):
        _run("bench_extend.py", str(tiny_folder), "--models", "complex", "--facts", "1", "--share",
             "0.4", "--ways", ways, "--device", "cpu", "--set", "model.dim=4", "--set",
             "complex:training.epochs=3", "--set", "transe:training.epochs=9", "--extend-set",
             "training.epochs=1", "--out", str(out), home=home)  # fmt: skip
        before, rows = rows, json.loads(out.read_text())["rows"]
        assert rows[: len(before)] == before
    assert [row["way"] for row in rows] == ["extend", "retrain", "neighbours", "warm"]
    assert [row["old_rows_unchanged"] for row in rows[:3]] == [True, False, False]
    assert all(row["ranked"] and 0 < row["mrr"] <= 1 for row in rows[:3])
    assert [row["old_mrr_among_old"] == row["old_mrr_before"] for row in rows[:3]] == [
        True, False, False,
    ]  # fmt: skip
    assert [row["epochs"] for row in rows[:3]] == [1, 3, 1]


def test_the_benchmark_of_extend_adds_a_few_entities(measured):
    (row,) = measured(
        "bench_extend.py --models complex --ways extend --facts 3 --entities 2 --device cpu "
        "--set model.dim=2 --set training.epochs=1 --extend-set training.epochs=1"
    )["rows"]
    assert (row["added"], row["entities"], row["given"]) == (2, 2, 6)
    assert row["ranked"]
    assert row["old_rows_unchanged"]


def test_the_benchmark_of_features_trains_with_and_without(measured, tmp_path, tiny_folder):
    labels = tmp_path / "labels.tsv"
    labels.write_text("France\tthe French Republic\nSpain\tKingdom of Spain\n")
    small = "--set model.dim=4 --set training.epochs=2"
    words = f"bench_features.py --seeds 0 --device cpu {small}"
    rows = measured(words, tiny_folder, labels)["rows"]
    assert [row["features"] for row in rows] == [False, True]
    assert all(0 < row["rare"] <= 1 for row in rows)
    assert rows[0]["rare"] != rows[1]["rare"]


@pytest.mark.usefixtures("quick_data")
@pytest.mark.parametrize("more, key", [([], "seconds"), (["--train", "0.01"], "best")])
def test_grouped_queries_are_measured_beside_single_ones(measured, more, key):
    rows = measured(
        "bench_grouped.py --device cpu --data countries --dim 4 --steps 2 --precisions float32",
        *more,
    )["rows"]
    assert [row["grouped"] for row in rows] == [False, True, True, True]
    assert all(row[key] > 0 for row in rows)


def test_limits_of_answers_are_measured_beside_single_queries(measured, tiny_folder):
    rows = measured(
        "bench_max_answers.py --answers 1,2 --epochs 1 --set model.dim=4 --device cpu", tiny_folder
    )["rows"]
    assert [row["most"] for row in rows] == [None, 1, 2]
    assert rows[0]["batch"] == rows[1]["batch"] > rows[2]["batch"]
    assert all(0 < row["valid_mrr"] <= 1 for row in rows)


@pytest.mark.usefixtures("quick_data")
def test_a_speedrun_measures_both_ways(tmp_path, monkeypatch):
    import speedrun

    def in_this_process(command):
        if command[:2] == ["-m", "allneg"]:
            return 1e9, json.loads(CliRunner().invoke(allneg, command[2:]).stdout)
        return 1.0, speedrun.kbc(command[2], torch.device("cpu"))

    monkeypatch.setattr(speedrun, "timed", in_this_process)
    out = tmp_path / "result.json"
    options = ["--device", "cpu", "--data", "countries", "--recipe", "countries/complex", "--set"]
    monkeypatch.setattr(
        sys, "argv", ["", *options, "training.epochs=1", "--set", "model.dim=4", "--out", str(out)]
    )
    speedrun.main()
    ours, kbc = json.loads(out.read_text())["rows"]
    assert (ours["way"], kbc["way"]) == ("allneg", "kbc's loop")
    assert ours["seconds"] > ours["training_seconds"] > 0
    assert min(row["mrr"] for row in (ours, kbc)) > 0


def test_the_profile_of_a_cpu_counts_every_kind_of_work(tmp_path):
    out = tmp_path / "result.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "bench_profile.py"), "--device", "cpu"]
    command += ["--data", "countries", "--dim", "4", "--steps", "2", "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # it replaces functions
    report = json.loads(out.read_text())
    assert min(report["microseconds"]["float32"].values()) > 0
    assert report["floor"]["float32"] > 0


def test_the_phases_of_a_start_add_up_to_all_seconds(measured):
    (row,) = measured(
        "bench_startup.py --data countries --device cpu --turns 1 --set training.epochs=1 "
        "--set model.dim=4"
    )["rows"]
    phases = row["phases"]
    assert sum(phases.values()) == pytest.approx(row["seconds"], abs=0.05)
    assert min(phases[name] for name in ("import torch", "training", "first 8 steps")) > 0
    assert row["outside_training"] < row["seconds"] - phases["training"] + 0.01


@pytest.mark.parametrize("name", ["fb15k-237", "wn18rr"])
def test_the_recipes_of_the_speedrun_are_recipes(name):
    recipe = Recipe.from_tables(load_tables(ROOT / "benchmarks" / "speedrun" / f"{name}.toml"), "")
    assert recipe.data.name == name


def test_the_loss_benchmark_measures_every_kernel_and_way(measured):
    rows = measured("bench_loss.py --toy --device cpu --seconds 0.01")["rows"]
    kernels, ways = ("dot", "l1", "modulus"), ("streamed", "one block", "plain")
    assert [(row["kernel"], row["way"]) for row in rows] == [(k, w) for k in kernels for w in ways]


def test_the_scaling_benchmark_has_a_floor_for_every_size(measured):
    rows = measured("bench_scaling.py --toy --device cpu")["rows"]
    assert {row["axis"] for row in rows} == {"b", "n", "w"}
    assert all(row["milliseconds"] > 0 and row["floor"] > 0 for row in rows)


def test_kbcs_loop_takes_the_same_step_as_ours():
    import loops

    graph = loops.made_up(30, 2, 400)
    task = loops.Task(graph, 16, 2 * len(graph.train), torch.device("cpu"))  # one batch is all
    ours, kbc = loops.Ours(task, "float32"), loops.KbcLoop(task)
    tables = ours.trainer.tables
    with torch.no_grad():
        kbc.entities.weight.copy_(tables.entities)
        kbc.relations.weight.copy_(tables.relations)
    assert kbc.rank() == pytest.approx(ours.rank())  # random tables tie nowhere
    assert ours.steps(1) == kbc.steps(1) == task.queries
    # AdaGrad's first step goes by the gradient's sign, which rounding turns where it is nearly 0.
    same = torch.isclose(kbc.entities.weight, tables.entities, atol=1e-4)
    assert same.float().mean() > 0.99


def test_a_table_has_a_line_for_each_size_and_a_column_for_each_way():
    import tables

    size = {"b": 1, "n": 2000, "dim": 3}
    report = {
        "kernel": "l1", "machine": "an NVIDIA card", "threads": "1", "torch": "2", "triton": "3",
        "rows": [
            {**size, "way": "engine", "milliseconds": 1.234, "extra_mib": 5.0},
            {**size, "way": "torch.cdist", "problem": "out of memory"},
        ],
    }  # fmt: skip
    text = tables.distances([report], "l1")
    assert "| 1 | 2,000 | 3 | 1.23 / 5 | out of memory |" in text
    assert "| B | N | D | engine | torch.cdist |" in text


def test_the_mesh_benchmark_sends_the_bytes_that_the_cost_model_predicts(tmp_path, monkeypatch):
    out = tmp_path / "result.json"
    forks()  # its processes start fast
    monkeypatch.setattr(sys, "argv", ["bench_mesh.py", "--toy", "--steps", "1", "--out", str(out)])
    import bench_mesh  # its processes find it by this name

    bench_mesh.main()
    rows = json.loads(out.read_text())["rows"]
    assert [row["mesh"] for row in rows] == ["rows=2", "batch=2", "rows=2,batch=2"]
    assert [row["sent"] for row in rows] == [row["predicted_sent"] for row in rows]
    assert all(row["sent"] > 0 for row in rows)
    assert all(row["milliseconds"] > 0 and row["predicted"] > 0 for row in rows)


@pytest.mark.parametrize("ids", [pytest.param(True, marks=pytest.mark.slow), False])
def test_the_large_benchmark_reads_plans_and_trains(measured, ids, tmp_path):
    more = ["--ids"] if ids else ["--work", str(tmp_path)]
    report = measured("bench_large.py --toy --device cpu", *more)
    assert report["large"]["entities"] == 2000
    assert ids or report["first"]["entities"] == report["cached"]["entities"] == 2000
    assert all(row["seconds_a_million_questions"] > 0 for row in report["rows"])
    assert all(row["planned_bytes"] > 0 for row in report["rows"])


def test_the_reading_benchmark_reads_text_and_parquet(measured):
    rows = measured("bench_reading.py --toy")["rows"]
    assert len(rows) == 3
    assert {(row["entities"], row["triples"]) for row in rows} == {(2000, 7973)}


def test_the_page_of_large_graphs_names_every_machine():
    import tables

    page = (ROOT / "docs" / "large-graphs.md").read_text()
    found = [report for report in tables.read_reports() if "large" in report]
    assert found
    assert all(f"{report['machine']}" in page for report in found)


def test_a_made_up_graph_is_the_same_as_text_and_as_ids(tmp_path):
    import large_graph

    from allneg.graph import SPLITS, read_graph
    from allneg.recipe import Data

    size = large_graph.Size(entities=300, triples=1000, relations=7, held_out=30)
    made = large_graph.in_memory(size)
    large_graph.write(tmp_path / "large", size)
    read = read_graph(tmp_path / "large", Data(keep_duplicates=True))
    assert read.n_entities == made.n_entities == 300
    assert read.n_relations == made.n_relations == 7

    for split in SPLITS:
        assert read.facts(split) == made.facts(split)
    # Popular entities are in many triples: an even choice would give the first 3 or so each.
    degrees = sorted(np.bincount(made.train[:, 2], minlength=300))
    assert sum(degrees[-30:]) > 0.4 * len(made.train)
    assert degrees[-1] > 30


def test_the_sweep_of_defaults_scores_candidates_by_valid(measured, tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "graphs" / "tiny")
    space = tmp_path / "space.toml"
    space.write_text(
        '[complex]\ngraphs = ["tiny"]\n[complex.shared]\n"training.epochs" = 1\n"model.dim" = 4\n'
        '[complex.candidates]\n"a" = {}\n"b" = { "regularizer.weight" = { n3 = 2.0 } }\n'
    )
    trials = measured("sweep_defaults.py", tmp_path / "graphs", space)["trials"]
    assert [trial["candidate"] for trial in trials] == ["a", "b"]
    assert all(0 < trial["valid_mrr"] <= 1 for trial in trials)


def test_the_benchmark_of_defaults_trains_each_model(measured, tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "graphs" / "tiny")
    shutil.copytree(tiny_folder, tmp_path / "graphs" / "umls")  # a graph of the sweep
    rows = measured(
        "bench_defaults.py --models complex,transe --only umls:transe,tiny,umls:transe "
        "--set training.epochs=60 --set evaluation.patience=60 --device cpu",
        tmp_path / "graphs",
    )["rows"]
    cells = ("umls", "transe"), ("tiny", "complex"), ("tiny", "transe")
    assert [(row["graph"], row["model"]) for row in rows] == list(cells)
    for row in rows:
        assert 0 < row["mrr"] <= 1
        assert 0 < row["frequency_mrr"] <= 1
        assert "per epoch; at most" in row["forecast"]
        assert row["with_test"] >= row["seconds"]
    assert rows[0]["ratio"] == pytest.approx(rows[0]["valid_mrr"] / 0.792, abs=1e-3)
    assert "ratio" not in rows[1]


def test_the_benchmark_of_complete_counts_held_out_facts(measured, toy_run):
    (row,) = measured("bench_complete.py --device cpu", toy_run.folder)["rows"]
    assert (row["data"], row["questions"], row["held_out"], row["sharp"]) == ("tiny", 36, 5, False)
    # All new facts are found, so all held-out ones are among them.
    assert row["precision"] == {"1000": 5 / 1000, "10000": 5 / 10_000}
    assert min(row["seconds"], row["cpu_seconds"]) >= 0


def test_the_benchmark_of_bounds_finds_the_same_facts(measured, toy_run, monkeypatch):
    for name in ("attend", "bit_mask"):  # the benchmark changes them
        monkeypatch.setattr(reach, name, getattr(reach, name))
    rows = measured("bench_complete_bounds.py --every 1", toy_run.folder)["rows"]
    assert [row["top"] for row in rows] == [1, 1]
    for row in rows:
        assert row["same"]
        assert row["questions"] == 36
        assert row["plain_heads"] == 1 >= row["sharp_heads"]


def test_the_frequency_baseline_is_that_of_brute_force(tiny_graph):
    import bench_complete

    train = tiny_graph.train.tolist()
    n = tiny_graph.n_entities

    def score(h, r, t):
        facts = [fact for fact in train if fact[1] == r]
        return sum(a == h for a, _, _ in facts) * sum(c == t for _, _, c in facts) / len(facts)

    every = [(h, r, t) for h in range(n) for r in range(3) for t in range(n)]
    expected = sorted((score(*f) for f in every if list(f) not in train), reverse=True)
    for count in (1, 5, 40):
        found = bench_complete.by_frequency(tiny_graph, count)
        assert [score(*fact) for fact in found.tolist()] == pytest.approx(expected[:count])
        assert not any(fact in train for fact in found.tolist())


def test_the_benchmark_of_classification_makes_its_facts(measured, toy_run, home, tmp_path):
    (row,) = measured("bench_classify.py --device cpu", toy_run.folder)["rows"]
    assert row["facts"] == 6
    assert 0 <= row["accuracy"] <= 1
    assert row.keys() >= {"f1", "auc", "ece"}
    _run("bench_classify.py", str(toy_run.folder), "--write", str(tmp_path / "facts"), home=home)
    assert len((tmp_path / "facts" / "valid-false.tsv").read_text().splitlines()) == 2
    lines = (tmp_path / "facts" / "test-labelled.tsv").read_text().splitlines()
    assert [line[-1] for line in lines] == list("111000")


def test_the_benchmark_of_audit_plants_errors(measured, tiny_folder):
    small = ("--folds", "2", "--set", "model.dim=4", "--set", "training.epochs=1")
    rows = measured("bench_audit.py --device cpu", tiny_folder, *small)["rows"]
    assert [row["errors"] for row in rows] == ["random", "typed"]
    for row in rows:
        assert (row["facts"], row["planted"]) == (25, 1)
        assert all(0 < row[way]["ap"] <= 1 for way in ("audit", "degree", "frequency"))


def test_another_seed_plants_other_errors(tiny_graph):
    import bench_audit

    found = {bench_audit.planted(tiny_graph, True, seed)[1].tobytes() for seed in (0, 0, 1, 2)}
    assert len(found) > 1


def test_the_scores_of_the_audit_benchmark_are_those_by_hand():
    import bench_audit

    wrong = np.array([True, False, True, False])
    found = bench_audit.scores(np.array([0.1, 0.2, 0.3, 0.4]), wrong)
    assert found == {"ap": pytest.approx((1 + 2 / 3) / 2), "at_planted": 0.5}


def test_made_questions_have_the_answers_of_brute_force(tiny_graph):
    import make_queries

    def answers(question, facts):
        found = set()
        for links in question.alternatives:
            for x, y, z in itertools.product(range(tiny_graph.n_entities), repeat=3):
                triples = [
                    (
                        (link.constant, x, y, z)[link.source + 1],
                        link.relation,
                        (x, y, z)[link.target],
                    )
                    for link in links
                ]
                if all(
                    triple[:: -1 if link.side else 1] in facts
                    for triple, link in zip(triples, links, strict=True)
                ):
                    found.add(x)
        return found

    before = {*map(tuple, tiny_graph.train.tolist()), *map(tuple, tiny_graph.valid.tolist())}
    every = before | {*map(tuple, tiny_graph.test.tolist())}
    for shape in make_queries.SHAPES:
        made = make_queries.make_queries(tiny_graph, shape, 5, "test", seed=1)
        assert made
        assert len({item.question.text for item in made}) == len(made)
        for item in made:
            easy = answers(item.question, before)
            assert (set(item.easy), set(item.hard)) == (easy, answers(item.question, every) - easy)
            assert item.hard


@pytest.mark.parametrize(
    "options, code, message",
    [
        (("countris", "--out", "made"), 3, "close names: 'countries'"),
        (("countries", "--out", "made", "--shapes", "1p,4p"), 2, "'4p' is not a shape; use"),
        (("countries", "--out", "made", "--count", "0"), 2, "use at least 1"),
    ],
)
def test_wrong_options_of_made_questions_are_explained(options, code, message, home, capsys):
    with pytest.raises(SystemExit) as end:
        _run("make_queries.py", *options, home=home)
    assert (end.value.code, message in capsys.readouterr().err) == (code, True)


def test_the_benchmark_of_questions_reads_what_was_made(tiny_folder, toy_run, home, tmp_path):
    made, out = tmp_path / "made.jsonl", tmp_path / "result.json"
    _run("make_queries.py", str(tiny_folder), "--out", str(made), "--count", "3",
         "--shapes", "3p,up", home=home)  # fmt: skip
    _run("bench_ask.py", str(toy_run.folder), "--queries", str(made), "--beams", "2,12", "--facts",
         "--compared", "2", "--device", "cpu", "--out", str(out), home=home)  # fmt: skip
    report = json.loads(out.read_text())
    rows = report["rows"]
    expected = [("all", 2, "3p", 3), ("all", 2, "up", 3)]
    expected += [("compared", beam, shape, 2) for beam in (2, 12) for shape in ("3p", "up")]
    found = [(row["way"], row["beam"], row["shape"], row["questions"]) for row in rows]
    assert found == expected
    assert all(0 < row["mrr"] <= 1 and row["seconds"] > 0 for row in rows)
    _run("bench_ask.py", str(toy_run.folder), "--queries", str(made), "--beams", "2", "--alone",
         "--device", "cpu", "--out", str(out), home=home)  # fmt: skip
    alone = json.loads(out.read_text())
    (one,) = alone["rows"]
    assert (one["beam"], one["shape"], one["turns"]) == (2, "3p", 50)
    import tables
    from ask_tables import TABLES

    report, alone = ({**each, "data": "fb15k-237"} for each in (report, alone))
    plain = {
        **report, "facts": False, "rows": [{**row, "seconds": 1.5, "mrr": 0.25} for row in rows],
    }  # fmt: skip
    hits = {"3p": 0.4, "up": 0.5}
    published = {"ask_published": "fb15k-237", "source": "[a page](https://x)", "hits3": hits}

    def cells(table, *reports):
        lines = TABLES[table]([*reports, published]).splitlines()
        return [[c.strip() for c in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]

    first, last = [row for row in rows if row["shape"] == "3p"], rows[1::2]
    assert [row["shape"] for row in last] == ["up"] * 3
    quality = f"{last[0]['mrr']:.3f}", f"{last[0]['hits']['3']:.3f}"
    head, _, *found = cells("ask", report, alone)
    assert head == ["shape", "questions", "seconds", "MRR", "Hits@3"]
    assert found[1] == ["up", "3", f"{last[0]['seconds']:.3g}", *quality]
    head, _, line = cells("ask-beams", report)
    pairs = [f"{some[1]['mrr']:.4f} / {some[2]['mrr']:.4f}" for some in (first, last)]
    assert head == ["MRR", "2p", "3p", "ip", "pi", "up"]
    assert line[0].endswith("with --facts; " + report["machine"] + "; 2 questions; beam 2 / 12")
    assert line[1:] == ["-", pairs[0], "-", "-", pairs[1]]
    (line,) = cells("ask-beams", report, report)[2:]
    assert line[5] == f"{pairs[1]}; {pairs[1]}"
    without, with_facts = cells("ask-facts", report, plain)[2:]
    assert [without[5], with_facts[5]] == ["0.250", quality[0]]
    assert ", with --facts;" in with_facts[0]
    assert cells("ask-facts", report)[2:] == []
    ours, theirs = cells("ask-published", report)[2:]
    assert (ours[9], theirs[9]) == (quality[1], "0.500")
    text = TABLES["ask-published"]([report, report, published])
    assert text.count("[a page](https://x)") == 1

    untimed = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
    here = [{**report, "data": "countries", "rows": untimed}, {**alone, "data": "countries"}]
    head, _, _, line = cells("ask-countries", *here)
    assert (head, line) == (["shape", "questions", "MRR", "Hits@3"], ["up", "3", *quality])
    timed = f"{one['seconds']:.2g} s, the least of 50 times; load {one['load']:.1f}."
    assert timed in TABLES["ask-countries"](here)
    page = tables.page_with_tables("<!-- table ask-countries -->\n<!-- end -->", [report, alone])
    assert page == "<!-- table ask-countries -->\n\nNot measured yet.\n\n<!-- end -->"
    of_valid = {**report, "split": "valid"}
    assert "; FB15k-237, questions of valid; complex" in TABLES["ask"]([of_valid])
    assert "allneg" not in TABLES["ask-published"]([of_valid, published])


def test_the_benchmark_of_questions_looks_at_each_question_once(monkeypatch):
    import bench_ask

    looks = []

    class Item:
        def __init__(self, number):
            self.number = number

        @property
        def shape(self):
            looks.append(self.number)
            return f"shape {self.number % 3}"

    groups = []
    monkeypatch.setattr(bench_ask, "evaluate_queries", lambda search, asked: None)
    monkeypatch.setattr(bench_ask, "row", lambda search, asked: groups.append(asked) or {})
    items = [Item(number) for number in range(30)]
    list(bench_ask.measured([None, None], items, compared=2))
    assert looks == list(range(30))
    of_shape = [items[i::3] for i in range(3)]
    assert groups == of_shape + 2 * [some[:2] for some in of_shape]


def test_the_best_mrr_with_the_filter_seen_counts_answers_in_test(measured, tmp_path):
    graph = tmp_path / "graph"
    graph.mkdir()
    (graph / "train.tsv").write_text("a\tr\tb\nc\tr\td\ne\tr\tf\n")
    (graph / "valid.tsv").write_text("a\tr\tc\n")
    (graph / "test.tsv").write_text("a\tr\td\na\tr\te\n")
    (row,) = measured("bench_filter.py", graph)["rows"]
    # (a, r, ?) has two answers in test: ranks 1, 2 and 3. (?, r, c) has none.
    assert row == {"graph": "graph", "mrr": round(((1 + 1 / 2 + 1 / 3) / 3 + 1) / 2, 5)}


def test_jobs_of_a_lane_run_in_turn_and_lanes_side_by_side(tmp_path, home):
    lines = [
        "# lane, name, command",
        "one\twait\tuntil [ -f $WORK/ready ]; do sleep 0.05; done; echo $(left 5) > $OUT/left",
        "one\tfail\tcat $OUT/left; exit 3",
        "two\tsignal\ttouch $WORK/ready",
    ]
    (tmp_path / "jobs.tsv").write_text("\n".join(lines))
    options = (str(tmp_path / "jobs.tsv"), "--minutes", "1", "--work", str(tmp_path / "work"))
    _run("gpu_jobs.py", *options, home=home)
    state = json.loads((tmp_path / "work" / "state.json").read_text())
    assert {name: job["code"] for name, job in state.items()} == {"wait": 0, "fail": 3, "signal": 0}
    assert 0 < int((tmp_path / "work" / "log" / "fail.log").read_text()) <= 55


def test_jobs_wait_for_others_unless_these_are_left_out(tmp_path, home):
    lines = [
        "quiet\tfirst\tsleep 1.5; touch $OUT/first",
        "quiet\tlast\ttouch $OUT/last",
        "shared\tjob\tafter first; after quiet; ls $OUT",
    ]
    (tmp_path / "jobs.tsv").write_text("\n".join(lines))
    options = (str(tmp_path / "jobs.tsv"), "--minutes", "1", "--work", str(tmp_path / "work"))
    log = tmp_path / "work" / "log" / "job.log"
    _run("gpu_jobs.py", *options, "--only", "last,job", home=home)
    assert log.read_text().split() == ["last"]
    _run("gpu_jobs.py", *options, home=home)
    assert log.read_text().split() == ["first", "last"]
    _run("gpu_jobs.py", *options, "--only", "job", home=home)


def test_the_programs_of_the_gpu_jobs_exist():
    text = (ROOT / "benchmarks" / "gpu_jobs.tsv").read_text()
    jobs = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    assert all(len(job) == 3 for job in jobs)
    named = {word for job in jobs for word in job[2].split() if word.endswith(".py")}
    assert named
    assert all((ROOT / name).exists() for name in named)
    waited = {name for job in jobs for name in re.findall(r"\bafter (\S+);", job[2])}
    lanes, names = {job[0] for job in jobs}, {job[1] for job in jobs}
    assert waited  # each is a job or a lane, not both; else a job waits for ever
    assert waited <= lanes ^ names


def test_runs_that_differ_in_one_size_are_one_table_with_a_column_for_it():
    import speed_tables

    card = {"machine": "NVIDIA X", "torch": "2", "triton": "3", "threads": 1, "profile": True}
    task = {"data": "made up", "entities": 40, "dim": 4}
    runs = [
        {"machine": "CPU", "torch": "2", "threads": 2, "profile": True, **task, "batch": 5,
         "microseconds": {"float32": {"products": 1.0}}},
        {**card, **task, "batch": 50, "microseconds": {"tf32": {"products": 2.0}}},
        {**card, **task, "batch": 60, "microseconds": {"tf32": {"products": 3.0}}},
        {**card, **task, "data": "g", "batch": 50, "microseconds": {"tf32": {"products": 4.0}}},
    ]  # fmt: skip
    gpu, cpu = speed_tables.TABLES["profile"](runs).strip().split("\n\nCPU")
    assert gpu.startswith("NVIDIA X, torch 2, triton 3; dim 4; µs per step:")
    synthetic = "a synthetic graph (40 entities)"
    heads = ["g (40 entities), batch 50", f"{synthetic}, batch 50", f"{synthetic}, batch 60"]
    assert "|  | " + " | ".join(f"tf32, {head}" for head in heads) + " |\n" in gpu
    assert "| matrix products | 4 | 2 | 3 |\n" in gpu
    assert cpu.startswith(f", 2 threads, torch 2; {synthetic}; dim 4; batch 5; µs per step:")


def test_what_only_a_later_run_has_is_a_column():
    import speed_tables

    card = {"machine": "NVIDIA X", "torch": "2", "triton": "3", "dim": 4}
    ranked = [
        {**card, "ranking": True, "data": data, "entities": 9, "rows": [row]}
        for data, row in (
            ("a", {"way": "w", "seconds": 1.0, "ranked": 10}),
            ("b", {"way": "w", "seconds": 2.0, "ranked": 20}),
        )
    ]
    text = speed_tables.TABLES["ranking"](ranked)
    assert "| graph | queries ranked |  | seconds | relative time |\n" in text
    assert "| b (9 entities) | 20 | w | 2 | 1 |\n" in text
    row = {"graph": "a", "most": None, "valid_mrr": 0.5, "seconds": 3}
    limits = [
        {
            **card,
            "max_answers": "complex",
            "epochs": 1,
            "answers": 2,
            "settings": some,
            "rows": [row],
        }
        for some in (["model.dim=4"], ["model.dim=4", "training.seed=1"])
    ]
    text = speed_tables.TABLES["answers"](limits)
    assert "| graph | `training.seed` | not grouped |\n" in text
    assert "| a | - | 0.5000, 3 s |\n| a | 1 | 0.5000, 3 s |\n" in text


def test_a_second_run_of_distances_adds_only_its_own_ways():
    import tables

    card = {"kernel": "l1", "machine": "NVIDIA X", "torch": "2", "triton": "3"}
    row = {"b": 1, "n": 2, "dim": 3}
    second = [{**row, "way": way, "milliseconds": ms} for way, ms in (("engine", 9), ("other", 7))]
    first = [
        {**row, "way": way, "milliseconds": ms} for way, ms in (("engine", 5), ("captured", 4))
    ]
    text = tables.distances([{**card, "rows": second}, {**card, "rows": first}], "l1")
    assert "; of a second run: other:\n" in text
    assert "| B | N | D | engine | captured | other |\n" in text
    assert "| 1 | 2 | 3 | 5 | 4 | 7 |\n" in text
