"""RDF → names: entities and relations are IRIs, and rdfs:label gives labels.

N-Triples are read here, block by block; pyoxigraph, imported when it is needed, reads the others.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import IO, Any

from allneg.errors import DataError, extra, printable
from allneg.graph.advice import SKIP
from allneg.graph.blocks import BadRows, Block, Found, is_kept, problem_of
from allneg.graph.lines import whole_lines
from allneg.recipe import Data

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
_TYPE, _LABEL = f"{RDF}type", f"{RDFS}label"
# Shown instead of the beginning of an IRI; a file's own prefixes count first.
PREFIXES = {
    "http://www.wikidata.org/entity/": "wd",
    "http://www.wikidata.org/prop/direct/": "wdt",
    "http://dbpedia.org/resource/": "dbr",
    "http://dbpedia.org/ontology/": "dbo",
    "http://yago-knowledge.org/resource/": "yago",
    "http://xmlns.com/foaf/0.1/": "foaf",
    "http://www.w3.org/2004/02/skos/core#": "skos",
    "http://www.w3.org/2002/07/owl#": "owl",
    "http://schema.org/": "schema",
    RDF: "rdf",
    RDFS: "rdfs",
}
_TRIPLES = 1 << 16  # per block
_IRI, _BLANK = r"<([^<>\"{}|^`\\\x00-\x20]*(?:\\[uU][^<>\"]*)?)>", r"(_:[^\s<>\"]+)"
_LITERAL = r"(\"(?:[^\"\\\n\r]|\\.)*\"(?:@[A-Za-z0-9-]+|\^\^<[^<>\s]*>)?)"
_LINE = re.compile(
    rf"[ \t]*(?:{_IRI}|{_BLANK})[ \t]*{_IRI}[ \t]*(?:{_IRI}|{_BLANK}|{_LITERAL})[ \t]*\."
    r"[ \t]*(?:#.*)?"
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_CHARACTERS = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {"\\": r"\\", '"': r"\"", "\t": r"\t", "\n": r"\n", "\r": r"\r", "\0": r"\u0000"}
_TEXT = re.compile(r"\"(.*)\"(?:@([A-Za-z0-9-]+)|\^\^<.*>)?", re.DOTALL)


class _Terms:
    """Chooses the triples to keep; counts the others by reason, and collects labels."""

    def __init__(self, settings: Data, found: Found) -> None:
        self.settings, self.found, found.has_iris = settings, found, True
        self.dropped: Counter[str] = Counter()
        self.columns: tuple[list[str], list[str], list[str]] = ([], [], [])
        self.languages: dict[str, int] = {}  # how well the label of a name fits

    def add(self, subject: str, predicate: str, value: str) -> None:
        """A triple; a literal begins with a quote, a blank node with _:."""
        settings = self.settings
        if predicate == _LABEL and value.startswith('"'):
            self._label(subject, value)
        elif not is_kept(predicate, settings):
            self.dropped["other relations than data.keep_relations"] += 1
        elif predicate == _TYPE and not settings.keep_types:
            self.dropped["type declarations (data.keep_types)"] += 1
        elif value.startswith('"') and not settings.keep_literals:
            self.dropped["literals (data.keep_literals)"] += 1
        elif (subject.startswith("_:") or value.startswith("_:")) and not settings.keep_blank_nodes:
            self.dropped["blank nodes (data.keep_blank_nodes)"] += 1
        else:
            for column, name in zip(self.columns, (subject, predicate, value), strict=True):
                column.append(name)

    def _label(self, name: str, literal: str) -> None:
        """Keep the label in data.language, else one without a language, else the first."""
        match = _TEXT.fullmatch(literal)
        assert match is not None
        text, language = match[1], match[2] or ""
        fits = 3 if language == self.settings.language else 2 if not language else 1
        if fits > self.languages.get(name, 0):
            self.languages[name] = fits
            self.found.labels[name] = " ".join(unescaped(text).split())

    def block(self) -> Block:
        """The triples since the last block."""
        columns, self.columns = self.columns, ([], [], [])
        return Block(*columns)

    def note(self, where: str) -> None:
        for reason, count in self.dropped.most_common():
            self.found.notes.append(f"{where}: dropped {reason}: {count:,}")


def read_n_triples(stream: IO[bytes], where: str, settings: Data, found: Found) -> Iterator[Block]:
    """The names in N-Triples, such as a dump of Wikidata, without another package."""
    terms, bad, n_lines = _Terms(settings, found), BadRows(settings), 0
    for block in whole_lines(stream):
        for number, line in enumerate(block.split(b"\n"), n_lines + 1):
            try:
                text = line.decode().rstrip("\r")
            except UnicodeDecodeError as error:
                bad.skip(
                    "not utf-8", f"{where}:{number}: not UTF-8 at byte {error.start} of the line"
                )
                continue
            triple = _triple(text)
            if triple is not None:
                terms.add(*triple)
            elif (text := text.strip()) and not text.startswith("#"):
                reason = "not a line of N-Triples"
                bad.skip(reason, f"{where}:{number}: {reason}: {printable(text)}; {SKIP}")
        n_lines += block.count(b"\n")
        yield terms.block()
    terms.note(where)
    bad.note(where, found)


def _triple(line: str) -> tuple[str, str, str] | None:
    """The terms of a line of N-Triples, or None."""
    if (match := _LINE.fullmatch(line)) is None:
        return None
    subject, blank, predicate, value, other, literal = match.groups()
    triple = subject or blank, predicate, value or other or literal
    if "\\" in line:
        try:
            triple = _plain(triple[0]), _plain(triple[1]), _plain(triple[2])
        except ValueError:  # an escape of no character
            return None
    return None if problem_of(triple) else triple


def read_rdf(
    syntax: str, stream: IO[bytes], where: str, settings: Data, found: Found
) -> Iterator[Block]:
    """The names in Turtle, RDF/XML, N-Quads or TriG; named graphs are one graph."""
    with extra("rdf", where):
        import pyoxigraph as ox
    terms = _Terms(settings, found)
    blank_nodes: dict[str, str] = {}  # the parser gives them new ids in each process

    def name(term: Any) -> str:
        if isinstance(term, ox.BlankNode):
            return blank_nodes.setdefault(term.value, f"_:b{len(blank_nodes)}")
        return _canonical(str(term)) if isinstance(term, ox.Literal) else str(term.value)

    try:
        parser = ox.parse(stream, format=getattr(ox.RdfFormat, syntax))
        for quad in parser:
            if isinstance(quad.subject, ox.Triple) or isinstance(quad.object, ox.Triple):
                terms.dropped["triples about triples"] += 1
                continue
            terms.add(name(quad.subject), name(quad.predicate), name(quad.object))
            if len(terms.columns[0]) >= _TRIPLES:
                yield terms.block()
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise DataError(f"{where}{line}: not {syntax.replace('_', '/')} ({error.msg})") from None
    yield terms.block()
    found.prefixes |= {iri: prefix for prefix, iri in parser.prefixes.items() if prefix}
    terms.note(where)


def _plain(term: str) -> str:
    return _canonical(term) if term.startswith('"') else unescaped(term)


def _canonical(literal: str) -> str:
    """A literal with the same escapes whatever file it comes from."""
    match = _TEXT.fullmatch(literal)
    assert match is not None
    text = unescaped(match[1])
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return f'"{text}"{literal[match.end(1) + 1 :]}'


def unescaped(text: str) -> str:
    """The characters that escapes of N-Triples stand for; a `ValueError` if there is none."""
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        if code and 0xD800 <= int(code, 16) < 0xE000:
            raise ValueError("half of a surrogate pair")
        return chr(int(code, 16)) if code else _CHARACTERS.get(match[3], match[3])

    return _ESCAPE.sub(character, text)


def short_names(names: Iterable[str], prefixes: dict[str, str]) -> dict[str, str]:
    """The IRIs among `names` whose beginning has a prefix, shortened: wd:Q42."""
    known, short = PREFIXES | prefixes, {}
    for name in names:
        end = max(name.rfind("/"), name.rfind("#")) + 1
        if end and name[:end] in known and name[end:]:
            short[name] = f"{known[name[:end]]}:{name[end:]}"
    return short
