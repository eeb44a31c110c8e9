"""The map: entity rows in two dimensions, coloured by a relation's answers."""

from __future__ import annotations

import importlib.util

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.graph.graph import Triples

Ids = npt.NDArray[np.int64]

MOST_POINTS = 20_000
_COLOURS = 9  # answers with a colour of their own
_TURNS = 12  # of the power iteration


def has_tsne() -> bool:
    return importlib.util.find_spec("openTSNE") is not None


@torch.no_grad()
def pca(rows: Tensor) -> Tensor:
    """The two directions in which rows differ most: (n, W) -> (n, 2), scaled to [-1, 1].

    Found by power iteration from a fixed start, so that a map is the same each time.
    """
    centred = rows.float() - rows.float().mean(0)
    width = min(8, *centred.shape)
    start = torch.randn(centred.shape[1], width, generator=torch.Generator().manual_seed(0))
    basis = start.to(centred.device)
    for _ in range(_TURNS):
        basis = torch.linalg.qr(centred.T @ (centred @ basis)).Q
    places = centred @ basis
    turn = torch.linalg.svd(places, full_matrices=False).Vh[:2].T
    found = places @ turn
    # A direction and its opposite are the same: the largest coordinate is made positive.
    found = found * found.gather(0, found.abs().argmax(0, keepdim=True)).sign()
    if found.shape[1] < 2:
        found = torch.nn.functional.pad(found, (0, 2 - found.shape[1]))
    return _scaled(found)


def tsne(rows: Tensor) -> Tensor:
    """Neighbours kept together, by openTSNE: (n, W) -> (n, 2), scaled to [-1, 1]."""
    # A guest that most people do without: asked for by `has_tsne` first.
    from openTSNE import TSNE

    found = torch.from_numpy(
        np.asarray(TSNE(random_state=0, n_jobs=2).fit(rows.float().cpu().numpy()))
    )
    return _scaled(found)


def _scaled(places: Tensor) -> Tensor:
    largest: Tensor = places.abs().max().clamp(min=1e-12)
    return places / largest


def colours(triples: Triples, shown: Ids, n_entities: int) -> tuple[Ids, list[int]]:
    """The colour of each shown entity by its answer, and the answers of the first colours.

    `triples` are those of one relation. The answer of a head with several is the one that most
    heads have. The last two colours are for other answers and for none: (n,) and up to 9 ids.
    """
    count = np.bincount(triples[:, 2], minlength=n_entities)
    answers = np.argsort(-count, kind="stable")[:_COLOURS]
    top = answers[count[answers] > 0]
    colour_of = np.full(n_entities, len(top))
    colour_of[top] = np.arange(len(top))
    found = np.full(n_entities, len(top) + 1)
    # From the rarest answer to the most common, which is written last and stays.
    order = np.argsort(count[triples[:, 2]], kind="stable")
    found[triples[order, 0]] = colour_of[triples[order, 2]]
    return found[shown], top.tolist()
