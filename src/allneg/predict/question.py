"""The language of questions: `?x : borders(France, ?y), speaks(?y, ?x)`.

question     = variable ":" alternatives
alternatives = all { ";" all }
all          = item { "," item }
item         = "(" alternatives ")" | [ "not" ] [ "~" ] relation "(" term "," term ")"
term         = variable | entity

`~r(a, b)` is r(b, a). A name that contains spaces or one of `(),;`, or begins with one of `:~?`, is
quoted. `;` is resolved: a question is a list of alternatives, and each is a list of links.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from allneg.errors import AllnegError, DataError, UsageError
from allneg.graph.graph import Vocabulary

CONSTANT = -1  # the source of a link that is no variable
_MOST_ATOMS = 5
_SHOWN = 40  # characters of a question on each side of an error
_BARE = re.compile(r"""[^\s(),;:~?"'][^\s(),;]*""")
_SPACE = re.compile(r"\s*")
_TOKEN = re.compile(
    rf"""(?P<variable>\?\w+)|(?P<mark>[(),;:~])|(?P<name>{_BARE.pattern})|"""
    r"""(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<end>$)"""
)


class Link(NamedTuple):
    """An atom as it is answered: the entities at `target` for those at `source`."""

    atom: int  # its index in the text
    source: int  # the number of a variable, or CONSTANT
    target: int  # the number of a variable; 0 is the answer, and links lead to lower numbers
    negated: bool


@dataclass(frozen=True)
class Question:
    """Alternatives, each with links that are all to hold; and the ids of each link, in order."""

    text: str
    alternatives: tuple[tuple[Link, ...], ...]
    ids: tuple[tuple[int, int, int], ...]  # side of the target, constant or 0, relation

    @classmethod
    def parse(cls, text: str, names: Vocabulary) -> Question:
        """Read a question. Errors point at the character, and suggest close names."""
        return _Parser(text, names).question()


def quoted(name: str) -> str:
    """A name as a question needs it, in quotes if necessary."""
    if _BARE.fullmatch(name) and name != "not":
        return name
    return '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Atom(NamedTuple):
    number: int
    at: int
    negated: bool
    relation: int
    terms: tuple[_Token, _Token]  # head, tail


