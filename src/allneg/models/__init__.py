"""Rows → query vectors: the models by their names in recipes."""

from allneg.models.base import Model
from allneg.models.complex import ComplEx
from allneg.models.distmult import DistMult
from allneg.models.rotate import RotatE
from allneg.models.simple import SimplE
from allneg.models.transe import TransE

__all__ = ["MODELS", "ComplEx", "DistMult", "Model", "RotatE", "SimplE", "TransE"]

MODELS: dict[str, type[Model]] = {
    "complex": ComplEx,
    "distmult": DistMult,
    "rotate": RotatE,
    "simple": SimplE,
    "transe": TransE,
}
