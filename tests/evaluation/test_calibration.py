from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from allneg.evaluation import Calibration, Report, calibrate
from allneg.evaluation.calibration import reliability_table
from allneg.evaluation.curves import Curve, _isotonic, _platt, log_odds
from allneg.graph import Graph, Vocabulary
from allneg.graph.queries import SIDES
from allneg.predict.predictor import Predictor, load
from allneg.runs import Run
from allneg.runs.verify import verify


@pytest.fixture(scope="module")
def calibration(predictor: Predictor) -> Calibration:
    assert predictor.calibration is not None
    return predictor.calibration


def test_neighbours_in_the_wrong_order_are_pooled() -> None:
    right, total = np.array([0.0, 30.0, 10.0, 90.0]), np.array([99.0, 99.0, 100.0, 100.0])
    curve = _isotonic(right, total, np.arange(4.0))
    assert curve.rate.tolist() == pytest.approx([0.5 / 100, *[40.5 / 200] * 2, 90.5 / 101])
    assert curve.log_odds.tolist() == [0, 1, 2, 3]


def test_a_single_fact_at_the_end_lifts_no_others() -> None:
    """With the added half its rate is 0.25, or 0.75; that of its neighbours is 0.1, or 0.9."""
    right, total = np.array([0.0, 100.0, 900.0, 1.0]), np.array([1.0, 1000.0, 1000.0, 1.0])
    rate = _isotonic(right, total, np.arange(4.0))(np.arange(4.0))
    assert rate == pytest.approx([100.5 / 1002, 100.5 / 1002, 901.5 / 1002, 901.5 / 1002])


def test_a_wide_pool_has_one_rate() -> None:
    """Not that of a line to the centre of the next pool, which reaches 0.4 at -8."""
    at = np.array([-30.0, -20.0, -8.0, 8.0, 20.0, 30.0])
    total = np.full(6, 1e4)
    rate = _isotonic(total * np.repeat([0.1, 0.9], 3), total, at)(at)
    assert rate == pytest.approx(np.repeat([0.1, 0.9], 3), abs=1e-4)


def test_platt_reaches_the_ends_of_its_data() -> None:
    at = np.linspace(-32, 32, 65)
    rate = 1 / (1 + np.exp(-0.1 * at))
    assert _platt(1e6 * rate, np.full(65, 1e6), at)(at) == pytest.approx(rate, abs=2e-3)


def test_rates_never_decrease_and_are_never_certain() -> None:
    draw = np.random.default_rng(3)
    total = draw.integers(0, 50, 200).astype(float)
    right = np.floor(total * draw.random(200))
    for method in (_isotonic, _platt):
        rate = method(right, total, np.linspace(-16, 16, 200))(np.linspace(-20, 20, 500))
        assert (np.diff(rate) >= 0).all()
        assert rate.min() > 0
        assert rate.max() < 1


def test_rates_that_rise_already_are_kept() -> None:
    total = np.full(5, 1e6)
    right = total * np.array([0.1, 0.2, 0.5, 0.7, 0.9])
    assert _isotonic(right, total, np.arange(5.0)).rate == pytest.approx(right / total, abs=1e-5)


def test_platt_finds_slope_and_offset() -> None:
    at = np.linspace(-6, 6, 50)
    rate = 1 / (1 + np.exp(-(0.7 * at - 1.5)))
    curve = _platt(1e6 * rate, np.full(50, 1e6), at)
    assert curve(at) == pytest.approx(rate, abs=2e-3)  # linear between 129 corners


def test_platt_stays_finite_where_right_and_wrong_are_separate() -> None:
    at = np.array([-1.0, 1.0])
    low, high = _platt(np.array([0.0, 5.0]), np.array([5.0, 5.0]), at)(at)
    assert (low, high) == pytest.approx((1 / 7, 6 / 7), abs=1e-3)  # Platt's own values


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_the_better_method_on_the_other_half_is_chosen(method: str) -> None:
    at, draw = np.linspace(-6, 6, 60), np.random.default_rng(0)
    step = np.where(at < 2, 0.01, 0.6)  # no logistic function
    rate = step if method == "isotonic" else 1 / (1 + np.exp(-at))
    n = 1000 if method == "isotonic" else 20
    total = np.full((2, 60), float(n))
    assert Curve.fit(draw.binomial(n, rate, (2, 60)).astype(float), total, at).method == method


