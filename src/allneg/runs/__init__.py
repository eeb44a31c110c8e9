"""A run's folder, written so that nothing in it is ever half there."""

from allneg.runs.folder import check_new, new_folder
from allneg.runs.run import Run, make_model

__all__ = ["Run", "check_new", "make_model", "new_folder"]
