"""A run's folder, written so that nothing in it is ever half there."""

from allneg.run.run import Run, check_new, make_model, new_folder

__all__ = ["Run", "check_new", "make_model", "new_folder"]
