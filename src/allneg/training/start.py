"""Where a run begins that does not begin at random: rows of an earlier run, by name."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from allneg.errors import RecipeError, counted
from allneg.graph.graph import Graph
from allneg.graph.grow import n_in_train
from allneg.graph.queries import SIDES, Queries
from allneg.models import Model
from allneg.recipe import Recipe
from allneg.runs import Run, make_model
from allneg.runs.checkpoint import Checkpoint, State
from allneg.runs.parents import Parent, original, replaced
from allneg.scoring import Shard, Tables
from allneg.training.features import PREFIX, with_vectors
from allneg.training.optimizers import zero_state
from allneg.training.partial import AT_ONCE, joined, shares

_ROUNDS = 3  # in which entities that are linked only with new ones get their start
_WEISZFELD = 15  # steps to a median
_NEAR = 1e-4  # distances from a median that count as equal
# Rows that fit the old facts too closely take long to leave them; shorter ones keep the direction.
_SHORTER = 0.3


def begin(
    folder: Path, recipe: Recipe, graph: Graph, parent: Run | None, tell: Callable[[str], None]
) -> Run:
    """Create a run; with `parent`, it begins with the rows that this has for the same names."""
    settings = recipe.model
    if parent is None:
        if settings.start is None and settings.features is None:
            return Run.create(folder, recipe, graph)
        start = with_vectors(
            _fresh(recipe, graph), recipe, graph, torch.ones(graph.n_entities) > 0, tell
        )
        return Run.create(folder, recipe, graph, start=start)
    start = inherited(parent, recipe, graph)
    for kind in ("entities", "relations"):
        old, new = (getattr(each.vocabulary, kind) for each in (parent.graph, graph))
        n = len(set(old).intersection(new))
        tell(f"{n:,} of {len(new):,} {kind} begin with the rows of {parent.folder}")
        if not n:
            raise RecipeError(f"{parent.folder}: has none of the {kind} of {graph.name}")
    if n_seen := n_in_train(graph, parent.graph):
        tell(
            f"{parent.folder} was trained on {counted(n_seen, 'fact')} of valid and test, whose "
            "ranks are too good"
        )
    known = parent.graph.vocabulary.entity_ids
    is_new = torch.tensor([name not in known for name in graph.vocabulary.entities])
    # The optimizer starts anew: with AdaGrad's sums, the steps would be too small for new facts.
    optimizer = {
        name: tensor if name.startswith(PREFIX) else torch.zeros_like(tensor)
        for name, tensor in start.optimizer.items()
    }
    tables = dict(start.tables)
    if settings.features is None:  # else a row is a sum, and its map stays as it is
        tables["entities"] = torch.where(is_new[:, None], 1.0, _SHORTER) * tables["entities"]
    start = replace(start, tables=tables, optimizer=optimizer)
    start = with_vectors(start, recipe, graph, is_new, tell)
    before = original(parent.recipe, parent.parents)
    changes = replaced(before, warm_recipe(before), recipe)
    about = Parent(parent.folder.resolve().name, parent.id, "start", replaced=changes)
    return Run.create(folder, recipe, graph, (*parent.parents, about), start)


def start_recipe(parent: Run, model: str | None) -> Recipe | None:
    """The recipe of a training from a run, if none is given; None if it names another model."""
    if model not in (None, parent.recipe.model.name):
        return None
    return warm_recipe(original(parent.recipe, parent.parents))


def warm_recipe(recipe: Recipe) -> Recipe:
    """The recipe for a training that begins with the rows of a run: half of its epochs."""
    every, epochs = recipe.evaluation.every, recipe.training.epochs
    return recipe.with_settings({
        "model.start": None, "training.epochs": -(-epochs // 2), "evaluation.every": -(-every // 2),
        "optimizer.learning_rate": start_rate(recipe),
    })  # fmt: skip


def start_rate(recipe: Recipe) -> float:
    """The learning rate for rows that begin near their place.

    There are fewer steps, and those of AdaGrad become shorter. The long steps of Adam would forget
    the start.
    """
    factor = 2.0 if recipe.optimizer.name == "adagrad" else 0.3
    return factor * recipe.optimizer.learning_rate


def _fresh(recipe: Recipe, graph: Graph, first: int = 0) -> Checkpoint:
    """Random rows, of entities from `first` on, and the optimizer's state before a step."""
    n, seed = graph.n_entities, recipe.training.seed
    shard, reciprocal = Shard(first, n, n), recipe.model.reciprocal
    tables = Tables.create(make_model(recipe), graph.n_relations, shard, reciprocal, seed)
    if first:
        rows = F.pad(tables.entities.detach(), (0, 0, first, 0))
        parts = tables.relations.detach(), Shard.whole(n), reciprocal
        shared = None if tables.shared is None else tables.shared.detach()
        tables = Tables(rows, *parts, shared)
    return Checkpoint(State(), tables.weights(), zero_state(recipe.optimizer, tables))


def check_start(parent: Run, recipe: Recipe) -> None:
    """Raise an error unless a training with this recipe can begin with the rows of a run."""
    parent.need_trainable("choose a trained run")
    parent.need_weights()
    for name in ("name", "dim", "norm", "squared", "bias", "reciprocal"):
        now, old = (getattr(each.model, name) for each in (recipe, parent.recipe))
        if now != old:
            raise RecipeError(f"model.{name} is {now}, but rows of {parent.folder} have {old}")


