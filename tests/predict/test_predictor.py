from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch

from allneg.errors import DataError, Diverged, RecipeError, RunError
from allneg.graph.queries import Queries
from allneg.predict import predictor as module
from allneg.predict.predictor import Prediction, Predictor, load
from allneg.runs import Run
from allneg.scoring import scores


@pytest.fixture(scope="module")
def predictor(toy_run: Run) -> Predictor:
    return load(toy_run.folder, device="cpu")


def test_tails_are_the_scores_of_every_entity_best_first(predictor: Predictor) -> None:
    names = predictor.graph.vocabulary
    found = predictor.tails("Spain", "borders", k=12)
    assert sorted(each.entity for each in found) == sorted(names.entities)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    spain, borders = (
        torch.tensor([names.entity("Spain")]),
        torch.tensor([names.relation("borders")]),
    )
    asked = Queries.asking("tail", spain, borders, spain)
    with torch.no_grad():
        values = scores(predictor.model, predictor.tables, asked)[0]
    expected = dict(zip(names.entities, values.tolist(), strict=True))
    # The predictor's packed rows round differently.
    assert {each.entity: each.score for each in found} == pytest.approx(expected, abs=1e-5)


def test_heads_are_asked_from_the_other_side(predictor: Predictor) -> None:
    names = predictor.graph.vocabulary
    found = predictor.heads("Europe", "in", k=12)
    europe, within = torch.tensor([names.entity("Europe")]), torch.tensor([names.relation("in")])
    asked = Queries.asking("head", europe, within, europe)
    with torch.no_grad():
        values = scores(predictor.model, predictor.tables, asked)[0]
    assert found[0].entity == names.entities[int(values.argmax())]
    assert found[0].score == pytest.approx(float(values.max()), rel=1e-5)


def test_known_facts_are_marked_by_their_split(predictor: Predictor) -> None:
    heads = {each.entity: each.known for each in predictor.heads("Europe", "in", k=12)}
    expected = dict.fromkeys(("France", "Spain", "Paris", "Madrid"), "train")
    expected |= {"Italy": "valid", "Portugal": "test", "Sicily": "test"}
    assert {name: split for name, split in heads.items() if split} == expected
    tails = {each.entity: each.known for each in predictor.tails("Italy", "borders", k=12)}
    assert {name: split for name, split in tails.items() if split} == {"France": "valid"}


def test_a_fact_in_two_splits_is_marked_by_the_first(
    predictor: Predictor,
) -> None:
    train = predictor.known["train"]
    twice = replace(predictor, known={"train": train, "valid": train, "test": train})
    assert {each.known for each in twice.tails("France", "borders", k=12)} == {"train", None}


def test_new_leaves_out_what_is_known(predictor: Predictor) -> None:
    everything = predictor.heads("Europe", "in", k=12)
    new = predictor.heads("Europe", "in", k=12, new=True)
    assert new == [each for each in everything if each.known is None]
    assert 0 < len(new) < 12
    assert predictor.heads("Europe", "in", k=2, new=True) == new[:2]


def test_probabilities_sum_to_one_over_all_entities(predictor: Predictor) -> None:
    found = predictor.tails("Paris", "in", k=12)
    assert math.isclose(sum(each.probability for each in found), 1, rel_tol=1e-5)
    # Leaving out what is known does not change the chance of the rest.
    chances = {each.entity: each.probability for each in found}
    for each in predictor.tails("Paris", "in", k=12, new=True):
        assert each.probability == chances[each.entity]


def test_more_answers_than_entities_are_all_of_them(predictor: Predictor) -> None:
    assert len(predictor.tails("Paris", "in", k=1_000_000)) == 12


@pytest.mark.parametrize("k", [0, -1])
def test_no_answers_cannot_be_asked_for(predictor: Predictor, k: int) -> None:
    with pytest.raises(RecipeError, match="at least 1"):
        predictor.tails("Paris", "in", k=k)


def test_near_names_are_suggested_on_a_typo(predictor: Predictor) -> None:
    with pytest.raises(DataError, match=r"^no entity is called 'Frence'; close names: 'France'"):
        predictor.tails("Frence", "borders")
    with pytest.raises(DataError, match=r"^no relation is called 'border'; close names: 'borders'"):
        predictor.heads("France", "border")
    with pytest.raises(DataError, match=r"^no entity is called '\\x1b\[2J'$"):
        predictor.tails("\x1b[2J", "borders")


def test_many_questions_are_answered_as_one_by_one(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = predictor.graph.vocabulary
    asked = [(entity, relation) for entity in names.entities for relation in names.relations]
    monkeypatch.setattr(module, "_MAX_SCORES", 5 * len(names.entities))  # 36 queries, 5 at once
    for side, one in (("tail", predictor.tails), ("head", predictor.heads)):
        many = predictor.answer(asked, side, k=4)  # type: ignore[arg-type]
        assert len(many) == len(asked)
        for query, found in zip(asked, many, strict=True):
            alone = one(*query, k=4)
            assert [each.known for each in found] == [each.known for each in alone]
            assert [each.score for each in found] == pytest.approx(
                [each.score for each in alone], rel=1e-5
            )


def test_no_questions_have_no_answers(predictor: Predictor) -> None:
    assert predictor.answer([], "tail") == []


def test_asking_changes_no_weights(predictor: Predictor) -> None:
    before = predictor.tables.entities.clone()
    predictor.tails("France", "borders")
    assert predictor.tables.entities.equal(before)
    assert not predictor.tables.entities.requires_grad


def test_a_diverged_model_has_no_answers(predictor: Predictor, toy_run: Run) -> None:
    broken = load(toy_run.folder, device="cpu")
    broken.tables.entities[0, 0] = torch.nan
    with pytest.raises(Diverged, match="not finite"):
        broken.tails("France", "borders")


def test_a_run_that_was_not_trained_has_no_answers(toy_copy: Run) -> None:
    shutil.rmtree(toy_copy.folder / "checkpoints")
    (toy_copy.folder / "checkpoints").mkdir()
    toy_copy.say("interrupted")
    with pytest.raises(RunError, match="nothing is trained yet; `allneg resume` it"):
        load(toy_copy.folder, device="cpu")


def test_a_prediction_is_plain_json() -> None:
    said = Prediction("é", 1.5, 0.25, None).to_json()
    assert json.loads(json.dumps(said)) == {
        "entity": "é",
        "score": 1.5,
        "probability": 0.25,
        "known": None,
    }
