"""How far the best answer to a question can be above the others, without scoring them."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.predict.predictor import Predictor
from allneg.scoring.scores import query_vectors

_SLACK = 1e-3  # for rounding


class Reach:
    """An upper bound of the margins of all answers to a question."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor, self.kernel = predictor, predictor.model.kernel
        rows = predictor.tables.entities.detach()[: predictor.graph.n_entities]
        mean = rows.mean(0, keepdim=True)
        self.radius = torch.tensor(torch.inf)
        if self.kernel.name == "dot":
            self.radius = (rows - mean).norm(dim=1).max()
        elif self.kernel.name in ("l1", "l2", "modulus"):
            self.radius = -self.kernel.scores(mean, rows).min()

    def __call__(self, queries: Queries) -> Tensor:
        """(B,). Known answers of train are no candidates."""
        n_all = self.predictor.graph.n_entities
        n = n_all - self.predictor.known["train"].counts(queries)
        if self.kernel.name == "dot":
            query = query_vectors(self.predictor.model, self.predictor.tables, queries)
            # The mean of the candidates is up to (n_all - n) · radius / n from that of all rows.
            spread = query.norm(dim=1) * self.radius * n_all / n.clamp(min=1)
        else:
            spread = 2 * self.radius.to(n.device)
        return torch.where(n > 0, spread * (1 + 1e-4) + _SLACK - n.clamp(min=1).log(), -torch.inf)
