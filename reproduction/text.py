"""Numbers, links and phrases in Markdown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from allneg.recipe import Recipe
from allneg.reproduce import Result, comparable

SMALL = 0.003  # smaller differences count as none: seeds alone differ by that much
LARGE = 0.02  # differences from here on count as large
_NAMES = {  # of settings whose field alone is unclear
    "model.reciprocal": "reciprocal relations",
    "model.scale": "scale of initial values",
    "loss.name": "loss",
    "loss.grouped": "grouping of queries",
    "regularizer.name": "regularizer",
    "regularizer.weight": "regularizer weight",
    "optimizer.name": "optimizer",
    "optimizer.every": "schedule interval",
    "training.average": "averaging of weights",
    "evaluation.filter": "filter of valid",
}


def digits(value: float | None, count: int) -> str:
    """A number as tables have it: .4876; nothing for None."""
    if value is None:
        return ""
    text = f"{value:.{count}f}"
    return text.removeprefix("0") if value < 1 else text


def signed(value: float | None, count: int = 3) -> str:
    """A difference: +.012, −.003; nothing for None."""
    if value is None:
        return ""
    return ("+" if value >= 0 else "−") + digits(abs(value), count)


def mean(mrr: float | None, spread: float | None, count: int = 3) -> str:
    """A mean with its spread, if there is one: .487 ± .001."""
    return digits(mrr, count) + (f" ± {digits(spread, count)}" if spread is not None else "")


def link(text: str, path: Path, docs: Path) -> str:
    """A link from a page in `docs` to a file."""
    return f"[{text}]({Path(os.path.relpath(path, docs)).as_posix()})"


def line(cells: Iterable[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |\n"


def listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def per_seed(result: Result, name: str, count: int) -> str:
    """One number for each seed."""
    return listed([digits(value, count) for value in result.values(name)]) or "unknown"


def difference(one: float, other: float) -> float:
    """Rounded as it is printed, so that the verdict agrees with the printed digits."""
    return round(one - other, 3)


def floor_count(mrrs: Sequence[float], floor: float, seeds: str = "seeds") -> str:
    """How many seeds reach a floor that their mean misses; nothing if none does."""
    count = sum(mrr >= floor for mrr in mrrs)
    return f" {count} of {len(mrrs)} {seeds} reach the floor on test." if count else ""


def other_differences(one: Recipe | None, other: Recipe | None, expected: Set[str]) -> str:
    """A sentence about settings, besides the `expected` ones, in which two recipes differ."""
    if one is None or other is None:
        return ""
    mine, theirs = comparable(one).to_tables(), comparable(other).to_tables()
    for tables in (mine, theirs):
        tables["evaluation"] = {"filter": tables["evaluation"]["filter"]}
    names = [
        _NAMES.get(f"{part}.{name}", name)
        for part in ("model", "loss", "regularizer", "optimizer", "training", "evaluation")
        for name in {**mine[part], **theirs[part]}
        if mine[part].get(name) != theirs[part].get(name) and f"{part}.{name}" not in expected
    ]
    return f" The recipes also differ in {listed(names).replace('_', ' ')}." if names else ""


def in_words(result: Result) -> str:
    """The main settings of a result's recipe, its best epochs and its validation MRR."""
    recipe = result.made_by
    model, loss, regularizer = recipe.model, recipe.loss, recipe.regularizer
    optimizer, training = recipe.optimizer, recipe.training
    words = [f"dim {model.dim}"]
    if model.norm == 2:
        words.append("squared L2 norm" if model.squared else "L2 norm")
    if loss.name != "softmax":
        words.append(loss.name)
    if loss.relation_weight:
        words.append(f"relation prediction {loss.relation_weight:g}")
    if regularizer.name != "none":
        words.append(f"{regularizer.name} {regularizer.weight:g}")
    if model.entity_dropout or model.relation_dropout:
        words.append(f"dropout {model.entity_dropout:g} and {model.relation_dropout:g}")
    words += [
        f"{optimizer.name} {optimizer.learning_rate:g}",
        f"batches of {training.batch_size:,}{' distinct queries' if loss.grouped else ''}",
        f"epoch {per_seed(result, 'best_epoch', 0)} of {training.epochs}",
        f"validation MRR {per_seed(result, 'valid_mrr', 4)} with filter {recipe.evaluation.filter}",
    ]
    return ", ".join(words)
