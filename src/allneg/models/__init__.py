"""Rows → query vectors: the models by their names in recipes."""

from allneg.models.base import Model
from allneg.models.complex import ComplEx
from allneg.models.cp import CP
from allneg.models.distmult import DistMult
from allneg.models.quate import QuatE
from allneg.models.rescal import RESCAL
from allneg.models.rotate import RotatE
from allneg.models.rote import RotE
from allneg.models.simple import SimplE
from allneg.models.transe import TransE
from allneg.models.tucker import TuckER

__all__ = [
    "CP",
    "MODELS",
    "RESCAL",
    "ComplEx",
    "DistMult",
    "Model",
    "QuatE",
    "RotE",
    "RotatE",
    "SimplE",
    "TransE",
    "TuckER",
]

MODELS: dict[str, type[Model]] = {
    "complex": ComplEx,
    "cp": CP,
    "distmult": DistMult,
    "quate": QuatE,
    "rescal": RESCAL,
    "rotate": RotatE,
    "rote": RotE,
    "simple": SimplE,
    "transe": TransE,
    "tucker": TuckER,
}
