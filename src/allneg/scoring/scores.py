"""Questions → scores: query × table, all that training, ranking and serving know."""

from __future__ import annotations

from torch import Tensor

from allneg.graph.questions import Questions
from allneg.models import Model
from allneg.scoring.tables import Tables


def scores(model: Model, tables: Tables, questions: Questions) -> Tensor:
    """The score of every entity as the answer: (B, n), for the rows this process holds."""
    return model.compare(queries(model, tables, questions), tables.entities)


def queries(
    model: Model,
    tables: Tables,
    questions: Questions,
    keep_entity: Tensor | None = None,
    keep_relation: Tensor | None = None,
) -> Tensor:
    """The query row of each question: (B, W). The factors are dropout's, if there is any."""
    entity = tables.rows(questions.entity)
    relation = tables.relation_rows(questions.relation, questions.side)
    if keep_entity is not None:
        entity = entity * keep_entity
    if keep_relation is not None:
        relation = relation * keep_relation
    # A reciprocal relation row is a relation of its own, asked for its tail.
    if questions.side == "tail" or tables.reciprocal:
        return model.tail_query(entity, relation)
    return model.head_query(entity, relation)
