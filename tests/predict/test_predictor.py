from __future__ import annotations

import json
import math
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from allneg.errors import DataError, Diverged, RunError, UsageError
from allneg.graph import Graph
from allneg.graph.graph import Vocabulary
from allneg.graph.queries import SIDES, Queries
from allneg.kernels.packed import can_pack
from allneg.models import MODELS
from allneg.predict import predictor as module
from allneg.predict.predictor import Predictor, load
from allneg.predict.results import Prediction, Results
from allneg.runs import Run
from allneg.scoring import Shard, Tables, scores


def test_tails_are_the_scores_of_every_entity_best_first(predictor: Predictor) -> None:
    names = predictor.graph.vocabulary
    found = predictor.tails("Spain", "borders", k=12)
    assert sorted(item.entity for item in found) == sorted(names.entities)
    assert [item.score for item in found] == sorted((item.score for item in found), reverse=True)
    spain, borders = (
        torch.tensor([names.entity("Spain")]),
        torch.tensor([names.relation("borders")]),
    )
    queries = Queries.for_side("tail", spain, borders, spain)
    with torch.no_grad():
        values = scores(predictor.model, predictor.tables, queries)[0]
    expected = dict(zip(names.entities, values.tolist(), strict=True))
    # The predictor's packed rows round differently.
    assert {item.entity: item.score for item in found} == pytest.approx(expected, abs=1e-5)


def test_heads_are_asked_from_the_other_side(predictor: Predictor) -> None:
    names = predictor.graph.vocabulary
    found = predictor.heads("Europe", "in", k=12)
    europe, within = torch.tensor([names.entity("Europe")]), torch.tensor([names.relation("in")])
    queries = Queries.for_side("head", europe, within, europe)
    with torch.no_grad():
        values = scores(predictor.model, predictor.tables, queries)[0]
    assert found[0].entity == names.entities[int(values.argmax())]
    assert found[0].score == pytest.approx(float(values.max()), rel=1e-5)


def test_known_facts_are_marked_by_their_split(predictor: Predictor) -> None:
    heads = {item.entity: item.known for item in predictor.heads("Europe", "in", k=12)}
    expected = dict.fromkeys(("France", "Spain", "Paris", "Madrid"), "train")
    expected |= {"Italy": "valid", "Portugal": "test", "Sicily": "test"}
    assert {name: split for name, split in heads.items() if split} == expected
    tails = {item.entity: item.known for item in predictor.tails("Italy", "borders", k=12)}
    assert {name: split for name, split in tails.items() if split} == {"France": "valid"}


def test_a_fact_in_two_splits_is_marked_by_the_first(
    predictor: Predictor,
) -> None:
    train = predictor.known["train"]
    twice = replace(predictor, known={"train": train, "valid": train, "test": train})
    assert {item.known for item in twice.tails("France", "borders", k=12)} == {"train", None}


def test_new_leaves_out_what_is_known(predictor: Predictor) -> None:
    everything = predictor.heads("Europe", "in", k=12)
    new = predictor.heads("Europe", "in", k=12, new=True)
    assert new == [item for item in everything if item.known is None]
    assert 0 < len(new) < 12
    assert predictor.heads("Europe", "in", k=2, new=True) == new[:2]


def test_shares_sum_to_one_over_all_entities(predictor: Predictor) -> None:
    found = predictor.tails("Paris", "in", k=12)
    assert math.isclose(sum(item.share for item in found), 1, rel_tol=1e-5)
    # Leaving out what is known does not change the share of the rest.
    shares = {item.entity: item.share for item in found}
    for item in predictor.tails("Paris", "in", k=12, new=True):
        assert item.share == shares[item.entity]


def test_more_answers_than_entities_are_all_of_them(predictor: Predictor) -> None:
    assert len(predictor.tails("Paris", "in", k=1_000_000)) == 12


