"""`extend`: new entities, relations and facts for a trained run, without training it again."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from allneg.errors import RecipeError, UsageError, counted, printable
from allneg.graph.clean import without_unseen
from allneg.graph.graph import Graph
from allneg.graph.grow import Growth, grow
from allneg.graph.read import read_graph
from allneg.hardware import find_device, torch_settings
from allneg.models import MODELS
from allneg.recipe import Data, Mesh, Recipe
from allneg.runs import Run, check_new, make_model, new_folder
from allneg.runs.checkpoint import Checkpoint
from allneg.runs.parents import TOUCH, Parent, Touch, original, replaced
from allneg.scoring import Shard, Tables
from allneg.scoring.losses import Softmax, loss_class
from allneg.training.callbacks import Callbacks
from allneg.training.features import with_vectors
from allneg.training.interrupt import interruptible
from allneg.training.launch import n_processes
from allneg.training.loop import run_training
from allneg.training.memory import check_memory
from allneg.training.partial import bytes_of_others
from allneg.training.start import check_start, inherited, place, start_rate
from allneg.training.train import combined
from allneg.training.trainer import check_weights

_FEW = 10  # facts of a new relation
# Times the weight of the regularizer: with all of it, new rows beside fixed ones are too short.
_LIGHTER = 0.25
_ENOUGH = {
    "training.epochs": 20, "training.average": 0.0,
    "optimizer.schedule": "cosine", "optimizer.decay": 0.01, "optimizer.warmup": 0,
}  # fmt: skip
# Notes on a file as a whole graph, which a file of some facts is not, and on how it is read.
_OF_A_GRAPH = re.compile(
    "(valid|test) is empty$|valid 0, test 0$|are not in train; they occur in"
    "|relations but only .* (heads|tails); if|keep_relations that no relation has"
    "|has no effect, since the splits are given$"
)


def extend(
    run: Run | Path | str,
    facts: Any = None,
    *,
    out: Path | str | None = None,
    remove: Any = None,
    touch: Touch = "new",
    settings: Iterable[str] | Mapping[str, object] = (),
    progress: bool = False,
    track: str | Sequence[str] = (),
    callbacks: Callbacks | Sequence[Callbacks] = (),
    stopped_by: Callable[[], int] | None = None,
) -> Run:
    """A new run with the rows of `run`, more `facts`, and rows for the new names in them.

    `facts` and `remove`, the facts to leave out, are anything that `read_graph` takes. Names that
    the run knows keep their ids and their rows, bit by bit. New rows are trained on their own facts
    with the loss and the regularizer of the run. `touch` "neighbours" also trains the entities of
    new and removed facts, on all of their facts; "all" continues the training of every row.
    The other arguments are those of `train`; after the first checkpoint, `resume` continues a
    killed `extend`.
    """
    own = combined(callbacks, progress, track)
    parent = run if isinstance(run, Run) else Run.open(run)
    if facts is None and remove is None:
        raise UsageError("extend needs facts to add or to remove")
    if touch not in TOUCH or touch == "start":
        raise UsageError(f"touch must be new, neighbours or all, not {touch!r}")
    if n_processes() > 1:
        raise UsageError("extend is for a single process; `allneg resume` takes several")
    before = original(parent.recipe, parent.parents)
    recipe = _recipe(before, touch, settings)
    check_start(parent, recipe)
    if touch != "all" and recipe.model.features and not parent.recipe.model.features:
        raise RecipeError(
            f"model.features: {parent.folder} has no map of features, and only --touch all trains "
            "one; use model.start instead"
        )
    device = find_device(recipe.hardware.device)
    folder = new_folder(recipe) if out is None else Path(out)
    check_new(folder)
    growth = _read(parent.graph, facts, remove, recipe.data, own)
    graph, old = growth.graph, parent.graph
    check_weights(recipe, graph)
    about = Parent(
        parent.folder.resolve().name, parent.id, touch, old.n_entities, old.n_relations,
        growth.n_kept, growth.removed, replaced(before, _recipe(before, touch, ()), recipe),
    )  # fmt: skip
    others = 0 if touch == "all" else bytes_of_others(recipe, graph)
    check_memory(recipe, graph, device, Mesh(), others)
    if not parent.finished:
        own.on_message(f"{parent.folder} is not finished; its best weights so far are used")
    for line in _description(about, graph):
        own.on_message(line)
    with torch_settings(recipe.hardware):
        start = _start(parent, recipe, graph, about, own.on_message)
    # Rows that are not trained are saved now. Others are saved with the first checkpoint.
    saved = start if start.state.epoch else None
    child = Run.create(folder, recipe, graph, (*parent.parents, about), saved)
    with child.locked(), interruptible(stopped_by) as stop:
        run_training(child, own, stop, start=start)
    return child


def _recipe(recipe: Recipe, touch: Touch, settings: Iterable[str] | Mapping[str, object]) -> Recipe:
    settings = settings if isinstance(settings, str | Mapping) else list(settings)
    recipe = recipe.with_settings({"model.start": None})
    if touch == "all":
        return recipe.with_settings(settings)
    recipe = recipe.with_settings(_ENOUGH)
    if touch == "new" and recipe.optimizer.name == "adagrad":  # old rows need more steps
        recipe = recipe.with_settings({
            "training.epochs": 5, "optimizer.learning_rate": start_rate(recipe),
            "regularizer.weight": _LIGHTER * recipe.regularizer.weight,
        })  # fmt: skip
    elif touch == "new" and MODELS[recipe.model.name].is_distance:  # new rows begin at a median
        recipe = recipe.with_settings({"training.epochs": 10})
    if issubclass(loss_class(recipe.loss), Softmax):
        # The same loss; but then fixed queries are compared with all rows only once.
        recipe = recipe.with_settings({"loss.grouped": False})
    # Valid is ranked at the end only: its facts are mostly those of old entities.
    epochs = recipe.with_settings(settings).training.epochs
    return recipe.with_settings({"evaluation.every": epochs}).with_settings(settings)


def _read(graph: Graph, facts: Any, remove: Any, data: Data, own: Callbacks) -> Growth:
    """The grown graph; a single file of facts is not split."""
    part = replace(data, valid_share=0.0, test_share=0.0, drop_unseen=False)
    added, removed = (None if some is None else read_graph(some, part) for some in (facts, remove))
    growth = grow(graph, added, removed)
    grown = growth.graph
    seen = grown.seen[graph.n_entities :], grown.seen_relations[graph.n_relations :]
    if not np.concatenate(seen).all():
        growth = replace(growth, graph=without_unseen(grown, data, keeps_ids=True))
    read = [note for some in (added, removed) if some is not None for note in some.notes]
    for note in (*(note for note in read if not _OF_A_GRAPH.search(note)), *growth.graph.notes):
        own.on_message(note)
    return growth


def _description(parent: Parent, graph: Graph) -> list[str]:
    """What is new, and what is missing for good rows."""
    entities, relations = parent.touched(graph)
    n_rows, n_facts = int(entities.sum()), len(graph.train) - parent.train
    lines = [
        f"{counted(graph.n_entities - parent.entities, 'new entity')}, "
        f"{counted(graph.n_relations - parent.relations, 'new relation')} and "
        f"{counted(n_facts, 'new fact')}; {counted(n_rows, 'entity')} of "
        f"{graph.n_entities:,} and {counted(int(relations.sum()), 'relation')} are trained"
    ]
    if parent.touch == "new" and not (n_rows or relations.any()) and (n_facts or parent.removed):
        lines.append("no row changes; --touch neighbours trains the entities of these facts")
    count = np.bincount(graph.train[:, 1], minlength=graph.n_relations)
    few = [i for i in range(parent.relations, graph.n_relations) if count[i] < _FEW]
    for i in few[:3]:
        name = printable(graph.vocabulary.relations[i])
        lines.append(f"relation {name} has only {counted(count[i], 'fact')}; expect poor answers")
    if len(few) > 3:
        lines.append(f"so have {len(few) - 3:,} more new relations")
    return lines


def _start(
    parent: Run, recipe: Recipe, graph: Graph, about: Parent, tell: Callable[[str], None]
) -> Checkpoint:
    """The parent's rows, and a start for the new ones; the end of training if none is trained."""
    start, facts = inherited(parent, recipe, graph, about.entities), about.facts(graph)
    if not len(facts):
        start = replace(start, state=replace(start.state, epoch=recipe.training.epochs))
    new, model = torch.arange(graph.n_entities) >= about.entities, make_model(recipe)
    if model.is_distance:
        whole = Tables(
            start.tables["entities"], start.tables["relations"], Shard.whole(len(new)),
            recipe.model.reciprocal,
        )  # fmt: skip
        is_old = graph.train[:, 1] < about.relations  # a new relation's row is random yet
        place(model, whole, new, torch.from_numpy(graph.train[is_old]))
    return with_vectors(start, recipe, graph, new, tell)
