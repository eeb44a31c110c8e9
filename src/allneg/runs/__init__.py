"""The folder of a run, written so that no file in it is ever incomplete."""

from allneg.runs.folder import check_new, free_folder, new_folder
from allneg.runs.run import Run, make_model

__all__ = ["Run", "check_new", "free_folder", "make_model", "new_folder"]
