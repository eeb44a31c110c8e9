from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import allneg
from allneg.errors import DataError, UsageError
from allneg.graph import Graph

QUICK = {"model.dim": 4, "training.batch_size": 8, "training.epochs": 6, "hardware.threads": 1}


@pytest.fixture(scope="module")
def triples(tiny_graph: Graph) -> list[tuple[str, str, str]]:
    return tiny_graph.facts("train")


@pytest.fixture(scope="module")
def fitted(triples: list[tuple[str, str, str]]) -> allneg.Completer:
    return allneg.Completer(settings=QUICK, device="cpu").fit(triples)


def test_parameters_are_kept_as_given_and_make_an_equal_estimator() -> None:
    settings = {"training.epochs": 3}
    completer = allneg.Completer("rotate", settings, seed=7)
    params = completer.get_params()
    assert params["settings"] is settings
    assert list(params) == ["model", "settings", "valid_share", "seed", "device", "out", "progress"]
    assert allneg.Completer(**params).get_params() == params
    assert completer.set_params(model="transe", seed=1) is completer
    assert (completer.model, completer.seed) == ("transe", 1)
    assert repr(completer).startswith("Completer(model='transe', settings={'training.epochs': 3}")
    with pytest.raises(UsageError, match="Completer has no argument 'sed'; close names: 'seed'"):
        completer.set_params(sed=1)


def test_a_fitted_completer_answers_and_scores(
    fitted: allneg.Completer, triples: list[tuple[str, str, str]]
) -> None:
    questions = [("France", "borders", None), (None, "in", "Europe"), ("Paris", None, "France")]
    best = [found[0].answer for found in fitted.model_.predict(questions, k=1)]
    assert fitted.predict(questions) == best
    assert 0 < fitted.score(triples) <= 1
    assert fitted.score([*triples, ("Atlantis", "in", "Europe")] * 2) == pytest.approx(
        fitted.score(triples) * len(triples) / (len(triples) + 1)
    )
    assert fitted.score([("Atlantis", "in", "Europe")]) == 0


def test_arrays_fit_as_lists_do(
    fitted: allneg.Completer, triples: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    other = allneg.Completer(settings=QUICK, device="cpu", out=out).fit(np.array(triples))
    assert other.score(np.array(triples)) == fitted.score(triples)
    assert allneg.load(out, device="cpu").tails("France", "in") == other.model_.tails(
        "France", "in"
    )
    assert allneg.Run.open(out).recipe.data.test_share == 0


def test_without_a_share_for_valid_everything_is_trained_on(
    triples: list[tuple[str, str, str]],
) -> None:
    completer = allneg.Completer(settings=QUICK, valid_share=0.0, device="cpu").fit(triples)
    assert completer.report_ is None
    assert len(completer.model_.graph.train) == len(triples)


@pytest.mark.parametrize(
    "triples, message",
    [
        ([("a", "b")], "expected rows of 3 values, found "),
        ([("a", "", "c")], "list:1: expected head, relation, tail"),
        ([], "it has no triples"),
    ],
)
def test_bad_triples_are_named(triples: list[tuple[str, str, str]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        allneg.Completer().fit(triples)


def test_an_unfitted_completer_says_so() -> None:
    with pytest.raises(UsageError, match="not fitted; call fit"):
        allneg.Completer().predict([("France", "in", None)])


def test_scikit_learn_clones_and_validates_it(triples: list[tuple[str, str, str]]) -> None:
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV

    completer = allneg.Completer(settings={**QUICK, "training.epochs": 1}, device="cpu")
    assert clone(completer).get_params() == completer.get_params()
    grid = {"model": ["distmult", "transe"]}
    found = GridSearchCV(completer, grid, cv=2, refit=False).fit(triples)
    assert found.best_params_["model"] in ("distmult", "transe")
    assert 0 < found.best_score_ < 1
