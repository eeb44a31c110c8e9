"""Relation categories do not depend on how different triples are told apart."""

from __future__ import annotations

import numpy as np

from allneg.graph.categories import relation_categories


def test_so_many_entities_that_no_number_tells_triples_apart_give_the_same_categories() -> None:
    rng = np.random.default_rng(0)
    train = rng.integers(0, (9, 4, 3), (60, 3))
    train[train[:, 1] == 3, 0] = 0  # one head, several tails
    few = relation_categories([train], 9, 4)
    assert relation_categories([train], 1 << 32, 4) == few
    assert len(set(few)) > 1
