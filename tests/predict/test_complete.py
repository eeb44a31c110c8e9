from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allneg.errors import DataError, Diverged, UsageError
from allneg.evaluation.within import Within
from allneg.graph.queries import KnownAnswers, Queries
from allneg.models import MODELS
from allneg.predict import complete as module
from allneg.predict.agreement import Agreement
from allneg.predict.complete import Completion
from allneg.predict.fact_files import check_new_file, write_rows
from allneg.predict.new_facts import Found, NewFact
from allneg.predict.predictor import Predictor
from allneg.predict.reach import Reach, SharpReach
from allneg.scoring.scores import query_vectors
from brute_force import known_facts, make_predictor, margins, new_facts, probabilities
from interpreter import interpreted, needs_triton

IDENTITY = "this run, these options"


def search(predictor: Predictor, top: int, **options: object) -> Completion:
    relations = range(predictor.graph.n_relations)
    return Completion(predictor, relations, top, **options)  # type: ignore[arg-type]


def check(found: Completion, expected: dict[tuple[int, int, int], float]) -> None:
    """The facts are the most probable ones; those as probable as the last one may be others."""
    best = sorted(expected.values(), reverse=True)[: found.top]
    triples = [tuple(triple) for triple in found.found.triples.tolist()]
    assert found.found.probability.tolist() == pytest.approx(best, abs=1e-5)
    assert found.found.probability.tolist() == pytest.approx(
        [expected[triple] for triple in triples], abs=1e-5
    )
    assert len(set(triples)) == len(triples)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=4, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    top=st.sampled_from([1, 3, 10, 1000]),
    least=st.sampled_from([0.0, 0.1, 0.3]),
    block=st.sampled_from([1, 7, 1000]),
    reciprocal=st.booleans(),
    ties=st.booleans(),
)
def test_the_facts_are_those_of_brute_force(
    name: str, seed: int, top: int, least: float, block: int, reciprocal: bool, ties: bool
) -> None:
    predictor = make_predictor(name, seed, reciprocal, ties)
    expected = {fact: p for fact, p in new_facts(predictor).items() if p >= least + 1e-5}
    unclear = any(abs(p - least) < 1e-5 for p in probabilities(predictor).values())
    found = search(predictor, top, min_probability=least)
    found.block = block
    assert found.run()
    if not unclear:
        check(found, expected)


@pytest.mark.parametrize("has_loop", [False, True])
def test_an_entity_is_linked_with_itself_only_if_train_has_such_facts(has_loop: bool) -> None:
    predictor = make_predictor("distmult", 3)
    graph, sizes = predictor.graph, (predictor.graph.n_entities, predictor.graph.n_relations)
    rows = [[0, 0, 1], [1, 0, 0], [2, 0, 2 if has_loop else 1]]
    graph = replace(graph, train=np.array(rows), valid=np.array([[0, 0, 2]]), test=graph.test[:0])
    known = {s: KnownAnswers.of([graph.split(s)], *sizes) for s in ("train", "valid")}
    found = search(replace(predictor, graph=graph, known=known), 1000)
    found.run()
    loops = {(h, r) for h, r, t in found.found.triples.tolist() if h == t}
    expected = {(h, 0) for h in range(sizes[0]) if h != 2}
    assert loops == (expected if has_loop else set())


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000), top=st.sampled_from([1, 5, 1000]), data=st.data())
def test_a_search_may_ask_some_heads_and_relations_only(
    seed: int, top: int, data: st.DataObject
) -> None:
    predictor = make_predictor("complex", seed)
    graph = predictor.graph
    entities = st.integers(0, graph.n_entities - 1)
    heads = data.draw(st.lists(entities, min_size=1, unique=True))
    relation = data.draw(st.integers(0, graph.n_relations - 1))
    found = Completion(predictor, [relation], top, heads=torch.tensor(heads))
    assert found.run()
    check(
        found,
        {
            (h, r, t): p
            for (h, r, t), p in new_facts(predictor).items()
            if h in heads and r == relation
        },
    )


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["seen", "list"]))
def test_facts_within_a_set_have_both_ends_in_it(name: str, seed: int, kind: str) -> None:
    predictor = make_predictor(name, seed)
    graph = predictor.graph
    within = Within.parse("seen", graph)
    allowed = {(side, r): set() for side in (0, 1) for r in range(graph.n_relations)}
    for h, r, t in graph.train.tolist():
        allowed[1, r].add(h)
        allowed[0, r].add(t)
    if kind == "list":
        mask = np.random.default_rng(seed).random(graph.n_entities) < 0.6
        within = Within("a list", torch.from_numpy(mask))
        allowed = {key: set(np.flatnonzero(mask).tolist()) for key in allowed}
    expected = {
        (h, r, t): p
        for (h, r, t), p in new_facts(predictor).items()
        if h in allowed[1, r] and t in allowed[0, r]
    }
    found = search(predictor, 8, within=within)
    found.run()
    check(found, expected)
    n_heads = sum(len(allowed[1, r]) for r in range(graph.n_relations))
    assert found.total - found.skipped == n_heads


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("reciprocal", [False, True])
def test_no_margin_is_above_the_bound(name: str, reciprocal: bool) -> None:
    for seed in range(5):
        predictor = make_predictor(name, seed, reciprocal)
        reach, n = Reach(predictor), predictor.graph.n_entities
        known = known_facts(predictor.graph)
        for h in range(n):
            found = margins(predictor, "tail", h, 0)
            new = [m for t, m in found.items() if known.get((h, 0, t)) != "train"]
            queries = Queries.of(torch.tensor([[h, 0, 0]]), "tail")
            assert not new or max(new) <= float(reach(queries)) + 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_the_best_head_of_a_tail_is_a_new_one(name: str) -> None:
    predictor = make_predictor(name, 5)
    found, known = search(predictor, 3), known_facts(predictor.graph)
    found.run()
    assert not predictor.graph.has_loops[0]
    for tail in range(predictor.graph.n_entities):
        of_heads = margins(predictor, "head", tail, 0).items()
        new = [m for h, m in of_heads if (h, 0, tail) not in known and h != tail]
        assert float(found.head_highest[0, tail]) == pytest.approx(max([-16, *new]), abs=1e-4)


