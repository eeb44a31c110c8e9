"""Answers to questions are those of exhaustive evaluation."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allneg.errors import DataError, Diverged, UsageError
from allneg.graph.queries import SIDES, Queries
from allneg.predict import ask
from allneg.predict.ask import Answer, Search, Step, text_facts
from allneg.predict.predictor import Predictor, load
from allneg.predict.question import Question
from allneg.runs import Run

SHAPES = {
    "1p": "?x : r(A, ?x)",
    "2p": "?x : r(A, ?y), r(?y, ?x)",
    "3p": "?x : r(A, ?y), r(?y, ?z), r(?z, ?x)",
    "2i": "?x : r(A, ?x), r(B, ?x)",
    "3i": "?x : r(A, ?x), r(B, ?x), r(C, ?x)",
    "ip": "?x : r(A, ?y), r(B, ?y), r(?y, ?x)",
    "pi": "?x : r(A, ?y), r(?y, ?x), r(B, ?x)",
    "2u": "?x : r(A, ?x) ; r(B, ?x)",
    "up": "?x : (r(A, ?y) ; r(B, ?y)), r(?y, ?x)",
    "3u": "?x : r(A, ?x) ; r(B, ?x) ; r(C, ?y), r(?y, ?x)",
    "not": "?x : r(A, ?x), not r(?x, B)",
    "not in between": "?x : r(A, ?y), not r(B, ?y), r(?y, ?x)",
    "two branches": "?x : r(A, ?y), r(?y, ?x), r(B, ?z), r(?z, ?x)",
    "two links": "?x : r(A, ?y), r(?y, ?x), r(?x, ?y)",
    "triangle": "?x : r(A, ?y), r(?y, ?z), r(?z, ?x), r(?y, ?x)",
    "triangle and branch": "?x : r(A, ?y), r(?y, ?z), r(?z, ?x), r(?y, ?x), r(B, ?z)",
}


@pytest.fixture(scope="module")
def tied(toy_run: Run) -> Predictor:
    """The last half of the entities have the same scores."""
    predictor = replace(load(toy_run.folder, device="cpu"), packed=None)
    predictor.tables.entities[6:] = 0
    return predictor


def exhaustive(search: Search, question: Question) -> tuple[list[float], list[list[float]]]:
    """The probability of every answer, and of the best derivation in every alternative.

    Every assignment of the other variables is tried.
    """
    n = search.predictor.graph.n_entities
    both = math.prod if search.norm == "product" else min

    def table(side: int, relation: int, negated: bool) -> list[list[float]]:
        """The probability of each target for each source, from the predictor's scores."""
        every = torch.arange(n)
        queries = Queries.for_side(SIDES[side], every, torch.full_like(every, relation), every)
        scores = search.predictor.scores(queries).double()
        if search.scores == "softmax":
            p = scores.softmax(1).numpy()
        else:
            others = scores.clone()
            others[search.predictor.known["train"].pairs(queries)] = -torch.inf
            margins = (scores - others.logsumexp(1, keepdim=True)).numpy()
            assert search.predictor.calibration is not None
            p = search.predictor.calibration(SIDES[side], margins)
        for split in search.facts:
            p[tuple(index.numpy() for index in search.predictor.known[split].pairs(queries))] = 1
        return (1 - p if negated else p).tolist()  # type: ignore[no-any-return]

    total, parts = [0.0] * n, list[list[float]]()
    for links in question.alternatives:
        parts.append([0.0] * n)
        tables = [table(link.side, link.relation, link.negated) for link in links]
        n_others = max(link.source for link in links) if links else 0
        for x in range(n):
            best = 0.0
            for rest in itertools.product(range(n), repeat=max(n_others, 0)):
                at = dict(enumerate((x, *rest)))
                best = max(best, both(
                    p[at.get(link.source, link.constant)][at[link.target]]
                    for p, link in zip(tables, links, strict=True)
                ))  # fmt: skip
            one, parts[-1][x] = total[x], best
            total[x] = one + best - one * best if search.norm == "product" else max(one, best)
    return total, parts


