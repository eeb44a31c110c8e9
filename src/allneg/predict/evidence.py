"""What both queries of a fact say about it: the score and the rank of its tail and of its head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from allneg.evaluation.curves import Numbers, log_odds
from allneg.evaluation.ranks import PROTOCOLS, count_candidates
from allneg.graph.graph import Triples
from allneg.graph.queries import SIDES, KnownAnswers, Queries
from allneg.predict.scorer import Scorer, check_finite

_BLOCK = 1 << 24  # scores in memory at once


@dataclass(frozen=True)
class Evidence:
    """Scores and ranks of n facts; column 0 by tail queries, column 1 by head queries."""

    score: Numbers  # (n, 2)
    margin: Numbers  # (n, 2): see allneg.evaluation.calibration
    rank: Numbers  # (n, 2): among new answers; ties share the middle place
    others: Numbers  # (n, 2): how many other answers train has

    @property
    def total(self) -> Numbers:
        """The sum of both log-odds: (n,)."""
        return np.asarray(log_odds(self.margin).sum(1))

    @classmethod
    @torch.no_grad()
    def of(cls, scorer: Scorer, facts: Triples) -> Evidence:
        graph, device = scorer.graph, scorer.tables.device
        every = KnownAnswers.of_splits(graph, device=device)
        protocol, shard = PROTOCOLS["allneg"], scorer.tables.shard
        columns = []
        for side in SIDES:
            parts = [torch.zeros(0, 4, dtype=torch.float64)]
            ids = torch.from_numpy(facts).to(device)
            for block in ids.split(max(1, _BLOCK // graph.n_entities)):
                queries = Queries.of(block, side)
                values = scorer.scores(queries)
                check_finite(values)
                answer = values.gather(1, queries.answer.unsqueeze(1)).squeeze(1)
                log_sum = scorer.log_sum_of_new(values, queries)
                better, equal = count_candidates(values, queries, every, protocol, shard).unbind(1)
                rank = 1 + better + equal / 2
                others = scorer.n_others(queries)
                found = (answer, answer - log_sum, rank, others)
                parts.append(torch.stack([column.cpu().double() for column in found], 1))
            columns.append(torch.cat(parts).numpy())
        return cls(*np.stack(columns, axis=1).transpose(2, 0, 1))
