"""Ranks of relations: which relation holds between two entities, (head, ?, tail)?

Every relation is a candidate, by its score in the tail query. Other relations that are known to
hold between the two are filtered out, and ties share the middle place.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from allneg.errors import DataError, Diverged
from allneg.evaluation.report import metrics_of
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.queries import KnownAnswers, Queries
from allneg.models import Model
from allneg.recipe import Evaluation
from allneg.scoring.scores import query_vectors
from allneg.scoring.tables import Tables

_NUMBERS = 1 << 24  # in the query vectors of all relations at once


@torch.no_grad()
def evaluate_relations(
    model: Model, tables: Tables, graph: Graph, split: str = "test", block: int = Evaluation.block
) -> dict[str, Any]:
    """Rank the relation of every triple of a split: its metrics, in total and by relation."""
    if not len(graph.split(split)):
        raise DataError(f"{graph.name}: {split} has no triples to rank")
    triples = torch.from_numpy(graph.split(split)).to(tables.device)
    known = KnownAnswers.of_splits(graph, device=tables.device)
    largest = max(model.entity_width, model.relation_width)
    size = max(1, min(block, _NUMBERS // largest) // graph.n_relations)
    ranks = torch.cat([_ranks(model, tables, part, known) for part in triples.split(size)])
    relation, values = graph.split(split)[:, 1], ranks.cpu().numpy()
    words = f"filtered by {' + '.join(SPLITS)}; ties share the middle place; relations asked for"
    return {
        **metrics_of(values),
        "by_relation": {
            graph.vocabulary.relations[r]: metrics_of(values[relation == r])
            for r in np.unique(relation).tolist()
        },
        "candidates": graph.n_relations,
        "protocol": {"name": "relations", "split": split, "in_words": words},
    }


def _ranks(model: Model, tables: Tables, triples: Tensor, known: KnownAnswers) -> Tensor:
    queries = _all_relations(triples, tables.n_relations)
    values = relation_scores(model, tables, triples)
    if not values.isfinite().all():
        raise Diverged("a score is not finite: the model has diverged, so nothing is ranked")
    answer = triples[:, 1:2]
    score = values.gather(1, answer)
    is_known = known.contains(queries, queries.answer.unsqueeze(1)).view_as(values)
    values = values.masked_fill(is_known.scatter(1, answer, True), -torch.inf)
    return 1.0 + (values > score).sum(1) + (values == score).sum(1) / 2


def relation_scores(model: Model, tables: Tables, triples: Tensor) -> Tensor:
    """The score of every relation between head and tail: (B, 3) -> (B, R).

    By one matrix product if the model has a relation query, else by the query of each relation.
    """
    n = tables.n_relations
    if model.has_relation_query():
        head, tail = tables.entity_rows(triples[:, 0]), tables.entity_rows(triples[:, 2])
        rows = tables.relation_rows(torch.arange(n, device=triples.device))
        if tables.shared is not None:
            rows = model.combine(rows, tables.shared.detach().to(rows.device))
        return (model.relation_query(head, tail) @ rows.T).float()
    queries = _all_relations(triples, n)
    query = query_vectors(model, tables, queries)
    rows = tables.entity_rows(triples[:, 2]).repeat_interleave(n, 0).unsqueeze(1)
    return model.kernel.scores(query, rows).view(-1, n).float()


def _all_relations(triples: Tensor, n_relations: int) -> Queries:
    """The tail query of each triple with every relation: (B, 3) -> B · R queries."""
    head, tail = (triples[:, column].repeat_interleave(n_relations) for column in (0, 2))
    relation = torch.arange(n_relations, device=triples.device).repeat(len(triples))
    return Queries.for_side("tail", head, relation, tail)
