"""Settings that are valid alone and do not fit together."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from allneg.mesh import is_mesh
from allneg.recipe.parts import Loss, registered

if TYPE_CHECKING:
    from allneg.recipe.recipe import Recipe

_OF_SOME_LOSSES = ("correction", "label_smoothing", "margin", "temperature")


def clashes(recipe: Recipe) -> list[str]:
    """What is wrong with a combination of settings, one message per problem."""
    return [*_data(recipe), *_model(recipe), *_loss(recipe), *_hardware(recipe)]


def _data(recipe: Recipe) -> list[str]:
    found = []
    if sorted(recipe.data.columns) != sorted("hrt"):
        found.append("data.columns must be the letters h, r, t in some order, such as hrt")
    if recipe.data.valid_share + recipe.data.test_share >= 1:
        found.append("data.valid_share and data.test_share leave nothing to train on")
    return found


def _model(recipe: Recipe) -> list[str]:
    model, regularizer, found = recipe.model, recipe.regularizer, []
    kind = registered("model.name")[model.name]
    if not kind.is_distance and model.norm != 1:
        found.append(f"model.norm is for distance models; {model.name} has no norm")
    if model.squared and model.norm != 2:
        found.append("model.squared needs model.norm 2")
    if model.bias and not model.squared:
        found.append("model.bias needs model.squared")
    if recipe.loss.relation_weight and not kind.supports_relation_query():
        found.append(f"loss.relation_weight needs a relation query; {model.name} has none")
    penalty = registered("regularizer.name")[regularizer.name]
    if penalty is not None and penalty.bilinear_only and kind.is_distance:
        found.append(
            f"regularizer.name {regularizer.name} is for bilinear models, not {model.name}"
        )
    return found


def _loss(recipe: Recipe) -> list[str]:
    loss, losses, found = recipe.loss, registered("loss.name"), []
    kind = losses[loss.name]
    defaults = {field.name: field.default for field in fields(Loss)}
    for name in _OF_SOME_LOSSES:
        if name not in kind.uses and getattr(loss, name) != defaults[name]:
            users = ", ".join(other for other in losses if name in losses[other].uses)
            found.append(f"loss.{name} is for loss.name {users}, not {loss.name}")
    is_distance = registered("model.name")[recipe.model.name].is_distance
    if loss.margin <= 0 and kind.needs_margin == "always":
        found.append(f"loss.name {loss.name} needs a loss.margin above 0, such as 6")
    if loss.margin <= 0 and kind.needs_margin == "distance" and is_distance:
        found.append(f"{loss.name} on distances needs a loss.margin above 0, such as 6")
    if loss.class_weights and loss.subsampling:
        found.append("loss.class_weights and loss.subsampling both weigh queries: choose one")
    if loss.negatives != "all" and loss.n_negatives is None:
        found.append(f"loss.negatives {loss.negatives} needs loss.n_negatives, such as 256")
    if loss.negatives == "all" and loss.n_negatives is not None:
        found.append(
            "loss.n_negatives needs loss.negatives shared or per_query; "
            "reset it with --set loss.n_negatives="
        )
    if loss.correction and loss.negatives != "shared":
        found.append(f"loss.correction needs loss.negatives shared, not {loss.negatives}")
    if not loss.in_batch_negatives and loss.negatives != "shared":
        found.append(f"loss.in_batch_negatives is for loss.negatives shared, not {loss.negatives}")
    if not loss.in_batch_negatives and loss.correction:
        found.append("loss.correction needs loss.in_batch_negatives; change only one of them")
    return found


def _hardware(recipe: Recipe) -> list[str]:
    hardware, found = recipe.hardware, []
    if hardware.mesh is not None and not is_mesh(hardware.mesh):
        found.append("hardware.mesh must have the form rows=4,batch=2")
    if hardware.table == "host" and hardware.engine == "gpu":
        found.append("hardware.table host updates rows on the CPU; set hardware.engine to auto")
    return found
