"""The default recipe of a model, for a graph and a device."""

import torch

from allneg.graph import Graph
from allneg.recipe import Recipe


def default_recipe(
    model: str, graph: Graph, device: torch.device, minutes: float | None = None
) -> Recipe:
    """A complete recipe for `model` on this graph and device."""
    return Recipe().with_settings({"model.name": model})
