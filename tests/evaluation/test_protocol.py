"""Each protocol against a naive version of its rules, on a graph with entities not in train."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator

from allneg.errors import RecipeError
from allneg.evaluation import PROTOCOLS, protocol
from allneg.graph import SPLITS

ScoredGraph = Callable[..., Any]
Rank = Callable[[float, list[float]], float]  # the answer's score, its others' -> its rank


def allneg_rank(answer: float, others: list[float]) -> float:
    better = sum(score > answer for score in others)
    return 1 + better + sum(score == answer for score in others) / 2


def kbc_rank(answer: float, others: list[float]) -> float:
    return 1 + sum(score >= answer for score in others)


def libkge_rank(answer: float, others: list[float]) -> float:
    close = [abs(score - answer) <= 1e-5 + 1e-4 * abs(answer) for score in others]
    better = sum(score > answer and not tie for score, tie in zip(others, close, strict=True))
    ties = 1 + sum(close)  # the answer ties with itself
    return 1 + better + ties // 2


def pykeen_rank(answer: float, others: list[float]) -> float:
    optimistic = 1 + sum(score > answer for score in others)
    pessimistic = sum(score >= answer for score in [*others, answer])
    return (optimistic + pessimistic) / 2


# name: its rank, does valid's filter know test, are unseen entities dropped
RULES: dict[str, tuple[Rank, bool, bool]] = {
    "allneg": (allneg_rank, True, False),
    "kbc": (kbc_rank, True, False),
    "libkge": (libkge_rank, True, False),
    "pykeen": (pykeen_rank, False, True),
}


def naive_ranks(scored: Any, name: str, split: str) -> list[list[float]]:
    rank_of, valid_knows_test, drops = RULES[name]
    graph, scores = scored.graph, scored.scores.tolist()
    seen = {int(entity) for column in (0, 2) for entity in graph.train[:, column]}
    entities = sorted(seen) if drops else range(graph.n_entities)
    splits = SPLITS if split == "test" or valid_knows_test else ("train", "valid")
    facts = {tuple(triple) for name in splits for triple in graph.split(name).tolist()}
    ranks = []
    for h, r, t in graph.split(split).tolist():
        if drops and not {h, t} <= seen:
            continue
        tails = [scores[r][h][o] for o in entities if (h, r, o) not in facts]
        heads = [scores[r][s][t] for s in entities if (s, r, t) not in facts]
        ranks.append([rank_of(scores[r][h][t], tails), rank_of(scores[r][h][t], heads)])
    return ranks


@pytest.fixture(scope="module")
def scored(scored_graph: ScoredGraph) -> Any:
    """12 entities of which train has seen 9; scores that tie, and scores that nearly do."""
    generator = Generator().manual_seed(4)
    scores = torch.randint(-3, 4, (2, 12, 12), generator=generator).float()
    scores += torch.randint(-2, 3, (2, 12, 12), generator=generator) * 4e-5
    ids = torch.stack([torch.randint(n, (60,), generator=generator) for n in (12, 2, 12)], dim=1)
    triples = [
        tuple(triple)
        for triple in ids.unique(dim=0)[torch.randperm(50, generator=generator)].tolist()
    ]
    train = [(h, r, t) for h, r, t in triples if h < 9 and t < 9][:20]
    rest = [triple for triple in triples if triple not in train]
    return scored_graph(scores, train, rest[: len(rest) // 2], rest[len(rest) // 2 :])


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_ranks_by_its_written_rules(name: str, split: str, scored: Any) -> None:
    ranks = naive_ranks(scored, name, split)
    found = scored.rank(PROTOCOLS[name], split)
    assert found.ranks.tolist() == ranks
    dropped = len(scored.graph.split(split)) - len(ranks)
    assert found.dropped == dropped
    assert (dropped > 0) == (name == "pykeen")
    assert found.n_candidates == (9 if name == "pykeen" else 12)


def test_pykeen_drops_a_relation_that_is_not_in_train(scored_graph: ScoredGraph) -> None:
    scored: Any = scored_graph(
        torch.zeros(2, 3, 3), [(0, 0, 1), (1, 0, 2)], [], [(0, 1, 2), (0, 0, 2)]
    )
    assert scored.rank(PROTOCOLS["pykeen"], "test").dropped == 1
    assert scored.rank(PROTOCOLS["kbc"], "test").dropped == 0


def test_the_rules_differ_on_this_graph(scored: Any) -> None:
    sums = {
        name: math.fsum(map(math.fsum, naive_ranks(scored, name, "valid"))) for name in PROTOCOLS
    }
    assert len(set(sums.values())) == len(PROTOCOLS)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_says_its_rules(name: str) -> None:
    fields = PROTOCOLS[name].to_json("valid")
    assert fields["name"] == name
    assert fields["split"] == "valid"
    knows_test, drops = RULES[name][1:]
    assert fields["filter"] == ["train", "valid", *(["test"] if knows_test else [])]
    assert fields["valid_filter"] == ("all" if knows_test else "seen")
    assert fields["unseen"] == ("dropped" if drops else "kept")
    words = PROTOCOLS[name].in_words("test")
    assert words.startswith("filtered by train + valid + test; ties ")
    assert f"unseen entities {fields['unseen']}" in words


def test_an_unknown_protocol_is_named_with_a_close_one() -> None:
    assert protocol("kbc") is PROTOCOLS["kbc"]
    with pytest.raises(RecipeError, match="no protocol is called 'pyken'; close names: 'pykeen'"):
        protocol("pyken")
