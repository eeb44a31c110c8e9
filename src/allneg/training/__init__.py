"""Recipe → run: the loop, its optimiser and its patience."""

from allneg.training.fit import fit
from allneg.training.train import planned, train
from allneg.training.watch import Watch

__all__ = ["Watch", "fit", "planned", "train"]
