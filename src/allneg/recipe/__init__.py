"""A recipe: everything that decides a run. Strict to read, complete when written.

A recipe is a TOML file with one table a part; `training.batch_size` is the field `batch_size`
of the part `training`. Reading collects every mistake before it complains.
"""

from allneg.recipe.parts import (
    Data,
    Evaluation,
    Hardware,
    Loss,
    Model,
    Optimizer,
    Regularizer,
    Training,
)
from allneg.recipe.recipe import Recipe
from allneg.recipe.text import load_tables, merged, parse_settings

__all__ = [
    "Data",
    "Evaluation",
    "Hardware",
    "Loss",
    "Model",
    "Optimizer",
    "Recipe",
    "Regularizer",
    "Training",
    "load_tables",
    "merged",
    "parse_settings",
]