def instance(predictor: Predictor, shape: str, numbers: list[int]) -> Question:
    """A question of a shape; some relations are inverse."""
    names, left = predictor.graph.vocabulary, list(numbers)

    def name(match: re.Match[str]) -> str:
        number = left.pop()
        if match[0] != "r(":
            return names.entities[number % len(names.entities)]
        return "~" * (number % 2) + names.relations[number // 2 % len(names.relations)] + "("

    return Question.parse(re.sub(r"r\(|\b[ABC]\b", name, SHAPES[shape]), names)


@pytest.mark.parametrize("ties", [False, True], ids=["", "with ties"])
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(
    numbers=st.lists(st.integers(0, 99), min_size=8, max_size=8),
    norm=st.sampled_from(ask.NORMS),
    scores=st.sampled_from(["softmax", "calibrated"]),
    facts=st.sampled_from([(), ("train",), ("train", "valid", "test")]),
    block=st.sampled_from([1, 50, 1 << 20]),
)
def test_a_beam_of_all_entities_is_exact(
    predictor: Predictor, tied: Predictor, shape: str, numbers: list[int], norm: str, scores: str,
    facts: tuple[str, ...], block: int, ties: bool,
) -> None:  # fmt: skip
    search = Search(tied if ties else predictor, 12, norm, scores, facts)
    question = instance(predictor, shape, numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ask, "_BLOCK", block)
        expected, parts = exhaustive(search, question)
        answers = search.answers(question.text, 12)
    found = {answer.entity: answer.probability for answer in answers}
    names = predictor.graph.vocabulary.entities
    # Between the points of a calibration curve, the device's rates differ a little.
    tolerance = 1e-5 if scores == "softmax" else 5e-3
    assert [found.get(name, 0.0) for name in names] == pytest.approx(expected, abs=tolerance)
    assert [a.probability for a in answers] == sorted(
        (a.probability for a in answers), reverse=True
    )
    order = [names.index(answer.entity) for answer in answers]
    equal = [[e for e in order if expected[e] == value] for value in set(expected)]
    assert all(some == sorted(some) for some in equal)
    for e, answer in zip(order, answers, strict=True):
        steps = [step.probability for step in answer.steps]
        joined = math.prod(steps) if norm == "product" else min(steps)
        if len(parts) == 1:  # the derivation has the probability of the answer
            assert joined == pytest.approx(answer.probability, rel=1e-4)
        assert joined == pytest.approx(max(part[e] for part in parts), abs=tolerance)


def test_many_questions_are_answered_as_each_alone(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    shapes = [shape for shape in SHAPES for _ in range(3)]
    questions = [instance(predictor, s, rng.integers(0, 99, 8).tolist()) for s in shapes]
    search = Search(predictor, beam=4)
    alone = [next(search.values([question]))[1][0] for question in questions]
    monkeypatch.setattr(ask, "_BLOCK", 100)
    seen = []
    for members, values, _ in search.values(questions):
        seen += members
        for i, value in zip(members, values, strict=True):
            torch.testing.assert_close(value, alone[i])
    assert sorted(seen) == list(range(len(questions)))


def test_ties_are_in_the_order_of_ids_and_lose_no_answer(toy_run: Run) -> None:
    tied = replace(load(toy_run.folder, "cpu"), packed=None)
    tied.tables.entities.zero_()
    answers = tied.ask("?x : in(Paris, ?y), in(?y, ?x)", k=12, beam=12, scores="softmax")
    assert [answer.entity for answer in answers] == list(tied.graph.vocabulary.entities)
    assert [answer.probability for answer in answers] == pytest.approx([1 / 144] * 12)


def test_known_facts_are_certain_and_named(predictor: Predictor) -> None:
    answers = predictor.ask("?x : in(?y, ?x), capital_of(?y, Italy)", k=12, facts=True)
    certain = [answer for answer in answers if answer.probability == 1]
    assert [answer.entity for answer in certain] == ["Italy"]
    first, second = certain[0].steps
    assert (first.head, first.relation, first.tail, first.known) == ("Rome", "in", "Italy", "train")
    assert (second.head, second.tail, second.known) == ("Rome", "Italy", "test")
    assert all(step.known is None or step.probability == 1 for a in answers for step in a.steps)


def test_a_beam_is_wider_where_many_entities_are_as_probable(predictor: Predictor) -> None:
    question = "?x : in(?y, Europe), capital_of(?x, ?y)"
    for beam in (1, 12):
        answers = predictor.ask(question, k=12, beam=beam, facts=True)
        certain = {answer.entity for answer in answers if answer.probability == 1}
        assert certain == {"Paris", "Madrid", "Lisbon", "Rome"}


def test_of_entities_as_probable_those_seen_with_the_next_relation_are_first(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "_WIDEST", 3)  # of seven that are in Europe, three have capitals
    answers = predictor.ask("?x : in(?y, Europe), capital_of(?x, ?y)", k=12, beam=1, facts=True)
    certain = {answer.entity for answer in answers if answer.probability == 1}
    assert certain == {"Paris", "Madrid", "Lisbon"}


@pytest.mark.parametrize("norm", ask.NORMS)
@pytest.mark.parametrize("shape", [name for name, text in SHAPES.items() if ";" not in text])
def test_the_best_answers_of_a_small_beam_are_exact_where_it_may_widen_to_all(
    predictor: Predictor, shape: str, norm: str
) -> None:
    rng = np.random.default_rng(0)
    asked = [instance(predictor, shape, rng.integers(0, 99, 8).tolist()) for _ in range(8)]
    for scores, question in itertools.product(ask.SCORES, asked):
        small, exact = (
            next(Search(predictor, beam, norm, scores).values([question]))[1][0].topk(2).values
            for beam in (2, 12)
        )
        torch.testing.assert_close(small, exact)


def test_not_with_facts_excludes(predictor: Predictor) -> None:
    question = "?x : in(?x, Europe), not in(?x, Earth)"
    found = {answer.entity for answer in predictor.ask(question, k=12, facts=True)}
    assert found == set(predictor.graph.vocabulary.entities) - {"Europe", "France"}
    everywhere = "?x : in(?x, Europe), not in(?x, Europe)"
    assert all(answer.probability < 1 for answer in predictor.ask(everywhere, k=12, facts=True))


def test_derivations_become_distinct_lines(predictor: Predictor) -> None:
    answers = predictor.ask("?x : borders(France, ?y), ~in(?y, ?x)", k=3, facts=True)
    lines = text_facts(answers)
    assert len(lines) == len(set(lines))
    assert "France borders Spain (probability 1.00, known from train)" in lines
    negated = predictor.ask("?x : in(?x, Europe), not in(?x, Earth)", k=1)
    assert text_facts(negated)[1].startswith("not: ")
    known = Step("France", "borders", "Spain", 0.25, "train", negated=True, scores="calibrated")
    line = "not: France borders Spain (probability 0.25, but train has this fact)"
    assert text_facts([Answer("Spain", 0.25, (known,), "calibrated")]) == [line]


def test_answers_without_valid_say_that_they_have_softmax_shares(predictor: Predictor) -> None:
    (calibrated,) = predictor.ask("?x : in(Paris, ?x)", k=1)
    assert (calibrated.scores, calibrated.steps[0].scores) == ("calibrated", "calibrated")
    graph = replace(predictor.graph, valid=predictor.graph.valid[:0])
    (share,) = replace(predictor, graph=graph, stored=None).ask("?x : in(Paris, ?x)", k=1)
    assert (share.scores, share.to_json()["scores"]) == ("softmax", "softmax")
    (line,) = text_facts([share])
    assert f"(softmax share {share.probability:.2f}, known from train)" in line


def test_wrong_settings_are_refused(predictor: Predictor) -> None:
    question = "?x : in(Paris, ?x)"
    for wrong, message in (
        ({"beam": 0}, "beam is 0; use at least 1"),
        ({"norm": "sum"}, "norm is 'sum'; use product or minimum"),
        ({"scores": "raw"}, "scores is 'raw'; use calibrated or softmax"),
        ({"k": 0}, "answers is 0; use at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            predictor.ask(question, **wrong)  # type: ignore[arg-type]
    without = {split: known for split, known in predictor.known.items() if split != "valid"}
    blind = replace(predictor, known=without, stored=None)
    with pytest.raises(DataError, match="no calibration"):
        blind.ask(question, scores="calibrated")
    assert blind.ask(question) == blind.ask(question, scores="softmax")


def test_a_diverged_model_has_no_answers(toy_run: Run) -> None:
    broken = replace(load(toy_run.folder, "cpu"), packed=None)
    broken.tables.entities[0, 0] = torch.nan
    with pytest.raises(Diverged):
        broken.ask("?x : in(Paris, ?x)")
