"""What is said of a number, a difference or a recipe, in words."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence, Set

from allneg.paper.beside import Beside
from allneg.paper.markdown import digits
from allneg.paper.results import Result, what_counts
from allneg.recipe import Recipe

SMALL = 0.003  # a smaller difference is called none: seeds alone make as much
MUCH = 0.02  # from here on it is called much


def mean(our: Beside, places: int = 3) -> str:
    """An MRR, with its spread where there are several seeds."""
    spread = f" ± {digits(our.spread, places)}" if our.spread is not None else ""
    return f"{digits(our.mrr, places)}{spread}"


def difference(one: float, other: float) -> float:
    """As it is printed, so that what is said of it is what a reader would say."""
    return round(one - other, 3)


def how_much(gain: float) -> str:
    if gain >= MUCH:
        return "yes"
    return "a little" if gain >= SMALL else "no"


def how_alike(apart: float) -> str:
    if apart < SMALL:
        return "yes"
    return "nearly" if apart < MUCH else "no"


def goes(gain: float) -> str:
    if abs(gain) < SMALL:
        return "does not move"
    return "rises" if gain > 0 else "falls"


def held(mrrs: Sequence[float], floor: float) -> str:
    """How many seeds hold a floor that their mean misses; nothing where none does."""
    count = sum(mrr >= floor for mrr in mrrs)
    return f"{count} of {len(mrrs)} seeds hold the floor" if count else ""


def besides(one: Recipe | None, other: Recipe | None, meant: Set[str]) -> str:
    """What two recipes differ in besides what is `meant` to; nothing: in no more."""
    if one is None or other is None:
        return ""
    mine, theirs = (what_counts(each).to_tables() for each in (one, other))
    named = {
        f"{part}.{name}": f"{part} {name}" if name in ("name", "weight", "every") else name
        for part in ("model", "loss", "penalty", "optimizer", "training")  # what is learnt from
        for name in {**mine[part], **theirs[part]}
        if mine[part].get(name) != theirs[part].get(name)
    }
    words = [word.replace("_", " ") for name, word in named.items() if name not in meant]
    return f"; they differ in {', '.join(words)}, too" if words else ""


def in_words(result: Result) -> str:
    """A result's recipe, and what valid said to it."""
    said = tomllib.loads(result.recipe)
    model, penalty, optimizer = said["model"], said["penalty"], said["optimizer"]
    words = [f"dim {model['dim']}"]
    if model["norm"] == 2:
        words.append("L2 norm")
    if said["loss"]["name"] != "softmax":
        words.append(said["loss"]["name"])
    if relations := said["loss"]["relation_weight"]:
        words.append(f"relation prediction {relations:g}")
    if penalty["name"] != "none":
        words.append(f"{penalty['name']} {penalty['weight']:g}")
    dropped = [model.get(f"{part}_dropout", 0) for part in ("entity", "relation")]
    if any(dropped):
        words.append("dropout {:g} and {:g}".format(*dropped))
    words += [
        f"{optimizer['name']} {optimizer['learning_rate']:g}",
        f"batches of {said['training']['batch_size']:,}",
        f"epoch {each_seed(result, 'best_epoch', 0)} of {said['training']['epochs']}",
        f"valid {each_seed(result, 'valid_mrr', 4)}",
    ]
    return ", ".join(words)


def each_seed(result: Result, name: str, places: int) -> str:
    """One number of each seed: recipes are compared seed by seed."""
    shown = [digits(each[name], places) for each in result.seeds if each[name] is not None]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown) or "not known"