@pytest.fixture
def sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search by dot products bounds its margins without stored scores."""
    monkeypatch.setattr(module, "is_sharper", lambda predictor, *_: is_dot(predictor))


def is_dot(predictor: Predictor) -> bool:
    return predictor.model.kernel.name == "dot"


DOT = [name for name in MODELS if is_dot(make_predictor(name, 0))]


@pytest.mark.usefixtures("sharp")
@pytest.mark.parametrize("name", DOT)
@pytest.mark.parametrize("top", [1, 4, 1000])
def test_sharp_bounds_do_not_change_the_facts(name: str, top: int) -> None:
    for seed in range(10):
        predictor = make_predictor(name, seed, reciprocal=seed % 2 == 0, ties=seed % 3 == 0)
        predictor.tables.entities *= 2
        found = search(predictor, top)
        found.block = 1 + seed
        assert isinstance(found.sharp_reach, SharpReach)
        assert found.run()
        check(found, new_facts(predictor))


@pytest.mark.parametrize(
    "interpret", [False, pytest.param(True, marks=needs_triton)], ids=["reference", "triton"]
)
@pytest.mark.parametrize("name", ["complex", "rescal"])
def test_sharp_bounds_are_just_above_the_best_margin(
    name: str, interpret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = make_predictor(name, 5)
    predictor.tables.entities *= 3
    graph = predictor.graph
    n, known, loops = graph.n_entities, known_facts(graph), graph.has_loops[0]
    if interpret:
        interpreted("allneg.kernels.attention.gpu")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    found = search(predictor, 3)
    queries = Queries.of(torch.tensor([[h, 0, 0] for h in range(n)]), "tail")
    bound = SharpReach(predictor)(queries, found._not_new(queries))
    longest = predictor.tables.entities.norm(dim=1).max()
    size = query_vectors(predictor.model, predictor.tables, queries).norm(dim=1) * longest
    for h in range(n):
        of_tails = margins(predictor, "tail", h, 0).items()
        new = [m for t, m in of_tails if (h, 0, t) not in known and (loops or t != h)]
        assert max(new) <= float(bound[h]) <= max(new) + 0.1 + 0.02 * float(size[h])


def test_sharp_bounds_allow_for_the_rounding_of_both_operands() -> None:
    predictor = make_predictor("distmult", 5)
    graph, entities = predictor.graph, predictor.tables.entities
    down, up = 8 * (1 + 2**-8), 8 * (1 + 3 * 2**-8)  # bfloat16 rounds one down, the other up
    known = known_facts(graph)
    head, relation, tail = next(fact for fact in graph.valid.tolist() if fact[0] != fact[2])
    others = set(range(graph.n_entities)) - {head}
    new = next(other for other in others if (head, relation, other) not in known)
    half = entities.shape[1] // 2
    entities.zero_()
    entities[head, :half], entities[head, half:] = down / 8, -up / 8
    entities[new, :half], entities[tail, half:] = down, up
    predictor.tables.relations[relation, :half], predictor.tables.relations[relation, half:] = 8, -8
    queries = Queries.of(torch.tensor([[head, relation, new]]), "tail")
    bound = SharpReach(predictor)(queries, search(predictor, 1)._not_new(queries))
    assert float(bound) >= margins(predictor, "tail", head, relation)[new]


@pytest.mark.usefixtures("sharp")
def test_sharp_bounds_allow_sets_without_entities() -> None:
    predictor = make_predictor("complex", 5)
    nothing = Within("nothing", torch.zeros(predictor.graph.n_entities, dtype=torch.bool))
    found = search(predictor, 3, within=nothing)
    assert found.run()
    assert (len(found.found), found.skipped) == (0, found.total)


@pytest.mark.usefixtures("sharp")
def test_sharp_bounds_leave_out_more_questions() -> None:
    predictor = make_predictor("complex", 3)
    predictor.tables.entities *= 4
    every = search(predictor, 1)
    every.run()
    least = float(every.found.probability[0]) - 1e-6
    strict, plain = (search(predictor, 1, min_probability=least) for _ in range(2))
    plain.sharp_reach = None
    assert strict.run()
    assert plain.run()
    assert strict.found.triples.tolist() == plain.found.triples.tolist()
    assert plain.skipped < strict.skipped < strict.total


@pytest.mark.usefixtures("sharp")
def test_sharp_bounds_of_a_diverged_model_are_an_error() -> None:
    predictor = make_predictor("complex", 3)
    predictor.tables.entities[0] = torch.nan
    with pytest.raises(Diverged):
        search(predictor, 1).run()


def test_questions_that_cannot_reach_the_probability_are_skipped() -> None:
    plain = Agreement(np.ones(2), np.zeros(2), np.zeros(2), np.zeros(3))
    predictor = replace(make_predictor("distmult", 3), fitted=plain)
    predictor.tables.entities[:2] *= 4
    predictor.tables.entities[2:] *= 1e-3  # all answers to their questions have nearly one score
    every = search(predictor, 3)
    every.run()
    assert every.skipped == 0
    strict = search(predictor, 3, min_probability=float(every.found.probability[0]) - 1e-6)
    strict.run()
    assert 0 < strict.skipped < strict.total
    assert strict.found.triples.tolist() == every.found.triples[:1].tolist()


@pytest.mark.parametrize("stop_after", [0, 1, 2, 4, 9])
def test_a_search_that_was_stopped_continues(tmp_path: Path, stop_after: int) -> None:
    predictor, path = make_predictor("complex", 11), tmp_path / "new.partial"
    whole = search(predictor, 9)
    assert whole.run()
    first = search(predictor, 9)
    first.block, calls = 2, 0

    def stopped_by() -> int:
        nonlocal calls
        calls += 1
        return int(calls > stop_after)

    first.run(stopped_by=stopped_by)
    first.save(path, IDENTITY)
    second = search(predictor, 9)
    second.block = 3
    assert second.restore(path, IDENTITY)
    assert second.done == first.done
    assert second.run()
    assert second.found.triples.tolist() == whole.found.triples.tolist()
    assert second.found.probability == pytest.approx(whole.found.probability)


def test_a_search_with_other_options_is_not_continued(tmp_path: Path) -> None:
    found = search(make_predictor("complex", 1), 3)
    assert not found.restore(tmp_path / "none.partial", IDENTITY)
    (tmp_path / "empty.partial").touch()
    with pytest.raises(DataError, match=r"damaged: delete it, or choose another --out"):
        found.restore(tmp_path / "empty.partial", IDENTITY)
    found.save(tmp_path / "new.partial", "another run")
    with pytest.raises(UsageError, match="from a search with another run or other options"):
        found.restore(tmp_path / "new.partial", IDENTITY)


def test_pending_facts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = make_predictor("complex", 4)
    whole = search(predictor, 5)
    whole.run()
    monkeypatch.setattr(module, "_MOST_PENDING", 3)
    bounded = search(predictor, 5)
    bounded.block, most = 1, 0

    def on_block(found: Completion) -> None:
        nonlocal most
        most = max(most, sum(len(triples) for triples, *_ in found.pending))

    bounded.run(on_block)
    assert most <= 3
    assert bounded.found.probability == pytest.approx(whole.found.probability)


def test_without_valid_there_is_nothing_to_calibrate_with() -> None:
    predictor = make_predictor("complex", 1)
    graph = replace(predictor.graph, valid=predictor.graph.valid[:0])
    none = replace(predictor, graph=graph, known={"train": predictor.known["train"]}, fitted=None)
    with pytest.raises(DataError, match="without valid there are no calibrated probabilities"):
        search(none, 3)


def test_equal_probabilities_are_ordered_by_ids() -> None:
    triples = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0], [2, 0, 2]])
    numbers = np.array([0.5, 0.5, 0.5, 0.9])
    found = Found(triples, numbers, numbers)
    best = Found.empty().best(3, found)
    assert best.triples.tolist() == [[2, 0, 2], [0, 0, 0], [0, 0, 1]]
    assert best.best(3, found).triples.tolist() == best.triples.tolist()  # each fact once


def test_facts_are_written_in_four_formats(tmp_path: Path) -> None:
    found = search(make_predictor("complex", 2), 4)
    found.run()
    rows = [vars(fact) for fact in found.facts()]
    assert [row["probability"] for row in rows] == found.found.probability.tolist()
    for suffix in ("tsv", "csv", "jsonl", "parquet"):
        if suffix == "parquet":
            pytest.importorskip("pyarrow")
        path = tmp_path / f"new.{suffix}"
        check_new_file(path)
        write_rows(path, NewFact, found.facts())
        if suffix in ("tsv", "csv"):
            lines = list(csv.reader(path.open(), delimiter={"tsv": "\t", "csv": ","}[suffix]))
            assert (lines[0] == list(rows[0])) == (suffix == "csv")
            read = [
                dict(zip(rows[0], (*line[:3], *map(float, line[3:])), strict=True))
                for line in lines[suffix == "csv" :]
            ]
        elif suffix == "jsonl":
            read = [json.loads(line) for line in path.read_text().splitlines()]
        else:
            import pyarrow.parquet

            read = pyarrow.parquet.read_table(path).to_pylist()
        assert read == rows


def test_python_gives_the_same_facts() -> None:
    predictor = make_predictor("complex", 2)
    found = search(predictor, 4, min_probability=0.01)
    found.run()
    assert predictor.complete(4, 0.01) == list(found.facts())
    only = predictor.complete(relations="r0", within="seen").to_pandas()
    assert set(only["relation"]) == {"r0"}
    assert len(only) < len(predictor.complete(relations=["r0"]))
    classified = predictor.classify([(f.head, f.relation, f.tail) for f in found.facts()])
    assert [f.probability for f in classified.triples] == pytest.approx(found.found.probability)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.3, 1.0]))
def test_excluded_facts_do_not_change_the_others(name: str, seed: int, share: float) -> None:
    predictor = make_predictor(name, seed)
    every = new_facts(predictor)
    chosen = np.random.default_rng(seed).random(len(every)) < share
    gone = [fact for fact, is_gone in zip(every, chosen, strict=True) if is_gone]
    found = search(predictor, 8, exclude=np.array(gone, dtype=np.int64).reshape(-1, 3))
    found.run()
    check(found, {fact: p for fact, p in every.items() if fact not in gone})


def test_python_takes_exclusions_in_a_list_a_table_or_a_file(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    predictor, path = make_predictor("complex", 2), tmp_path / "rejected.tsv"
    every = predictor.complete(6)
    rows = [(fact.head, fact.relation, fact.tail) for fact in every[:2]]
    write_rows(path, NewFact, every[:2])
    table = pandas.DataFrame(rows, columns=["head", "relation", "tail"])
    for exclude in (rows, table, path, str(path)):
        assert predictor.complete(4, exclude=exclude) == every[2:]
    with pytest.raises(DataError, match="fact 1: no entity is called 'x'"):
        predictor.complete(4, exclude=[("x", "r0", "e0")])
    with pytest.raises(UsageError, match="give at least one relation"):
        predictor.complete(4, relations=[])


def test_other_formats_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"write a \.tsv, \.csv, \.jsonl or \.parquet file"):
        check_new_file(tmp_path / "new.xlsx")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"Parquet needs pyarrow: pip install 'allneg\[tables\]'"):
        check_new_file(tmp_path / "new.parquet")