def test_equal_scores_have_the_rate_of_all_answers() -> None:
    right, total = np.array([[1.0], [0.0]]), np.array([[1000.0], [1000.0]])
    curve = Curve.fit(right, total, np.array([5.0]))
    assert curve.method == "platt"
    assert curve(5.0) == pytest.approx(0.001, rel=0.2)  # 2 of 2,001, by Platt


def test_a_larger_margin_is_never_less_likely(calibration: Calibration) -> None:
    for side in ("tail", "head"):
        found = calibration(side, np.linspace(-40, 5, 400)).tolist()
        assert found == sorted(found)
        assert all(0 < item < 1 for item in found)
        assert found[0] < found[-1]


def test_rates_of_many_answers_are_those_of_the_curve(calibration: Calibration) -> None:
    odds = np.linspace(-16, 8, 24 * 32 + 1)  # points of the curves on a device
    margins = np.stack([np.append(-np.log1p(np.exp(-odds)), [-100.0, 0.0, np.inf])] * 2)
    rates = calibration.on_device(torch.arange(2), torch.tensor(margins).float())
    expected = np.stack([calibration(side, margins[0]) for side in SIDES])
    np.testing.assert_allclose(rates, expected, atol=1e-4)
    assert not np.array_equal(expected[0], expected[1])


def test_without_valid_there_is_no_calibration(predictor: Predictor) -> None:
    none = replace(predictor, known={"train": predictor.known["train"]}, stored=None)
    assert none.calibration is None
    assert none.tails("France", "in")[0].calibrated is None


def test_the_description_names_the_data(calibration: Calibration) -> None:
    rest = "of the score margin on 4 queries of valid, each of which has an answer"
    ends = np.array([-1.0, 1.0]), np.array([0.1, 0.9])
    platt, isotonic = Curve("platt", *ends), Curve("isotonic", *ends)
    for head, methods in (
        (platt, "Platt scaling"),
        (isotonic, "Platt scaling and isotonic regression"),
    ):
        found = replace(calibration, curves={"tail": platt, "head": head})
        assert found.description == f"{methods} {rest}"


def test_a_query_of_many_answers_counts_once(trained: Callable[..., Run]) -> None:
    """Ten answers to one query and one to ten others: 20 of 11 queries, not 110 of 20."""
    names = tuple(f"e{i}" for i in range(60))
    some = [[i, 0, 30 + i] for i in range(30)]
    valid = [[0, 0, 40 + i] for i in range(10)] + [[i, 0, 50 - i] for i in range(1, 11)]
    train, found = (np.array(item, dtype=np.int64) for item in (some, valid))
    graph = Graph("many", Vocabulary(names, ("r",)), train, found, found[:0])
    run = trained("training.epochs=1", "model.scale=1e-6", graph=graph)
    predictor = load(run.folder, device="cpu")
    assert predictor.calibration is not None
    heads = {(head, relation) for head, relation, _ in valid}
    tails = {(relation, tail) for _, relation, tail in valid}
    assert predictor.calibration.n_queries == len(heads) + len(tails)
    queries = [("tail", names[head], "r") for head, _ in sorted(heads)]
    queries += [("head", names[tail], "r") for _, tail in sorted(tails)]
    rates = [
        answer.calibrated
        for item in predictor.answers(queries, k=60)  # type: ignore[arg-type]
        for answer in item.predictions
        if answer.known != "train"
    ]
    assert sum(rate for rate in rates if rate) == pytest.approx(2 * len(valid), abs=4)


def test_where_train_knows_every_answer_there_is_no_calibration(
    trained: Callable[..., Run],
) -> None:
    train = np.array([[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]], dtype=np.int64)
    graph = Graph("full", Vocabulary(("a", "b"), ("r",)), train, train[1:2], train[2:3])
    run = trained("training.epochs=1", graph=graph)
    assert load(run.folder, device="cpu").calibration is None


