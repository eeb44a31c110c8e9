"""The language of questions: what it means, and where its errors point."""

from __future__ import annotations

import pytest

from allneg.errors import AllnegError, DataError, UsageError
from allneg.graph.graph import Vocabulary
from allneg.predict.question import CONSTANT, Question

NAMES = Vocabulary(
    ("France", "South Korea", 'a "b"', "not", r"a\b c"), ("borders", "speaks", "not", "a b")
)


def links(text: str) -> list[list[tuple[int, int]]]:
    """The source and the target of each link, by alternative."""
    found = Question.parse(text, NAMES).alternatives
    return [[(link.source, link.target) for link in alternative] for alternative in found]


def ids(text: str) -> list[tuple[int, int, int]]:
    """The side of the target, the constant and the relation of each link."""
    found = Question.parse(text, NAMES).alternatives
    return [(link.side, link.constant, link.relation) for links in found for link in links]


def test_links_lead_from_constants_to_the_answer() -> None:
    c = CONSTANT
    assert links("?x : borders(France, ?x)") == [[(c, 0)]]
    assert links("?x:borders(France,?y),speaks(?y,?x)") == [[(c, 1), (1, 0)]]
    assert links("?x : speaks(?x, ?y), borders(?y, France)") == [[(1, 0), (c, 1)]]
    triangle = "?x : borders(France, ?y), borders(?y, ?z), borders(?z, ?x), borders(?y, ?x)"
    assert links(triangle) == [[(c, 2), (2, 1), (1, 0), (2, 0)]]


def test_or_gives_alternatives_that_and_joins() -> None:
    c = CONSTANT
    text = "?x : (borders(France, ?y) ; borders(not, ?y)), speaks(?y, ?x) ; speaks(France, ?x)"
    assert links(text) == [[(c, 1), (1, 0)], [(c, 1), (1, 0)], [(c, 0)]]
    assert ids(text) == [(0, 0, 0), (0, 0, 1), (0, 3, 0), (0, 0, 1), (0, 0, 1)]


def test_an_inverse_relation_swaps_its_terms() -> None:
    assert ids("?x : ~speaks(France, ?x)") == [(1, 0, 1)]
    assert ids("?x : speaks(?x, France)") == [(1, 0, 1)]


def test_names_may_be_quoted() -> None:
    text = r"""?x : "a b"("South Korea", ?x), borders('a "b"', ?x), "not"("a \"b\"", ?x)"""
    assert ids(text) == [(0, 1, 3), (0, 2, 0), (0, 2, 2)]
    assert ids(r'?x : borders("a\\b c", ?x)') == [(0, 4, 0)]


def test_not_negates_one_atom() -> None:
    ((first, second),) = Question.parse(
        "?x : borders(France, ?x), not speaks(?x, France)", NAMES
    ).alternatives
    assert (first.negated, second.negated) == (False, True)


@pytest.mark.parametrize(
    "text, at, message",
    [
        ("", 1, "expected the variable to find, as in '?x : speaks("),
        ("x : borders(France, ?x)", 1, "expected the variable to find"),
        ("borders(France, ?x)", 1, "expected the variable to find"),
        ("?x borders", 4, "expected ':' after the variable to find"),
        ("?x :", 5, "expected a relation"),
        ("?x : borders France", 14, "expected '(' after the relation"),
        ("?x : borders(South Korea, ?x)", 20, "expected ','; quote names with spaces"),
        ('?x : borders("France, ?x)', 14, "entity; is a quote not closed?"),
        ("?x : borders(France, ?)", 22, "expected a variable or an entity"),
        ("?x : borders(France, ?x", 24, "expected ')'"),
        ("?x : borders(France, ?x) end", 26, "expected ',' (and), ';' (or) or the end"),
        ("?x : borders(France, ?x) and speaks(?x, not)", 26, "expected ',' (and), ';' (or)"),
        ("?x : (borders(France, ?x)", 26, "expected ',' (and), ';' (or) or ')'"),
        ("?x : not (borders(France, ?x))", 10, "expected a relation"),
        ("?x : borders(France, ?y)", 1, "?x is missing in the question"),
        ("?x : borders(France, ?x) ; borders(France, ?y)", 1, "or on one side of ';'"),
        ("?x : borders(France, ?x), borders(?yy, ?y)", 35, "?yy is not connected with ?x"),
        ("?x : borders(?x, ?y)", 18, "no atom leads from an entity to ?y"),
        ("?x : not borders(France, ?x)", 26, "no atom without `not` leads from an entity to ?x"),
        ("?x : borders(France, ?x), borders(France, not)", 27, "or two different ones"),
        ("?x : borders(?x, ?x), borders(France, ?x)", 6, "or two different ones"),
        ("?x : borders(France, ?x), not borders(?y, ?x), borders(?y, not)", 31, "after `not`"),
        ("?x : " + ", ".join(["borders(France, ?x)"] * 6), 111, "at most 5 atoms"),
        ("?x : " + "(" * 2000, 2005, "too many parentheses"),
    ],
)
def test_an_error_points_at_the_character(text: str, at: int, message: str) -> None:
    with pytest.raises(UsageError) as error:
        Question.parse(text, NAMES)
    first, shown, mark = str(error.value).split("\n")
    assert first.startswith(f"character {at}: ")
    assert message in first
    assert mark.index("^") <= 42
    assert len(shown) <= 82
    if at <= len(text):
        assert shown[mark.index("^")] == text[at - 1]


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "?x : border(France, ?x)",
            "character 6: no relation is called 'border'; close names: 'bo",
        ),
        (
            "?x : borders(Frence, ?x)",
            "character 14: no entity is called 'Frence'; close names: 'Fr",
        ),
    ],
)
def test_an_unknown_name_is_answered_by_close_ones(text: str, message: str) -> None:
    with pytest.raises(DataError, match="close names") as error:
        Question.parse(text, NAMES)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("text", [None, b"?x : borders(France, ?x)", ["?x : borders(France, ?x)"]])
def test_a_question_is_a_string(text: object) -> None:
    with pytest.raises(UsageError, match=f"a string; found {type(text).__name__}"):
        Question.parse(text, NAMES)  # type: ignore[arg-type]


def test_control_characters_are_not_shown() -> None:
    with pytest.raises(AllnegError) as error:
        Question.parse("?x : \x1b[2J(France, ?x)", NAMES)
    assert "\x1b" not in str(error.value)
