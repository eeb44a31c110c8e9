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
_MOST_ATOMS, _MOST_PARENTHESES = 5, 50
_SHOWN = 40  # characters of a question on each side of an error
_VARIABLE = r"\?\w+"
_NAME = r"""[^\s(),;:~?"'][^\s(),;]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_TERM = f"{_VARIABLE}|{_NAME}"


class Link(NamedTuple):
    """An atom in the direction in which it is answered."""

    source: int  # the number of a variable, or CONSTANT
    target: int  # the number of a variable, lower than that of the source; 0 is the answer
    negated: bool
    side: int  # of the target
    constant: int
    relation: int


class Question(NamedTuple):
    """One or several alternatives, of which each is a list of links that must all hold."""

    text: str
    alternatives: tuple[tuple[Link, ...], ...]

    @classmethod
    def parse(cls, text: str, names: Vocabulary) -> "Question":
        """Read a question. Errors point at a character and suggest close names."""
        return _Parser(text, names).question()


class _Token(NamedTuple):
    text: str
    at: int


class _Atom(NamedTuple):
    negated: bool
    relation: _Token
    terms: tuple[_Token, _Token]  # head, tail


class _Parser:
    def __init__(self, text: str, names: Vocabulary) -> None:
        self.text, self.names, self.at, self.n_atoms = text, names, 0, 0
        if not isinstance(text, str):
            raise UsageError(f"a question is a string; found {type(text).__name__}")
        if text.count("(") > _MOST_PARENTHESES:
            self.fail("too many parentheses", text.rindex("("))

    def question(self) -> Question:
        form = "as in '?x : speaks(?x, French)'"
        self.answer = self.take(_VARIABLE, f"the variable to find, {form}", "").text
        self.take(":", f"':' after the variable to find, {form}", "")
        alternatives = self.any()
        self.take("$", "',' (and), ';' (or) or the end", "")
        return Question(self.text, tuple(map(self.links, alternatives)))

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
        if self.skip(r"\("):
            inside = self.any()
            self.take(r"\)", "',' (and), ';' (or) or ')'", "")
            return inside
        negated, inverse = self.skip(r"not(?![^\s(),;])"), self.skip("~")
        relation = self.take(_NAME, "a relation")
        self.take(r"\(", "'(' after the relation")
        first = self.take(_TERM, "a variable or an entity")
        self.take(",", "','")
        second = self.take(_TERM, "a variable or an entity")
        self.take(r"\)", "')'")
        self.n_atoms += 1
        if self.n_atoms > _MOST_ATOMS:
            self.fail(f"a question has at most {_MOST_ATOMS} atoms", relation.at)
        terms = (second, first) if inverse else (first, second)
        return [[_Atom(bool(negated), relation, terms)]]

    def links(self, atoms: list[_Atom]) -> tuple[Link, ...]:
        """The links of an alternative. A link leads to its lower number."""
        variables, links = self.variables(atoms), list[Link]()
        numbers = {name: number for number, name in enumerate(variables)}
        for atom in atoms:
            head, tail = (numbers.get(term.text, len(numbers)) for term in atom.terms)
            source, target = atom.terms if tail < head else atom.terms[::-1]
            is_constant = source.text not in numbers
            if head == tail or (atom.negated and not is_constant):
                what = "one variable, or two different ones"
                if atom.negated:
                    what = "one variable and one entity after `not`"
                self.fail(f"this atom needs {what}", atom.relation.at)
            entity = self.find(source, self.names.entity) if is_constant else 0
            relation = self.find(atom.relation, self.names.relation)
            ends = numbers.get(source.text, CONSTANT), numbers[target.text]
            links.append(Link(*ends, atom.negated, int(head < tail), entity, relation))
        for name, at in variables.items():
            negated = [link.negated for link in links if link.target == numbers[name]]
            if all(negated):
                kind = "no atom without `not`" if negated else "no atom"
                self.fail(f"{kind} leads from an entity to {name}", at)
        return tuple(links)

    def variables(self, atoms: list[_Atom]) -> dict[str, int]:
        """The variables by their distance from the answer, and where each is written first.

        Of variables with the same distance, the one that is written last is first.
        """
        written = [[term for term in atom.terms if term.text[0] == "?"] for atom in atoms]
        first = dict(sorted(chain(*written), key=lambda term: -term[1]))
        if self.answer not in first:
            self.fail(f"{self.answer} is missing in the question, or on one side of ';'", 0)
        distance = {self.answer: 0}
        for length in range(1, len(first)):
            near = [terms for terms in written if any(t.text in distance for t in terms)]
            distance = dict.fromkeys((t.text for t in chain(*near)), length) | distance
        if lost := first.keys() - distance.keys():
            at, name = min((first[name], name) for name in lost)
            self.fail(f"{name} is not connected with {self.answer}", at)
        return dict(sorted(first.items(), key=lambda item: (distance[item[0]], -item[1])))

    def skip(self, pattern: str) -> _Token | None:
        """What the pattern matches here, after spaces, if it does; it is read."""
        match = re.compile(rf"\s*({pattern})").match(self.text, self.at)
        self.at = match.end() if match else self.at
        return _Token(match[1], match.start(1)) if match else None

    def take(self, pattern: str, wanted: str, advice: str = "; quote names with spaces") -> _Token:
        token = self.skip(pattern)
        if token is None:
            self.skip("")  # the error points behind spaces
            found = self.text[self.at : self.at + 1]
            if found in ("'", '"'):
                advice = "; is a quote not closed?"
            self.fail(f"expected {wanted}{'' if found in '(),;:~?' else advice}", self.at)
        return token

    def find(self, token: _Token, find: Callable[[str], int]) -> int:
        is_quoted = token.text[0] in "\"'"
        try:
            return find(re.sub(r"\\(.)", r"\1", token.text[1:-1]) if is_quoted else token.text)
        except DataError as unknown:
            self.fail(str(unknown), token.at, DataError)

    def fail(self, what: str, at: int, kind: type[AllnegError] = UsageError) -> NoReturn:
        """Raise an error that shows the text around a character, and a mark under it."""
        start = max(0, at - _SHOWN)
        shown = "".join(c if c.isprintable() else " " for c in self.text[start : at + _SHOWN])
        raise kind(f"character {at + 1}: {what}\n  {shown}\n  {' ' * (at - start)}^")
