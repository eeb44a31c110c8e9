"""Recipe → run: the training step, the loop around it, and the memory it takes."""

from allneg.training.callbacks import Callbacks, Watch
from allneg.training.loop import fit
from allneg.training.train import planned, train

__all__ = ["Callbacks", "Watch", "fit", "planned", "train"]
