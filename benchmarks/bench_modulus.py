"""RotatE's comparison: our engine, the reference, torch.compile, and PyKEEN."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from distance import main
from torch import Tensor


def plain(query: Tensor, table: Tensor) -> Tensor:
    re, im = (query[:, None] - table[None]).chunk(2, dim=-1)
    return -(re.square() + im.square() + 1e-37).sqrt().sum(-1)


def pykeen() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """PyKEEN's RotatE, where it is installed: turned by nothing; its norm is an L2 norm."""
    if find_spec("pykeen") is None:
        return {}
    from pykeen.nn.modules import RotatEInteraction

    interaction = RotatEInteraction()

    def compare(query: Tensor, table: Tensor) -> Tensor:
        head, tail = (
            torch.complex(*(part.contiguous() for part in rows.chunk(2, dim=-1)))
            for rows in (query, table)
        )
        return interaction(head[:, None], torch.ones_like(head)[:, None], tail[None])

    return {"PyKEEN": compare}


if __name__ == "__main__":
    main("modulus", plain, pykeen(), parts=2)
