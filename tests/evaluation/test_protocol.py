"""Each protocol against its written rules, on a graph with entities that train has not seen."""

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

World = Callable[..., Any]
Rank = Callable[[float, list[float]], float]  # the answer's score, its rivals' -> its rank


def allneg_rank(answer: float, rivals: list[float]) -> float:
    better = sum(each > answer for each in rivals)
    return 1 + better + sum(each == answer for each in rivals) / 2


def kbc_rank(answer: float, rivals: list[float]) -> float:
    return 1 + sum(each >= answer for each in rivals)


def libkge_rank(answer: float, rivals: list[float]) -> float:
    close = [abs(each - answer) <= 1e-5 + 1e-4 * abs(answer) for each in rivals]
    better = sum(each > answer and not tie for each, tie in zip(rivals, close, strict=True))
    ties = 1 + sum(close)  # the answer ties with itself
    return 1 + better + ties // 2


def pykeen_rank(answer: float, rivals: list[float]) -> float:
    optimistic = 1 + sum(each > answer for each in rivals)
    pessimistic = sum(each >= answer for each in [*rivals, answer])
    return (optimistic + pessimistic) / 2


# name: its rank, does valid's filter know test, are unseen entities dropped
RULES: dict[str, tuple[Rank, bool, bool]] = {
    "allneg": (allneg_rank, False, False),
    "kbc": (kbc_rank, True, False),
    "libkge": (libkge_rank, True, False),
    "pykeen": (pykeen_rank, False, True),
}


def naive_ranks(told: Any, name: str, split: str) -> list[list[float]]:
    place, valid_knows_test, drops = RULES[name]
    graph, scores = told.graph, told.scores.tolist()
    seen = {int(each) for column in (0, 2) for each in graph.train[:, column]}
    entities = sorted(seen) if drops else range(graph.n_entities)
    splits = SPLITS if split == "test" or valid_knows_test else ("train", "valid")
    facts = {tuple(each) for each_split in splits for each in graph.split(each_split).tolist()}
    ranks = []
    for h, r, t in graph.split(split).tolist():
        if drops and not {h, t} <= seen:
            continue
        tails = [scores[r][h][o] for o in entities if (h, r, o) not in facts]
        heads = [scores[r][s][t] for s in entities if (s, r, t) not in facts]
        ranks.append([place(scores[r][h][t], tails), place(scores[r][h][t], heads)])
    return ranks


@pytest.fixture(scope="module")
def told(world: World) -> Any:
    """12 entities of which train has seen 9; scores that tie, and scores that nearly do."""
    chance = Generator().manual_seed(4)
    scores = torch.randint(-3, 4, (2, 12, 12), generator=chance).float()
    scores += torch.randint(-2, 3, (2, 12, 12), generator=chance) * 4e-5
    ids = torch.stack([torch.randint(n, (60,), generator=chance) for n in (12, 2, 12)], dim=1)
    triples = [
        tuple(each) for each in ids.unique(dim=0)[torch.randperm(50, generator=chance)].tolist()
    ]
    train = [(h, r, t) for h, r, t in triples if h < 9 and t < 9][:20]
    rest = [each for each in triples if each not in train]
    return world(scores, train, rest[: len(rest) // 2], rest[len(rest) // 2 :])


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_ranks_by_its_written_rules(name: str, split: str, told: Any) -> None:
    ranks = naive_ranks(told, name, split)
    found = told.rank(PROTOCOLS[name], split)
    assert found.ranks.tolist() == ranks
    dropped = len(told.graph.split(split)) - len(ranks)
    assert found.dropped == dropped
    assert (dropped > 0) == (name == "pykeen")
    assert found.n_candidates == (9 if name == "pykeen" else 12)


def test_pykeen_drops_a_relation_that_is_not_in_train(world: World) -> None:
    told: Any = world(torch.zeros(2, 3, 3), [(0, 0, 1), (1, 0, 2)], [], [(0, 1, 2), (0, 0, 2)])
    assert told.rank(PROTOCOLS["pykeen"], "test").dropped == 1
    assert told.rank(PROTOCOLS["kbc"], "test").dropped == 0


def test_the_rules_differ_on_this_graph(told: Any) -> None:
    sums = {name: math.fsum(map(math.fsum, naive_ranks(told, name, "valid"))) for name in PROTOCOLS}
    assert len(set(sums.values())) == len(PROTOCOLS)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_says_its_rules(name: str) -> None:
    said = PROTOCOLS[name].to_json("valid")
    assert said["name"] == name
    assert said["split"] == "valid"
    knows_test, drops = RULES[name][1:]
    assert said["filter"] == ["train", "valid", *(["test"] if knows_test else [])]
    assert said["unseen"] == ("dropped" if drops else "kept")
    words = PROTOCOLS[name].in_words("test")
    assert words.startswith("filtered by train + valid + test; ties ")
    assert f"unseen entities {said['unseen']}" in words


def test_an_unknown_protocol_is_named_with_a_close_one() -> None:
    assert protocol("kbc") is PROTOCOLS["kbc"]
    with pytest.raises(RecipeError, match="no protocol is called 'pyken'; close names: 'pykeen'"):
        protocol("pyken")
