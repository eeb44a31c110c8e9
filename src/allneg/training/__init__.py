"""Recipe → run: the loop, its optimiser and its patience."""

from allneg.training.callbacks import Callbacks
from allneg.training.loop import fit
from allneg.training.train import planned, train

__all__ = ["Callbacks", "fit", "planned", "train"]
