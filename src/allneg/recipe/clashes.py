"""Settings that are fine alone and do not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allneg.mesh import is_mesh

if TYPE_CHECKING:
    from allneg.recipe.recipe import Recipe


def clashes(recipe: Recipe) -> list[str]:
    """Settings that are fine alone and do not go together."""
    model, loss, found = recipe.model, recipe.loss, []
    if recipe.hardware.mesh is not None and not is_mesh(recipe.hardware.mesh):
        found.append("hardware.mesh must be such as rows=4,batch=2")
    if sorted(recipe.data.columns) != sorted("hrt"):
        found.append("data.columns must be the letters h, r, t in some order, such as hrt")
    if recipe.data.valid_share + recipe.data.test_share >= 1:
        found.append("data.valid_share and data.test_share leave nothing to train on")
    if model.name not in ("transe", "rotate") and model.norm != 1:
        found.append(f"model.norm is for transe and rotate; model.name is {model.name}")
    if model.squared and model.norm != 2:
        found.append("model.squared is for model.norm 2: other norms have no root to leave out")
    if model.bias and not model.squared:
        found.append("model.bias is for model.squared, which adds it in a matrix product")
    if loss.class_weights and loss.subsampling:
        found.append("loss.class_weights and loss.subsampling both weigh queries: choose one")
    if loss.negatives != "all" and loss.n_negatives is None:
        found.append(f"loss.negatives is {loss.negatives}: say how many in loss.n_negatives")
    if loss.negatives == "all" and loss.n_negatives is not None:
        found.append(
            "loss.n_negatives needs loss.negatives shared or per_query; "
            "leave it out (--set loss.n_negatives=)"
        )
    if loss.correction and (loss.name != "softmax" or loss.negatives != "shared"):
        found.append("loss.correction is for loss.name softmax with loss.negatives shared")
    if not loss.in_batch_negatives and loss.negatives != "shared":
        found.append(f"loss.in_batch_negatives is for loss.negatives shared, not {loss.negatives}")
    if not loss.in_batch_negatives and loss.correction:
        found.append("loss.correction needs loss.in_batch_negatives; change only one of them")
    if loss.label_smoothing and loss.name != "softmax":
        found.append(f"loss.label_smoothing is for loss.name softmax, not {loss.name}")
    if loss.temperature != 1 and loss.name != "self-adversarial":
        found.append(f"loss.temperature is for loss.name self-adversarial, not {loss.name}")
    if loss.margin and loss.name == "softmax":
        found.append("loss.margin changes nothing in a softmax: leave it out")
    if loss.name == "margin" and loss.margin <= 0:
        found.append("loss.name margin needs a loss.margin above 0, such as 6")
    distance = model.name in ("transe", "rotate")
    if distance and loss.relation_weight:
        found.append(f"loss.relation_weight is for products; model.name is {model.name}")
    if recipe.regularizer.name in ("dura", "dura-w") and model.name not in ("distmult", "complex"):
        found.append(
            f"regularizer.name {recipe.regularizer.name} needs model.name distmult or complex, "
            f"not {model.name}"
        )
    if distance and loss.name in ("logistic", "self-adversarial") and loss.margin <= 0:
        found.append(f"{loss.name} on distances needs a loss.margin above 0, such as 6")
    if recipe.hardware.table == "host" and recipe.hardware.engine == "gpu":
        found.append("hardware.table host steps on the CPU: leave hardware.engine auto")
    return found