def inherited(parent: Run, recipe: Recipe, graph: Graph, first: int = 0) -> Checkpoint:
    """A start with the parent's best rows and optimizer state, matched by name; others are new.

    The parent has all entities before `first`, and fits the recipe: see `check_start`.
    """
    saved = parent.last()
    if saved is None:
        raise RecipeError(f"{parent.folder}: nothing is trained yet; choose a trained run")
    settings, before = recipe.model, parent.recipe.model
    fresh = _fresh(recipe, graph, first)
    old_names, names = parent.graph.vocabulary, graph.vocabulary
    relations = _matched(old_names.relations, names.relations)
    if settings.reciprocal:
        sizes = torch.tensor([[len(old_names.relations)], [len(names.relations)]])
        relations = torch.cat([relations, relations + sizes], dim=1)
    rows = {"entities": _matched(old_names.entities, names.entities), "relations": relations}
    best = saved.best or saved.tables
    weights = {
        name: _moved(best[name], tensor, rows.get(name)) for name, tensor in fresh.tables.items()
    }
    optimizer = {
        name: _moved(saved.optimizer[name], zero, rows.get(name.rpartition(".")[0]))
        if name in saved.optimizer
        else zero
        for name, zero in fresh.optimizer.items()
    }
    if settings.features is not None and before.features is not None:
        optimizer |= {n: tensor for n, tensor in saved.optimizer.items() if n.startswith(PREFIX)}
        features = optimizer[f"{PREFIX}rows"]
        zero = torch.zeros(graph.n_entities, features.shape[1])
        optimizer[f"{PREFIX}rows"] = _moved(features, zero, rows["entities"])
    return Checkpoint(State(), weights, optimizer)


def _matched(old: Sequence[str], new: Sequence[str]) -> Tensor:
    """The ids of the names that both have, in the old and in the new list: (2, n)."""
    ids = {name: number for number, name in enumerate(new)}
    pairs = [(number, ids[name]) for number, name in enumerate(old) if name in ids]
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def _moved(old: Tensor, new: Tensor, rows: Tensor | None) -> Tensor:
    """`new` with the old values; `rows` are their rows in both, if the tensor has rows."""
    if rows is None or not old.dim():
        return old
    # Old rows are in their order, so if all are there, they need not be copied twice.
    some = old if rows.shape[1] == len(old) else old[rows[0]]
    return new.index_copy_(0, rows[1], some.to(new.dtype))


@torch.no_grad()
def place(model: Model, tables: Tables, new: Tensor, triples: Tensor) -> None:
    """Put new entities of a distance model where the points that their facts ask for meet.

    `new` (N,) marks these entities, `triples` (n, 3) are facts of all. Facts between two new ones
    count once one has its place.
    """
    placed, entities = ~new, tables.entities.detach()
    is_own = new[triples[:, 0]] | new[triples[:, 2]]
    facts, share = triples[is_own], shares(model, tables, triples, is_own)
    both = joined(*(replace(Queries.of(facts, side), weight=share) for side in SIDES))
    for _ in range(_ROUNDS):
        wanted = both[~placed[both.answer] & placed[both.entity]]
        for some in _whole_groups(wanted.answer):
            asked = wanted[some]
            rows = tables.gather(asked)
            points = model.query(rows.entity, rows.relation, asked.side, tables.reciprocal)
            found, group = asked.answer.unique(return_inverse=True)
            assert asked.weight is not None
            entities[found] = _middles(model, points, asked.weight[:, None], group, len(found))
        placed[wanted.answer] = True
    if model.bias:
        entities[new, -1] = 0.0  # a point has the bias of its neighbour


def _whole_groups(key: Tensor) -> tuple[Tensor, ...]:
    """Indices of about `AT_ONCE` keys each, with those of equal keys together."""
    key, order = key.sort(stable=True)
    part = torch.searchsorted(key, key) // AT_ONCE
    _, counts = part.unique_consecutive(return_counts=True)
    return torch.split(order, counts.tolist())


def _middles(model: Model, points: Tensor, share: Tensor, group: Tensor, n: int) -> Tensor:
    """The place with the least sum of distances to the points of each of `n` groups: (n, W).

    A mean where distances are squared, else a median, by Weiszfeld's steps from the mean. Points
    count by their `share` (B, 1).
    """

    def mean(weight: Tensor) -> Tensor:  # (n, W)
        weight = weight * share
        total, sums = points.new_zeros(n, points.shape[1]), weight.new_zeros(n, weight.shape[1])
        total.index_add_(0, group, weight * points)
        return total / sums.index_add_(0, group, weight)

    middle = mean(points.new_ones(len(points), 1))
    for _ in range(0 if model.squared else _WEISZFELD):
        gap = (points - middle[group]).unflatten(1, (model.entity_axes, -1)).square().sum(1)
        if model.norm == 1:  # each coordinate has its own median
            weight = gap.sqrt().clamp_(min=_NEAR).reciprocal_().repeat(1, model.entity_axes)
        else:
            weight = gap.sum(1, keepdim=True).sqrt_().clamp_(min=_NEAR).reciprocal_()
        middle = mean(weight)
    return middle
