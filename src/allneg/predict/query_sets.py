"""Sets of questions with held-out answers: made from a graph, read from a file, and ranked.

Easy answers follow from the splits before the held-out one; hard answers do not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from allneg.errors import AllnegError, DataError
from allneg.evaluation.report import metrics_of
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.queries import KnownAnswers, Queries
from allneg.kernels.fused import count_ranks
from allneg.predict.ask import Search
from allneg.predict.question import CONSTANT, Question, quoted
from allneg.runs.files import parse_json

# {r0} is the relation of atom 0, {c0} its constant.
SHAPES = {
    "1p": "?x : {r0}({c0}, ?x)",
    "2p": "?x : {r0}({c0}, ?y), {r1}(?y, ?x)",
    "3p": "?x : {r0}({c0}, ?y), {r1}(?y, ?z), {r2}(?z, ?x)",
    "2i": "?x : {r0}({c0}, ?x), {r1}({c1}, ?x)",
    "3i": "?x : {r0}({c0}, ?x), {r1}({c1}, ?x), {r2}({c2}, ?x)",
    "ip": "?x : {r0}({c0}, ?y), {r1}({c1}, ?y), {r2}(?y, ?x)",
    "pi": "?x : {r0}({c0}, ?y), {r1}(?y, ?x), {r2}({c2}, ?x)",
    "2u": "?x : {r0}({c0}, ?x) ; {r1}({c1}, ?x)",
    "up": "?x : ({r0}({c0}, ?y) ; {r1}({c1}, ?y)), {r2}(?y, ?x)",
}
_MOST_ANSWERS = 100  # questions with more answers are left out
_TRIES = 200  # walks per question


@dataclass(frozen=True)
class Asked:
    """A question with its answers."""

    shape: str
    question: Question
    easy: Sequence[int]
    hard: Sequence[int]

    def line(self, graph: Graph) -> str:
        """A line of a file: a JSON object with names."""
        names = graph.vocabulary.entities
        answers = {kind: [names[e] for e in getattr(self, kind)] for kind in ("easy", "hard")}
        content = {"shape": self.shape, "question": self.question.text, **answers}
        return json.dumps(content, ensure_ascii=False) + "\n"


def make_queries(
    graph: Graph, shape: str, count: int, split: str = "test", seed: int = 0
) -> list[Asked]:
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
    any_names = dict.fromkeys(("r0", "r1", "r2"), quoted(names.relations[0]))
    any_names |= dict.fromkeys(("c0", "c1", "c2"), quoted(names.entities[0]))
    template = Question.parse(SHAPES[shape].format(**any_names), names)
    rng, found = np.random.default_rng(seed), dict[str, Asked]()
    for _ in range(count * _TRIES):
        if len(found) == count:
            break
        answer, edges = target[rng.integers(len(target))], dict[int, int]()  # by atom
        for links in template.alternatives:
            at = {0: answer}
            for link in sorted(links, key=lambda link: link.target):
                if link.atom not in edges:
                    first, end = starts[at[link.target]], starts[at[link.target] + 1]
                    edges[link.atom] = int(order[rng.integers(first, end)])
                at[link.source] = source[edges[link.atom]]
        facts = {edge % len(triples) for edge in edges.values()}
        if len(facts) < len(edges) or max(facts) < n_before:
            continue
        slots = {}
        for atom, edge in edges.items():
            relation = quoted(names.relations[triples[edge % len(triples), 1]])
            slots[f"r{atom}"] = "~" * (edge >= len(triples)) + relation
            slots[f"c{atom}"] = quoted(names.entities[source[edge]])
        text = SHAPES[shape].format(**slots)
        if text not in found:
            question = Question.parse(text, names)
            easy, both = (_follows(question, known) for known in (before, after))
            if (both > easy).any() and both.sum() <= _MOST_ANSWERS:
                hard = np.flatnonzero(both > easy).tolist()
                found[text] = Asked(shape, question, np.flatnonzero(easy).tolist(), hard)
    return list(found.values())


def _follows(question: Question, known: KnownAnswers) -> npt.NDArray[np.bool_]:
    """Which entities are answers by known facts alone, for a question without `not`: (N,)."""
    found, ids = np.zeros(known.n_entities, dtype=np.bool_), iter(question.ids)
    for links in question.alternatives:
        at: dict[int, npt.NDArray[np.bool_]] = {}
        rows = [(link, next(ids)) for link in links]
        for link, (side, entity, relation) in sorted(rows, key=lambda row: -row[0].target):
            is_constant = link.source == CONSTANT
            source = np.array([entity]) if is_constant else np.flatnonzero(at[link.source])
            columns = [torch.from_numpy(np.full_like(source, v)) for v in (side, relation)]
            sources = torch.from_numpy(source)
            hop = np.zeros_like(found)
            hop[known.pairs(Queries(columns[0], sources, columns[1], sources))[1].numpy()] = True
            at[link.target] = hop & at.get(link.target, True)
        found |= at[0]
    return found


def read_queries(path: Path, graph: Graph) -> list[Asked]:
    """The questions in a file of lines as `Asked.line` writes them."""
    names, found, number = graph.vocabulary, [], 0
    try:
        for line in path.read_bytes().splitlines():
            number += 1
            content = parse_json(line)
            easy, hard = (list(map(names.entity, content[kind])) for kind in ("easy", "hard"))
            question = Question.parse(content["question"], names)
            found.append(Asked(str(content["shape"]), question, easy, hard))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError):
        advice = "expected a JSON object with shape, question, easy and hard"
        raise DataError(f"{path.name}:{number}: {advice}") from None
    except AllnegError as error:
        raise DataError(f"{path.name}:{number}: {error}") from None
    if not any(asked.hard for asked in found):
        raise DataError(f"{path}: no hard answers to rank")
    return found


@torch.no_grad()
def evaluate_queries(search: Search, asked: Sequence[Asked]) -> dict[str, dict[str, Any]]:
    """The metrics of each shape. Every question counts the same, however many hard answers it has.

    A hard answer is ranked among all entities that are no answers; ties share the middle place.
    """
    asked = [item for item in asked if item.hard]
    ranks: list[npt.NDArray[np.float64]] = [np.zeros(0)] * len(asked)
    for members, value, _ in search.values([item.question for item in asked]):
        hard = [(b, e) for b, i in enumerate(members) for e in asked[i].hard]
        easy = [(b, e) for b, i in enumerate(members) for e in asked[i].easy]
        pairs = torch.tensor(hard + easy, device=value.device).view(-1, 2)
        row, answer = pairs[: len(hard), 0], value[tuple(pairs[: len(hard)].T)]
        value[tuple(pairs.T)] = torch.nan  # neither above an answer nor equal to it
        parts = (part.split(search.size(1)) for part in (row, answer))
        counts = torch.cat([count_ranks(value[r], a) for r, a in zip(*parts, strict=True)])
        better, equal = counts.T.cpu().numpy()
        ends = np.cumsum([len(asked[i].hard) for i in members])
        for i, of_question in zip(members, np.split(1 + better + equal / 2, ends), strict=False):
            ranks[i] = of_question
    found = {}
    for shape in dict.fromkeys(item.shape for item in asked):
        some = [r for r, item in zip(ranks, asked, strict=True) if item.shape == shape]
        weights = np.concatenate([np.full(len(r), 1 / len(r)) for r in some])
        found[shape] = {**metrics_of(np.concatenate(some), weights), "questions": len(some)}
    return found
