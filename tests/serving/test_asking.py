"""What the service asks of the predictor beyond tails and heads."""

from __future__ import annotations

import math

import pytest
import torch

from allneg.graph.questions import SIDES, Questions
from allneg.models import MODELS
from allneg.run import Run
from allneg.scoring import Shard, Tables, scores
from allneg.serving.predictor import Predictor, by_columns, load


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
    assert answers.rest == pytest.approx(expected, rel=1e-5)
    # What is left out of the list does not change it.
    assert predictor.ask([("head", "Europe", "in")], k=1, new=True)[0].rest == answers.rest


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
def test_a_table_by_columns_scores_the_same(name: str) -> None:
    model = MODELS[name](6, 0.5)
    tables = Tables.start(model, 3, Shard.whole(50), reciprocal=False, seed=1)
    turned = by_columns(tables)
    draw = torch.Generator().manual_seed(0)
    entity, relation = (torch.randint(most, (7,), generator=draw) for most in (50, 3))
    for side in SIDES:
        questions = Questions.asking(side, entity, relation, entity)
        with torch.no_grad():
            torch.testing.assert_close(
                scores(model, turned, questions), scores(model, tables, questions)
            )
