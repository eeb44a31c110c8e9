"""Settings that are valid alone but not in combination."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from allneg.mesh import is_mesh
from allneg.recipe.parts import Loss, registered

if TYPE_CHECKING:
    from allneg.recipe.recipe import Recipe

_OF_SOME_LOSSES = ("correction", "label_smoothing", "margin", "temperature")


def clashes(recipe: Recipe) -> Iterator[str]:
    """One message per invalid combination of settings."""
    data, model, hardware = recipe.data, recipe.model, recipe.hardware
    if sorted(data.columns) != sorted("hrt"):
        yield "data.columns must be the letters h, r, t in some order, such as hrt"
    if data.valid_share + data.test_share >= 1:
        yield "data.valid_share and data.test_share must be less than 1 together"
    kind = registered("model.name")[model.name]
    if not kind.is_distance and model.norm != 1:
        yield f"model.norm is for distance models; {model.name} has no norm"
    if model.squared and model.norm != 2:
        yield "model.squared needs model.norm 2"
    if model.bias and not model.squared:
        yield "model.bias needs model.squared"
    if recipe.loss.relation_weight and not kind.supports_relation_query():
        yield f"loss.relation_weight needs a relation query; {model.name} has none"
    regularizer = recipe.regularizer.name
    penalty = registered("regularizer.name")[regularizer]
    if penalty is not None and penalty.bilinear_only and kind.is_distance:
        yield f"regularizer.name {regularizer} is for bilinear models, not {model.name}"
    yield from _loss_clashes(recipe.loss, kind.is_distance)
    if hardware.mesh is not None and not is_mesh(hardware.mesh):
        yield "hardware.mesh must have the form rows=4,batch=2"
    if hardware.table == "host" and hardware.engine == "gpu":
        yield "hardware.table host updates rows on the CPU; set hardware.engine to auto"


def _loss_clashes(loss: Loss, is_distance: bool) -> Iterator[str]:
    losses = registered("loss.name")
    kind = losses[loss.name]
    for name in _OF_SOME_LOSSES:
        if name not in kind.uses and getattr(loss, name) != getattr(Loss, name):
            users = ", ".join(other for other in losses if name in losses[other].uses)
            yield f"loss.{name} is for loss.name {users}, not {loss.name}"
    if loss.margin <= 0 and kind.needs_margin == "always":
        yield f"loss.name {loss.name} needs a loss.margin above 0, such as 6"
    if loss.margin <= 0 and kind.needs_margin == "distance" and is_distance:
        yield f"{loss.name} on distances needs a loss.margin above 0, such as 6"
    if loss.class_weights and loss.subsampling:
        yield "loss.class_weights and loss.subsampling both weight queries; set only one of them"
    if loss.negatives != "all" and loss.n_negatives is None:
        yield f"loss.negatives {loss.negatives} needs loss.n_negatives, such as 256"
    if loss.negatives == "all" and loss.n_negatives is not None:
        yield (
            "loss.n_negatives needs loss.negatives shared or per_query; "
            "reset it with --set loss.n_negatives="
        )
    if loss.correction and loss.negatives != "shared":
        yield f"loss.correction needs loss.negatives shared, not {loss.negatives}"
    if not loss.in_batch_negatives and loss.negatives != "shared":
        yield f"loss.in_batch_negatives is for loss.negatives shared, not {loss.negatives}"
    if not loss.in_batch_negatives and loss.correction:
        yield "loss.correction needs loss.in_batch_negatives; change only one of them"