class _Parser:
    def __init__(self, text: str, names: Vocabulary) -> None:
        self.text, self.names, self.n_atoms, self.depth = text, names, 0, 0
        self.tokens: list[_Token] = []
        at = 0
        while not self.tokens or self.tokens[-1].kind != "end":
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            if (match := _TOKEN.match(text, at)) is None:
                what = "a quote is not closed" if text[at] in "\"'" else "a variable has no name"
                self.fail(what, at)
            self.tokens.append(_Token(str(match.lastgroup), match[0], at))
            at = match.end()

    def question(self) -> Question:
        self.answer = self.take("a variable, such as ?x", "variable")
        self.take("':'", "mark", ":")
        alternatives = self.any_of()
        self.take("',', ';' or the end", "end")
        compiled = [self.links(atoms) for atoms in alternatives]
        ids = tuple(numbers for _, alternative in compiled for numbers in alternative)
        return Question(self.text, tuple(links for links, _ in compiled), ids)

    def any_of(self) -> list[list[_Atom]]:
        found = self.all_of()
        while self.skip(";"):
            found += self.all_of()
        return found

    def all_of(self) -> list[list[_Atom]]:
        found = self.item()
        while self.skip(","):
            right = self.item()
            found = [one + other for one in found for other in right]
        return found

    def item(self) -> list[list[_Atom]]:
        if self.tokens[0].text == "(":
            self.depth += 1
            if self.depth > _MOST_ATOMS:
                self.fail("too many parentheses", self.tokens[0].at)
            self.skip("(")
            inside = self.any_of()
            self.take("',', ';' or ')'", "mark", ")")
            self.depth -= 1
            return inside
        at, negated, inverse = self.tokens[0].at, self.skip("not"), self.skip("~")
        relation = self.find(self.take("a relation", "name", "quoted"), self.names.relation)
        self.take("'(' after the relation", "mark", "(")
        first = self.take("a variable or an entity", "variable", "name", "quoted")
        self.take("','", "mark", ",")
        second = self.take("a variable or an entity", "variable", "name", "quoted")
        self.take("')'", "mark", ")")
        self.n_atoms += 1
        if self.n_atoms > _MOST_ATOMS:
            self.fail(f"a question has at most {_MOST_ATOMS} atoms", at)
        terms = (second, first) if inverse else (first, second)
        return [[_Atom(self.n_atoms - 1, at, negated, relation, terms)]]

    def links(self, atoms: list[_Atom]) -> tuple[tuple[Link, ...], list[tuple[int, int, int]]]:
        """The links of an alternative, from constants to the answer, and their ids."""
        first = {t.text: t.at for a in reversed(atoms) for t in a.terms if t.kind == "variable"}
        numbers = self.numbers(atoms, first)
        links, ids = [], []
        for atom in atoms:
            variables = [t.text for t in atom.terms if t.kind == "variable"]
            if len(set(variables)) != len(variables) or not variables:
                self.fail("an atom needs a variable, or two different ones", atom.at)
            if atom.negated and len(variables) == 2:
                self.fail("`not` needs an atom of one variable and one entity", atom.at)
            head, tail = (numbers.get(term.text, len(numbers)) for term in atom.terms)
            source, target = atom.terms if tail < head else atom.terms[::-1]
            is_constant = source.kind != "variable"
            entity = self.find(source, self.names.entity) if is_constant else 0
            number = CONSTANT if is_constant else numbers[source.text]
            links.append(Link(atom.number, number, numbers[target.text], atom.negated))
            ids.append((int(head < tail), entity, atom.relation))
        for variable, number in numbers.items():
            if not any(link.target == number and not link.negated for link in links):
                self.fail(f"no atom leads from an entity to {variable}", first[variable])
        return tuple(links), ids

    def numbers(self, atoms: list[_Atom], first: dict[str, int]) -> dict[str, int]:
        """A number for each variable of an alternative, by the distance to the answer.

        Of variables with the same distance, the one that is mentioned first has the highest.
        """
        if self.answer.text not in first:
            self.fail(f"an alternative has no atom with {self.answer.text}", self.answer.at)
        distance, nearest = {self.answer.text: 0}, [self.answer.text]
        for name in nearest:
            for atom in atoms:
                terms = [term.text for term in atom.terms]
                for other in terms if name in terms else []:
                    if other in first and other not in distance:
                        distance[other] = distance[name] + 1
                        nearest.append(other)
        for name, at in first.items():
            if name not in distance:
                self.fail(f"{name} is not connected with {self.answer.text}", at)
        order = sorted(first, key=lambda name: (distance[name], -first[name]))
        return {name: number for number, name in enumerate(order)}

    def skip(self, text: str) -> bool:
        """Skip the next token if it has this text."""
        if found := self.tokens[0].text == text:
            self.tokens.pop(0)
        return found

    def take(self, wanted: str, *kinds: str) -> _Token:
        """The next token, which is of one of these kinds; of a mark, the last is its text."""
        token = self.tokens[0]
        if token.kind not in kinds or (kinds[0] == "mark" and token.text != kinds[1]):
            advice = "; quote names with spaces" if token.kind == "name" else ""
            self.fail(f"expected {wanted}{advice}", token.at)
        return self.tokens.pop(0)

    def find(self, token: _Token, find: Callable[[str], int]) -> int:
        name = token.text
        if token.kind == "quoted":
            name = re.sub(r"\\(.)", r"\1", name[1:-1])
        try:
            return find(name)
        except DataError as unknown:
            self.fail(str(unknown), token.at, DataError)

    def fail(self, what: str, at: int, kind: type[AllnegError] = UsageError) -> NoReturn:
        """An error with the question around a character, and a mark under it."""
        start = max(0, at - _SHOWN)
        shown = [c if c.isprintable() else " " for c in self.text[start : at + _SHOWN]]
        raise kind(f"character {at + 1}: {what}\n  {''.join(shown)}\n  {' ' * (at - start)}^")
