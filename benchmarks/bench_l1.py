"""TransE's comparison: our engine, the reference, torch.cdist, torch.compile, and PyKEEN."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from distance import main
from torch import Tensor


def plain(query: Tensor, table: Tensor) -> Tensor:
    return -(query[:, None] - table[None]).abs().sum(-1)


def cdist(query: Tensor, table: Tensor) -> Tensor:
    return -torch.cdist(query, table, p=1)


def pykeen() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """PyKEEN's TransE, where it is installed: the query as head, a relation of zeros."""
    if find_spec("pykeen") is None:
        return {}
    from pykeen.nn.modules import TransEInteraction

    interaction = TransEInteraction(p=1)
    return {
        "PyKEEN": lambda query, table: interaction(
            query[:, None], torch.zeros_like(query)[:, None], table[None]
        )
    }


if __name__ == "__main__":
    main("l1", plain, {"torch.cdist": cdist, **pykeen()}, parts=1)