@pytest.mark.parametrize("k", [0, -1])
def test_no_answers_cannot_be_asked_for(predictor: Predictor, k: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        predictor.tails("Paris", "in", k=k)


def test_close_names_are_suggested_on_a_typo(predictor: Predictor) -> None:
    with pytest.raises(DataError, match=r"^no entity is called 'Frence'; close names: 'France'"):
        predictor.tails("Frence", "borders")
    with pytest.raises(DataError, match=r"^no relation is called 'border'; close names: 'borders'"):
        predictor.heads("France", "border")
    with pytest.raises(DataError, match=r"^no entity is called '\\x1b\[2J'$"):
        predictor.tails("\x1b[2J", "borders")


def test_many_queries_are_answered_as_one_by_one(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = predictor.graph.vocabulary
    queries = [(entity, relation) for entity in names.entities for relation in names.relations]
    monkeypatch.setattr(module, "_MAX_SCORES", 5 * len(names.entities))  # 36 queries, 5 at once
    for side, one in (("tail", predictor.tails), ("head", predictor.heads)):
        many = predictor.answer(queries, side, k=4)  # type: ignore[arg-type]
        assert len(many) == len(queries)
        for query, found in zip(queries, many, strict=True):
            alone = one(*query, k=4)
            assert [item.known for item in found] == [item.known for item in alone]
            assert [item.score for item in found] == pytest.approx(
                [item.score for item in alone], rel=1e-5
            )


def test_no_queries_have_no_answers(predictor: Predictor) -> None:
    assert predictor.answer([], "tail") == []


def test_asking_changes_no_weights(predictor: Predictor) -> None:
    before = predictor.tables.entities.clone()
    predictor.tails("France", "borders")
    assert predictor.tables.entities.equal(before)
    assert not predictor.tables.entities.requires_grad


def test_a_diverged_model_has_no_answers(toy_run: Run) -> None:
    broken = load(toy_run.folder, device="cpu")
    broken.tables.entities[0, 0] = torch.nan
    with pytest.raises(Diverged, match="not finite"):
        broken.tails("France", "borders")


def test_a_run_that_was_not_trained_has_no_answers(toy_copy: Run) -> None:
    shutil.rmtree(toy_copy.folder / "checkpoints")
    (toy_copy.folder / "checkpoints").mkdir()
    toy_copy.set_status("interrupted")
    with pytest.raises(RunError, match="nothing is trained yet; run `allneg resume`"):
        load(toy_copy.folder, device="cpu")


def test_a_prediction_is_plain_json() -> None:
    data = Prediction("é", 1.5, 0.25, None).to_json()
    assert json.loads(json.dumps(data)) == {
        "entity": "é",
        "score": 1.5,
        "share": 0.25,
        "known": None,
        "calibrated": None,
    }


def test_one_batch_asks_for_heads_and_tails(predictor: Predictor) -> None:
    queries = [("tail", "France", "in"), ("head", "Europe", "in"), ("tail", "Paris", "capital_of")]
    found = predictor.answers(queries, k=12)  # type: ignore[arg-type]
    for (side, entity, relation), answers in zip(queries, found, strict=True):
        alone = predictor.answer([(entity, relation)], side, 12)[0]  # type: ignore[arg-type]
        assert [item.entity for item in answers.predictions] == [item.entity for item in alone]


def test_the_rest_is_what_train_does_not_know(predictor: Predictor) -> None:
    answers = predictor.answers([("head", "Europe", "in")], k=12)[0]
    unknown = [item.score for item in answers.predictions if item.known != "train"]
    assert len(unknown) == 8
    expected = math.log(sum(math.exp(score) for score in unknown))
    assert answers.logsumexp == pytest.approx(expected, rel=1e-5)
    # What is left out of the list does not change it.
    assert (
        predictor.answers([("head", "Europe", "in")], k=1, new=True)[0].logsumexp
        == answers.logsumexp
    )


def test_relations_between_two_entities_are_scored_as_tails_are(predictor: Predictor) -> None:
    found = predictor.relations("Italy", "France")
    assert [item.score for item in found] == sorted((item.score for item in found), reverse=True)
    assert {item.relation: item.known for item in found} == {
        "borders": "valid",
        "in": None,
        "capital_of": None,
    }
    for item in found:
        tails = {e.entity: e.score for e in predictor.tails("Italy", item.relation, k=12)}
        assert item.score == pytest.approx(tails["France"], rel=1e-5)
    assert sum(item.share for item in found) == pytest.approx(1)
    new = predictor.relations("Italy", "France", new=True)
    assert new == [item for item in found if item.known is None]
    assert predictor.relations("Italy", "France", k=1) == found[:1]


@pytest.mark.parametrize("name", MODELS)
def test_packed_rows_score_the_same(name: str) -> None:
    model = MODELS[name](6, 0.5)
    tables = Tables.create(model, 3, Shard.whole(50), reciprocal=False, seed=1)
    names = Vocabulary(tuple(f"e{i}" for i in range(50)), ("a", "b", "c"))
    nothing = np.zeros((0, 3), dtype=np.int64)
    plain = Predictor(model, tables, Graph("none", names, nothing, nothing, nothing), {})
    quick = plain.quick()
    assert (quick.packed is not None) == (model.kernel.name == "dot" and can_pack())
    queries = [(SIDES[i % 2], f"e{i}", names.relations[i % 3]) for i in range(7)]
    for expected, found in zip(
        plain.answers(queries, k=50), quick.answers(queries, k=50), strict=True
    ):
        scores = {item.entity: item.score for item in expected.predictions}
        assert {item.entity: item.score for item in found.predictions} == pytest.approx(scores)
        assert found.logsumexp == pytest.approx(expected.logsumexp, rel=1e-5)


def test_a_query_gets_the_same_numbers_alone_and_among_others(predictor: Predictor) -> None:
    if predictor.packed is None:
        pytest.skip("rows cannot be packed here: no oneDNN")
    names = predictor.graph.vocabulary.entities
    queries = [(SIDES[i % 2], name, "in") for i, name in enumerate(names)]
    together = predictor.answers(queries, k=5)
    assert [predictor.answers([item], k=5)[0] for item in queries] == together


@pytest.mark.parametrize("k", [0, -1])
def test_no_relations_are_too_few(predictor: Predictor, k: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        predictor.relations("Italy", "France", k=k)


def test_a_wrong_side_is_named(predictor: Predictor) -> None:
    with pytest.raises(UsageError, match="'both' is not a side"):
        predictor.answer([("Italy", "borders")], "both")  # type: ignore[arg-type]


def test_triples_are_scored_as_the_answers_of_tails(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allneg.predict.scorer._MAX_NUMBERS", 5 * predictor.model.entity_width)
    names = predictor.graph.vocabulary.entities
    triples = [("France", "in", name) for name in names]
    tails = {item.entity: item.score for item in predictor.tails("France", "in", k=12)}
    assert predictor.score(triples) == pytest.approx([tails[name] for name in names], abs=1e-5)
    assert predictor.score([]) == []
    with pytest.raises(DataError, match="no entity is called 'Frence'"):
        predictor.score([("Frence", "in", "Europe")])
    with pytest.raises(UsageError, match=r"expected \(head, relation, tail\), found \('France', "):
        predictor.score([("France", "borders")])


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_query_vectors_and_entity_vectors_give_the_scores(name: str, reciprocal: bool) -> None:
    model = MODELS[name](6, 0.5)
    tables = Tables.create(model, 2, Shard.whole(9), reciprocal=reciprocal, seed=1)
    names = Vocabulary(tuple(f"e{i}" for i in range(9)), ("a", "b"))
    nothing = np.zeros((0, 3), dtype=np.int64)
    predictor = Predictor(model, tables, Graph("none", names, nothing, nothing, nothing), {})
    rows = torch.from_numpy(predictor.embedding(names.entities))
    assert rows.equal(tables.entities)
    for given, ask in (("head", predictor.tails), ("tail", predictor.heads)):
        query = torch.from_numpy(predictor.query_vector(relation="b", **{given: "e3"}))
        assert query.shape == (model.entity_width,)
        found = model.kernel.scores(query.unsqueeze(0), rows)[0]
        expected = {item.entity: item.score for item in ask("e3", "b", k=9)}
        assert dict(zip(names.entities, found.tolist(), strict=True)) == pytest.approx(expected)
    row = predictor.relation_embedding("b", side="head")
    assert torch.from_numpy(row).equal(tables.relations[3 if reciprocal else 1])
    assert predictor.relation_embedding(["b", "a"]).tolist() == tables.relations[[1, 0]].tolist()
    assert predictor.embedding("e4").tolist() == tables.entities[4].tolist()
    assert predictor.embedding([]).shape == (0, model.entity_width)


def test_a_query_vector_needs_one_known_entity(predictor: Predictor) -> None:
    for wrong in ({}, {"head": "France", "tail": "Spain"}):
        with pytest.raises(UsageError, match="give either head or tail"):
            predictor.query_vector(relation="borders", **wrong)
    with pytest.raises(UsageError, match="'both' is not a side"):
        predictor.relation_embedding("borders", side="both")  # type: ignore[arg-type]


def test_neighbours_have_the_largest_cosines(predictor: Predictor) -> None:
    found = predictor.neighbours("Paris", k=99)
    names = [name for name in predictor.graph.vocabulary.entities if name != "Paris"]
    paris, others = predictor.embedding("Paris"), predictor.embedding(names)
    norms = np.linalg.norm(others, axis=1) * np.linalg.norm(paris)
    expected = dict(zip(names, (others @ paris / norms).tolist(), strict=True))
    assert {item.entity: item.similarity for item in found} == pytest.approx(expected, abs=1e-5)
    ranked = [item.similarity for item in found]
    assert ranked == sorted(ranked, reverse=True)
    assert predictor.neighbours("Paris", k=2) == found[:2]


def test_results_become_tables_of_pandas_and_arrow(predictor: Predictor) -> None:
    found = predictor.tails("France", "in", k=3)
    rows = [item.to_json() for item in found]
    frame = found.to_pandas()
    assert list(frame.columns) == ["entity", "score", "share", "known", "calibrated"]
    assert frame["entity"].tolist() == [item.entity for item in found]
    assert found.to_arrow().to_pylist() == rows
    nothing = Results(Prediction)
    assert nothing.to_arrow().column_names == list(nothing.to_pandas().columns) == list(rows[0])


def test_a_missing_package_is_named_with_its_extra(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = predictor.neighbours("Paris")
    for package, method in (("pandas", found.to_pandas), ("pyarrow", found.to_arrow)):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UsageError, match=rf"needs {package}: pip install 'allneg\[tables\]'"):
            method()
