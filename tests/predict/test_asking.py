"""What the service asks of the predictor beyond tails and heads."""

from __future__ import annotations

import math

import numpy as np
import pytest

from allneg.errors import RecipeError
from allneg.graph import Graph
from allneg.graph.queries import SIDES
from allneg.graph.vocabulary import Vocabulary
from allneg.kernels.packed import can_pack
from allneg.models import MODELS
from allneg.predict.predictor import Predictor, load
from allneg.runs import Run
from allneg.scoring import Shard, Tables


@pytest.fixture(scope="module")
def predictor(toy_run: Run) -> Predictor:
    return load(toy_run.folder, device="cpu")


def test_one_batch_asks_for_heads_and_tails(predictor: Predictor) -> None:
    asked = [("tail", "France", "in"), ("head", "Europe", "in"), ("tail", "Paris", "capital_of")]
    found = predictor.ask(asked, k=12)  # type: ignore[arg-type]
    for (side, entity, relation), answers in zip(asked, found, strict=True):
        alone = predictor.answer([(entity, relation)], side, 12)[0]  # type: ignore[arg-type]
        assert [each.entity for each in answers.predictions] == [each.entity for each in alone]


def test_the_rest_is_what_train_does_not_know(predictor: Predictor) -> None:
    answers = predictor.ask([("head", "Europe", "in")], k=12)[0]
    unknown = [each.score for each in answers.predictions if each.known != "train"]
    assert len(unknown) == 8
    expected = math.log(sum(math.exp(score) for score in unknown))
    assert answers.logsumexp == pytest.approx(expected, rel=1e-5)
    # What is left out of the list does not change it.
    assert (
        predictor.ask([("head", "Europe", "in")], k=1, new=True)[0].logsumexp == answers.logsumexp
    )


def test_relations_between_two_entities_are_scored_as_tails_are(predictor: Predictor) -> None:
    found = predictor.relations("Italy", "France")
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert {each.relation: each.known for each in found} == {
        "borders": "valid",
        "in": None,
        "capital_of": None,
    }
    for each in found:
        tails = {e.entity: e.score for e in predictor.tails("Italy", each.relation, k=12)}
        assert each.score == pytest.approx(tails["France"], rel=1e-5)
    assert sum(each.probability for each in found) == pytest.approx(1)
    new = predictor.relations("Italy", "France", new=True)
    assert new == [each for each in found if each.known is None]
    assert predictor.relations("Italy", "France", k=1) == found[:1]


@pytest.mark.parametrize("name", MODELS)
def test_packed_rows_score_the_same(name: str) -> None:
    model = MODELS[name](6, 0.5)
    tables = Tables.start(model, 3, Shard.whole(50), reciprocal=False, seed=1)
    names = Vocabulary(tuple(f"e{i}" for i in range(50)), ("a", "b", "c"))
    nothing = np.zeros((0, 3), dtype=np.int64)
    plain = Predictor(model, tables, Graph("none", names, nothing, nothing, nothing), {})
    quick = plain.quick()
    assert (quick.packed is not None) == (model.kernel == "dot" and can_pack())
    asked = [(SIDES[i % 2], f"e{i}", names.relations[i % 3]) for i in range(7)]
    for expected, found in zip(plain.ask(asked, k=50), quick.ask(asked, k=50), strict=True):
        scores = {each.entity: each.score for each in expected.predictions}
        assert {each.entity: each.score for each in found.predictions} == pytest.approx(scores)
        assert found.logsumexp == pytest.approx(expected.logsumexp, rel=1e-5)


def test_a_question_gets_the_same_numbers_alone_and_among_others(predictor: Predictor) -> None:
    if predictor.packed is None:
        pytest.skip("rows cannot be packed here: no oneDNN")
    names = predictor.graph.vocabulary.entities
    asked = [(SIDES[i % 2], name, "in") for i, name in enumerate(names)]
    together = predictor.ask(asked, k=5)
    assert [predictor.ask([each], k=5)[0] for each in asked] == together


@pytest.mark.parametrize("k", [0, -1])
def test_no_relations_are_too_few(predictor: Predictor, k: int) -> None:
    with pytest.raises(RecipeError, match="at least 1"):
        predictor.relations("Italy", "France", k=k)


def test_what_is_no_side_is_named(predictor: Predictor) -> None:
    with pytest.raises(RecipeError, match="'both' is not a side"):
        predictor.answer([("Italy", "borders")], "both")  # type: ignore[arg-type]
