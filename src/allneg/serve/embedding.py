"""Entity vectors: similarity, and maps in two dimensions."""

import importlib.util

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.graph.graph import Triples

Ids = npt.NDArray[np.int64]

_N_COLOURS = 9  # answers with a colour of their own


class EntityVectors:
    """The vectors of all entities: (N, W). Similarity is their cosine."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.norms = rows, rows.norm(dim=1).clamp(min=1e-12)

    @torch.no_grad()
    def nearest(self, entity: int, k: int) -> list[tuple[int, float]]:
        """The `k` entities most similar to one, without itself, and their cosines."""
        cosines = (self.rows @ self.rows[entity]) / self.norms[entity] / self.norms
        cosines[entity] = -torch.inf
        best, ids = cosines.topk(min(k, len(cosines) - 1))
        return list(zip(ids.tolist(), best.tolist(), strict=True))

    @torch.no_grad()
    def similarities(self, entity: int, others: list[int]) -> list[float]:
        """The cosine of one entity with each of the others."""
        ids = torch.tensor([entity, *others], device=self.rows.device)
        units = self.rows[ids] / self.norms[ids].unsqueeze(1)
        cosines: list[float] = (units[1:] @ units[0]).tolist()
        return cosines


@torch.no_grad()
def pca(rows: Tensor) -> Tensor:
    """The two principal components: (n, W) -> (n, 2), scaled to [-1, 1]; always the same."""
    centred = rows.float() - rows.float().mean(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        axes = torch.pca_lowrank(centred, min(8, *centred.shape), center=False, niter=12)[2]
    points = centred @ axes[:, :2]
    # The sign of a component is arbitrary: make its largest coordinate positive.
    points = points * points.gather(0, points.abs().argmax(0, keepdim=True)).sign()
    return _scaled(torch.nn.functional.pad(points, (0, 2 - points.shape[1])))


def has_tsne() -> bool:
    return importlib.util.find_spec("openTSNE") is not None


def tsne(rows: Tensor) -> Tensor:
    """t-SNE by openTSNE, which must be installed: (n, W) -> (n, 2), scaled to [-1, 1]."""
    from openTSNE import TSNE

    points = TSNE(random_state=0, n_jobs=2).fit(rows.float().cpu().numpy())
    return _scaled(torch.from_numpy(np.asarray(points)))


def _scaled(points: Tensor) -> Tensor:
    largest: Tensor = points.abs().max().clamp(min=1e-12)
    return points / largest


def colours(triples: Triples, entities: Ids, n_entities: int) -> tuple[Ids, list[int]]:
    """A colour per entity by its answer to one relation, and the answers of the first colours.

    `triples` are those of the relation. Of several answers the most common one counts. The last
    two colours mean other answers and no answer: (n,) and up to 9 ids.
    """
    count = np.bincount(triples[:, 2], minlength=n_entities)
    answers = np.argsort(-count, kind="stable")[:_N_COLOURS]
    top = answers[count[answers] > 0]
    colour_of_answer = np.full(n_entities, len(top))
    colour_of_answer[top] = np.arange(len(top))
    colour = np.full(n_entities, len(top) + 1)
    # From the rarest answer to the most common one, which overwrites the others.
    order = np.argsort(count[triples[:, 2]], kind="stable")
    colour[triples[order, 0]] = colour_of_answer[triples[order, 2]]
    return colour[entities], top.tolist()
