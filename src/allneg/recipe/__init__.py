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
from allneg.recipe.recipe import Recipe
from allneg.recipe.text import load_tables, merged, parse_settings

__all__ = [
    "Data", "Evaluation", "Hardware", "Loss", "Mesh", "Model", "Optimizer", "Recipe", "Regularizer",
    "Training", "load_tables", "merged", "parse_settings",
]  # fmt: skip
