"""Write questions with held-out answers, as `allneg evaluate RUN --queries FILE` reads them.

python benchmarks/make_queries.py DATA --out FILE [--count 1000] [--split test] [--shapes 1p,2p]

Easy answers follow from the splits before the held-out one. Hard answers need a fact of the
held-out split. A line is a JSON object with the shape, the question and the names of both.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from allneg.errors import AllnegError, DataError
from allneg.graph import Graph, read_graph
from allneg.graph.graph import SPLITS, Vocabulary
from allneg.graph.queries import KnownAnswers, Queries
from allneg.predict.query_sets import Asked
from allneg.predict.question import CONSTANT, Question
from allneg.runs.files import write_parts

# r1 is the relation of atom 1, c1 its constant.
_SLOTS = Vocabulary(("c1", "c2", "c3"), ("r1", "r2", "r3"))
SHAPES = {
    "1p": "?x : r1(c1, ?x)",
    "2p": "?x : r1(c1, ?y), r2(?y, ?x)",
    "3p": "?x : r1(c1, ?y), r2(?y, ?z), r3(?z, ?x)",
    "2i": "?x : r1(c1, ?x), r2(c2, ?x)",
    "3i": "?x : r1(c1, ?x), r2(c2, ?x), r3(c3, ?x)",
    "ip": "?x : r1(c1, ?y), r2(c2, ?y), r3(?y, ?x)",
    "pi": "?x : r1(c1, ?y), r2(?y, ?x), r3(c3, ?x)",
    "2u": "?x : r1(c1, ?x) ; r2(c2, ?x)",
    "up": "?x : (r1(c1, ?y) ; r2(c2, ?y)), r3(?y, ?x)",
}
_MOST_ANSWERS = 100  # questions with more answers are left out
_TRIES = 200  # walks per question


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=_count, default=1000, help="of each shape, at most")
    parser.add_argument("--split", choices=SPLITS[1:], default="test")
    parser.add_argument("--shapes", type=_shapes, default=list(SHAPES), metavar="1p,2p,…")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        graph, lines = read_graph(args.data), []
        for shape in args.shapes:
            made = make_queries(graph, shape, args.count, args.split, args.seed)
            lines += [line_of(asked, graph) for asked in made]
            print(f"{shape}: {len(made)}", flush=True)
        write_parts(args.out, (line.encode() for line in lines))
    except AllnegError as error:
        parser.exit(error.exit_code, f"{parser.prog}: {error}\n")


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("use at least 1")
    return int(text)


def _shapes(text: str) -> list[str]:
    if unknown := [shape for shape in text.split(",") if shape not in SHAPES]:
        message = f"{unknown[0]!r} is not a shape; use some of {', '.join(SHAPES)}"
        raise argparse.ArgumentTypeError(message)
    return text.split(",")


def line_of(asked: Asked, graph: Graph) -> str:
    names = graph.vocabulary.entities
    easy, hard = ([names[e] for e in answers] for answers in (asked.easy, asked.hard))
    content = {"shape": asked.shape, "question": asked.question.text, "easy": easy, "hard": hard}
    return json.dumps(content, ensure_ascii=False) + "\n"


def quoted(name: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


def filled(template: str, slots: Mapping[str, str]) -> str:
    return re.sub(r"\b[rc]\d", lambda slot: slots[slot[0]], template)


def make_queries(graph: Graph, shape: str, count: int, split: str, seed: int) -> list[Asked]:
    """Up to `count` distinct questions, by random walks that begin at a random answer.

    A walk uses no fact twice, and at least one fact of the held-out split.
    """
    splits = [graph.split(name) for name in SPLITS[: SPLITS.index(split) + 1]]
    if split == SPLITS[0] or not len(splits[-1]):
        raise DataError(f"{graph.name}: {split} holds no facts out; use valid or test")
    names, size = graph.vocabulary, (graph.n_entities, graph.n_relations)
    before, after = (KnownAnswers.of(parts, *size) for parts in (splits[:-1], splits))
    triples, n_before = np.concatenate(splits), sum(map(len, splits[:-1]))
    # Edge i leads to the tail of a triple, edge i + len(triples) to its head.
    source, target = np.concatenate([triples[:, [0, 2]], triples[:, [2, 0]]]).T
    order = np.argsort(target, kind="stable")
    starts = np.searchsorted(target[order], np.arange(graph.n_entities + 1))
    template = Question.parse(SHAPES[shape], _SLOTS)
    rng, found = np.random.default_rng(seed), dict[str, Asked]()
    for _ in range(count * _TRIES):
        if len(found) == count:
            break
        answer, edges = target[rng.integers(len(target))], dict[int, int]()  # by atom
        for links in template.alternatives:
            at = {0: answer}
            for link in sorted(links, key=lambda link: link.target):
                if link.relation not in edges:
                    first, end = starts[at[link.target]], starts[at[link.target] + 1]
                    edges[link.relation] = int(order[rng.integers(first, end)])
                at[link.source] = source[edges[link.relation]]
        facts = {edge % len(triples) for edge in edges.values()}
        if len(facts) < len(edges) or max(facts) < n_before:
            continue
        slots = {}
        for atom, edge in edges.items():
            relation = quoted(names.relations[triples[edge % len(triples), 1]])
            slots[_SLOTS.relations[atom]] = "~" * (edge >= len(triples)) + relation
            slots[_SLOTS.entities[atom]] = quoted(names.entities[source[edge]])
        text = filled(SHAPES[shape], slots)
        if text not in found:
            question = Question.parse(text, names)
            easy, both = (_follows(question, known) for known in (before, after))
            if (both > easy).any() and both.sum() <= _MOST_ANSWERS:
                hard = np.flatnonzero(both > easy).tolist()
                found[text] = Asked(shape, question, np.flatnonzero(easy).tolist(), hard)
    return list(found.values())


def _follows(question: Question, known: KnownAnswers) -> npt.NDArray[np.bool_]:
    """Which entities are answers by known facts alone, for a question without `not`: (N,)."""
    found = np.zeros(known.n_entities, dtype=np.bool_)
    for links in question.alternatives:
        at: dict[int, npt.NDArray[np.bool_]] = {}
        for link in sorted(links, key=lambda link: -link.target):
            is_constant = link.source == CONSTANT
            source = np.array([link.constant]) if is_constant else np.flatnonzero(at[link.source])
            columns = [
                torch.from_numpy(np.full_like(source, v)) for v in (link.side, link.relation)
            ]
            sources = torch.from_numpy(source)
            hop = np.zeros_like(found)
            hop[known.pairs(Queries(columns[0], sources, columns[1], sources))[1].numpy()] = True
            at[link.target] = hop & at.get(link.target, True)
        found |= at[0]
    return found


if __name__ == "__main__":
    main()
