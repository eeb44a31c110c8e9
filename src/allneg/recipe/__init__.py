"""A recipe: all settings of a run. Reading is strict and lists every mistake at once.

A recipe is a TOML file with one table per part; `training.batch_size` is the field `batch_size`
of the part `training`.
"""

from allneg.recipe.parts import (
    Data,
    Evaluation,
    Hardware,
    Loss,
    Mesh,
    Model,
    Optimizer,
    Regularizer,
    Training,
)
from allneg.recipe.recipe import MAY_CHANGE, Recipe, unused_settings
from allneg.recipe.text import LARGEST_FILE, load_tables, merged, parse_settings, parse_tables

__all__ = [
    "LARGEST_FILE", "MAY_CHANGE", "Data", "Evaluation", "Hardware", "Loss", "Mesh", "Model",
    "Optimizer", "Recipe", "Regularizer", "Training", "load_tables", "merged", "parse_settings",
    "parse_tables", "unused_settings",
]  # fmt: skip
