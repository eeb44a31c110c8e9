from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allneg.graph import Graph, Vocabulary
from allneg.predict.predictor import Calibration, Predictor, isotonic, load
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training import fit


@pytest.fixture(scope="module")
def predictor(toy_run) -> Predictor:
    return load(toy_run.folder, device="cpu")


def test_neighbours_in_the_wrong_order_are_pooled() -> None:
    right, total = np.array([0.0, 30.0, 10.0, 90.0]), np.array([99.0, 99.0, 100.0, 100.0])
    pooled = 40.5 / 200
    assert isotonic(right, total).tolist() == pytest.approx([0.5 / 100, pooled, pooled, 90.5 / 101])


def test_shares_never_decrease_and_are_never_certain() -> None:
    draw = np.random.default_rng(3)
    total = draw.integers(1, 50, 200).astype(float)
    right = np.floor(total * draw.random(200))
    shares = isotonic(right, total)
    assert (np.diff(shares) >= 0).all()
    assert shares.min() > 0
    assert shares.max() < 1


def test_shares_that_rise_already_are_kept() -> None:
    total = np.full(5, 1e6)
    right = total * np.array([0.1, 0.2, 0.5, 0.7, 0.9])
    assert isotonic(right, total) == pytest.approx(right / total, abs=1e-5)


def test_a_larger_margin_is_never_less_likely(predictor: Predictor) -> None:
    calibration = Calibration.fit(predictor)
    assert calibration is not None
    found = calibration(np.linspace(-40, 5, 400).tolist())
    assert found == sorted(found)
    assert all(0 < item < 1 for item in found)
    assert found[0] < found[-1]


def test_valid_gives_the_rate_of_right_answers(predictor: Predictor) -> None:
    """Over valid's own candidates, the expected right answers are about those that are right."""
    calibration = Calibration.fit(predictor)
    assert calibration is not None
    assert calibration.n_queries == 4
    expected = 0.0
    for head, relation, tail in predictor.graph.valid.tolist():
        names = predictor.graph.vocabulary
        for side, entity in (("tail", head), ("head", tail)):
            queries = (side, names.entities[entity], names.relations[relation])
            answers = predictor.ask([queries], k=12)[0]  # type: ignore[list-item]
            counted = [e.score - answers.logsumexp for e in answers.predictions
                       if e.known in (None, "valid")]  # fmt: skip
            expected += sum(calibration(counted))
    # 4 queries with one right answer each; smoothing moves each pool by up to half a fact.
    assert 2.5 < expected < 7


def test_without_valid_there_is_no_calibration(predictor: Predictor) -> None:
    none = replace(predictor, known={"train": predictor.known["train"]})
    assert Calibration.fit(none) is None


def test_the_description_names_the_data(predictor: Predictor) -> None:
    calibration = Calibration.fit(predictor)
    assert calibration is not None
    assert "isotonic" in calibration.description
    assert "4 queries of valid" in calibration.description


def test_a_query_of_many_answers_counts_once(tmp_path: Path, quick: Callable[..., Recipe]) -> None:
    """Ten answers to one query and one to ten others: 20 of 11 queries, not 110 of 20."""
    names = tuple(f"e{i}" for i in range(60))
    some = [[i, 0, 30 + i] for i in range(30)]
    valid = [[0, 0, 40 + i] for i in range(10)] + [[i, 0, 50 - i] for i in range(1, 11)]
    train, found = (np.array(item, dtype=np.int64) for item in (some, valid))
    graph = Graph("many", Vocabulary(names, ("r",)), train, found, found[:0])
    run = Run.create(tmp_path / "run", quick("training.epochs=1", "model.scale=1e-6"), graph)
    fit(run)
    predictor = load(run.folder, device="cpu")
    calibration = Calibration.fit(predictor)
    assert calibration is not None
    heads = {(head, relation) for head, relation, _ in valid}
    tails = {(relation, tail) for _, relation, tail in valid}
    assert calibration.n_queries == len(heads) + len(tails)
    queries = [("tail", names[head], "r") for head, _ in sorted(heads)]
    queries += [("head", names[tail], "r") for _, tail in sorted(tails)]
    expected = sum(
        sum(calibration([e.score - item.logsumexp for e in item.predictions if e.known != "train"]))
        for item in predictor.ask(queries, k=60)  # type: ignore[arg-type]
    )
    assert expected == pytest.approx(2 * len(valid), abs=2)


def test_where_train_knows_every_answer_there_is_no_calibration(
    tmp_path: Path, quick: Callable[..., Recipe]
) -> None:
    train = np.array([[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]], dtype=np.int64)
    graph = Graph("full", Vocabulary(("a", "b"), ("r",)), train, train[1:2], train[2:3])
    run = Run.create(tmp_path / "run", quick("training.epochs=1"), graph)
    fit(run)
    assert Calibration.fit(load(run.folder, device="cpu")) is None
