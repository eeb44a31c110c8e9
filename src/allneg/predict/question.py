"""The language of questions: `?x : borders(France, ?y), speaks(?y, ?x)`.

question = variable ":" any
any      = all { ";" all }
all      = item { "," item }
item     = "(" any ")" | [ "not" ] [ "~" ] relation "(" term "," term ")"
term     = variable | entity

`~r(a, b)` is r(b, a). A name is quoted if it contains spaces or `(),;`, or begins with `:~?"'`.
"""

import re
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple, NoReturn

from allneg.errors import AllnegError, DataError, UsageError
from allneg.graph.graph import Vocabulary

CONSTANT = -1  # the source of a link that is no variable
_MOST_ATOMS, _MOST_TOKENS = 5, 100
_SHOWN = 40  # characters of a question on each side of an error
_TOKEN = re.compile(
    r"""\s*(?:(?P<variable>\?\w+)|(?P<mark>[(),;:~])|(?P<name>[^\s(),;:~?"'][^\s(),;]*)|"""
    r"""(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<end>$)|(?P<wrong>.))"""
)


class Link(NamedTuple):
    """An atom in the direction in which it is answered."""

    atom: int  # its number in the text
    source: int  # the number of a variable, or CONSTANT
    target: int  # the number of a variable, lower than that of the source; 0 is the answer
    negated: bool


class Question(NamedTuple):
    """One or several alternatives, of which each is a list of links that must all hold."""

    text: str
    alternatives: tuple[tuple[Link, ...], ...]
    ids: tuple[tuple[int, int, int], ...]  # of every link: side of the target, constant, relation

    @classmethod
    def parse(cls, text: str, names: Vocabulary) -> "Question":
        """Read a question. Errors point at a character and suggest close names."""
        return _Parser(text, names).question()


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
        self.text, self.names, self.n_atoms = text, names, 0
        self.first: dict[str, int] = {}  # where each term is written first
        self.tokens = [
            _Token(kind, match[kind], match.start(kind))
            for match in _TOKEN.finditer(text)
            if (kind := match.lastgroup)
        ]
        if len(self.tokens) > _MOST_TOKENS:
            self.fail("the question is too long", self.tokens[_MOST_TOKENS].at)

    def question(self) -> Question:
        self.answer = self.take("a variable, such as ?x", "variable")
        self.take("':'", ":")
        alternatives = self.any()
        self.take("',', ';' or the end", "end")
        compiled = [self.links(atoms) for atoms in alternatives]
        ids = tuple(numbers for _, of_links in compiled for numbers in of_links)
        return Question(self.text, tuple(tuple(links) for links, _ in compiled), ids)

    def any(self) -> list[list[_Atom]]:
        """Alternatives: `;` gives more of them, and `,` joins each with each."""
        found = self.all()
        while self.skip(";"):
            found += self.all()
        return found

    def all(self) -> list[list[_Atom]]:
        found = self.item()
        while self.skip(","):
            found = [one + other for other in self.item() for one in found]
        return found

    def item(self) -> list[list[_Atom]]:
        if self.skip("("):
            inside = self.any()
            self.take("',', ';' or ')'", ")")
            return inside
        at, negated, inverse = self.tokens[0].at, self.skip("not"), self.skip("~")
        relation = self.find(self.take("a relation", "name", "quoted"), self.names.relation)
        self.take("'(' after the relation", "(")
        first = self.take("a variable or an entity", "variable", "name", "quoted")
        self.take("','", ",")
        second = self.take("a variable or an entity", "variable", "name", "quoted")
        self.take("')'", ")")
        if self.n_atoms == _MOST_ATOMS:
            self.fail(f"a question has at most {_MOST_ATOMS} atoms", at)
        self.n_atoms += 1
        self.first = {second.text: second.at, first.text: first.at, **self.first}
        terms = (second, first) if inverse else (first, second)
        return [[_Atom(self.n_atoms, at, negated, relation, terms)]]

    def links(self, atoms: list[_Atom]) -> tuple[list[Link], list[tuple[int, int, int]]]:
        """The links of an alternative and their ids. A link leads to its lower number."""
        numbers, links, ids = self.numbers(atoms), [], []
        for atom in atoms:
            head, tail = (numbers.get(term.text, len(numbers)) for term in atom.terms)
            source, target = atom.terms if tail < head else atom.terms[::-1]
            is_constant = source.kind != "variable"
            if head == tail or (atom.negated and not is_constant):
                what = "one variable and one entity" if atom.negated else "a variable, or two"
                self.fail(f"this atom needs {what}", atom.at)
            entity = self.find(source, self.names.entity) if is_constant else 0
            number = numbers.get(source.text, CONSTANT)
            links.append(Link(atom.number, number, numbers[target.text], atom.negated))
            ids.append((int(head < tail), entity, atom.relation))
        reached = {link.target for link in links if not link.negated}
        for variable, number in numbers.items():
            if number not in reached:
                self.fail(f"no atom leads from an entity to {variable}", self.first[variable])
        return links, ids

    def numbers(self, atoms: list[_Atom]) -> dict[str, int]:
        """The variables of an alternative, numbered by their distance from the answer.

        Of variables with the same distance, the one that is written first has the highest number.
        """
        pairs = [[t.text for t in atom.terms if t.kind == "variable"] for atom in atoms]
        layers, left = [[self.answer.text]], list(dict.fromkeys(chain(*pairs)))[::-1]
        if self.answer.text not in left:
            self.fail(f"an alternative has no {self.answer.text}", self.answer.at)
        left.remove(self.answer.text)
        while layers[-1]:
            near = {name for pair in pairs for name in pair if {*pair} & {*layers[-1]}}
            layers.append([name for name in left if name in near])
            left = [name for name in left if name not in near]
        if left:
            what = f"{left[-1]} is not connected with {self.answer.text}"
            self.fail(what, self.first[left[-1]])
        return {name: number for number, name in enumerate(chain(*layers))}

    def skip(self, text: str) -> bool:
        """Is this the next token? If so, skip it."""
        found = self.tokens[0].text == text
        del self.tokens[: int(found)]
        return found

    def take(self, wanted: str, *accepted: str) -> _Token:
        """The next token: one of some marks, or of some kinds of token."""
        token = self.tokens[0]
        if (token.text if token.kind == "mark" else token.kind) not in accepted:
            advice = {"name": "; quote names with spaces", "wrong": "; is a quote not closed?"}
            self.fail(f"expected {wanted}{advice.get(token.kind, '')}", token.at)
        return self.tokens.pop(0)

    def find(self, token: _Token, find: Callable[[str], int]) -> int:
        is_quoted = token.kind == "quoted"
        try:
            return find(re.sub(r"\\(.)", r"\1", token.text[1:-1]) if is_quoted else token.text)
        except DataError as unknown:
            self.fail(str(unknown), token.at, DataError)

    def fail(self, what: str, at: int, kind: type[AllnegError] = UsageError) -> NoReturn:
        """Raise an error that shows the text around a character, and a mark under it."""
        start = max(0, at - _SHOWN)
        shown = "".join(c if c.isprintable() else " " for c in self.text[start : at + _SHOWN])
        raise kind(f"character {at + 1}: {what}\n  {shown}\n  {' ' * (at - start)}^")