def test_the_run_stores_what_is_learned_on_demand(toy_copy: Run, toy_run: Run) -> None:
    stored = toy_run.calibration
    assert stored is not None
    learned = calibrate(toy_run.model, toy_run.tables(), toy_run.graph)
    assert learned is not None
    margins = np.linspace(-8, 0, 30)
    expected = load(toy_run.folder, "cpu").tails("France", "in", 12)
    (toy_copy.folder / "report.json").unlink()
    again = load(toy_copy.folder, "cpu")
    assert again.stored is None
    for side in ("tail", "head"):
        assert stored(side, margins) == pytest.approx(learned(side, margins))
    found = again.tails("France", "in", 12)
    assert [a.calibrated for a in found] == pytest.approx([a.calibrated for a in expected])
    assert Calibration.from_json(json.loads(json.dumps(stored.to_json()))).to_json() == (
        stored.to_json()
    )


def test_an_answer_has_the_rate_of_its_side(predictor: Predictor, calibration: Calibration) -> None:
    for side in ("tail", "head"):
        answers = predictor.answers([(side, "France", "in")], 12)[0]  # type: ignore[list-item]
        margins = [a.score - answers.logsumexp for a in answers.predictions]
        rates = [a.calibrated for a in answers.predictions]
        assert rates == pytest.approx(calibration(side, margins).tolist())  # type: ignore[arg-type]


def test_reliability_compares_probability_and_rate() -> None:
    probability, right, total = np.array([[0.02, 0.06, 0.55, 1.0], [1, 0, 6, 2], [50, 50, 10, 2]])
    assert reliability_table(probability, right, total) == [
        {"probability": pytest.approx(0.04), "right": 0.01, "answers": 100},
        {"probability": pytest.approx(0.55), "right": 0.6, "answers": 10},
        {"probability": 1.0, "right": 1.0, "answers": 2},
    ]


def test_reliability_is_measured_on_test(calibration: Calibration, tiny_graph: Graph) -> None:
    assert calibration.reliability["split"] == "test"
    bins = calibration.reliability["bins"]
    assert sum(row["right"] * row["answers"] for row in bins) == pytest.approx(6)  # both sides


@pytest.mark.parametrize("margin", [-50.0, -1e-12, 0.0, 3.0])
def test_log_odds_are_finite(margin: float) -> None:
    assert -16 <= log_odds(margin) <= 16


CURVE = {"method": "platt", "log_odds": [0.0, 1.0], "rate": [0.1, 0.2]}


@pytest.mark.parametrize(
    "change",
    [
        {"tail": None},
        {"tail": {**CURVE, "method": "eval"}},
        {"tail": {**CURVE, "rate": [0.2, 0.1]}},
        {"tail": {**CURVE, "rate": [0.0, 0.1]}},
        {"tail": {**CURVE, "rate": [0.5, 10**400]}},
        {"tail": {**CURVE, "rate": [0.5, "x"]}},
        {"tail": {**CURVE, "rate": [0.5, [1]]}},
        {"tail": {**CURVE, "rate": [0.5]}},
        {"tail": {**CURVE, "log_odds": [1.0, 1.0]}},
        {"tail": {**CURVE, "log_odds": [], "rate": []}},
        {"head": {}},
        {"head": {name: CURVE[name] for name in ("log_odds", "rate")}},
        {"reliability": {"bins": []}},
        {"queries": "many"},
        {"reliability": {"split": "\x1b[2J", "bins": []}},
        {"reliability": {"split": "test", "bins": [{}]}},
        {"reliability": {"split": "test", "bins": 5}},
    ],
)
def test_a_calibration_that_no_run_has_is_refused(toy_run: Run, change: dict[str, Any]) -> None:
    content = json.loads((toy_run.folder / "report.json").read_text())
    Report.from_json(content)
    content["calibration"] |= change
    with pytest.raises(TypeError, match=r"not a (report|calibration|reliability)"):
        Report.from_json(content)


def test_verify_learns_the_calibration_again(toy_copy: Run) -> None:
    assert not [check for check in verify(toy_copy.folder, rank=True) if check.wrong]
    path = toy_copy.folder / "report.json"
    content = json.loads(path.read_text())
    content["calibration"]["tail"] = CURVE
    path.write_text(json.dumps(content))
    wrong = [check.wrong for check in verify(toy_copy.folder, rank=True) if check.wrong]
    assert len(wrong) == 1
    assert "the calibration is different when it is learned again" in wrong[0]
