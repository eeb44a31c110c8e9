"""`audit`: the facts of a graph that look wrong, most suspicious first.

All facts are divided into folds. Each fold is judged by a model that was trained on the others, so
no fact is judged by a model that learned it. A logistic regression then tells the facts, nearly
all of which are right, from wrong ones that are made by replacing one side: by any entity, and by
one that is seen on this side of the relation. It uses what both directions of the model say, and
what the other facts say, see `allneg.auditing.features`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from allneg.auditing.duplicates import Duplicate, alike, duplicates
from allneg.auditing.features import features, log_odds
from allneg.auditing.reasons import Reasons
from allneg.errors import DataError, UsageError
from allneg.evaluation.curves import Numbers, probability_of
from allneg.graph.graph import Graph, Triples, Vocabulary
from allneg.graph.read import read_graph
from allneg.predict.classify import typed_negatives
from allneg.predict.evidence import Evidence
from allneg.predict.lookup import Facts
from allneg.predict.predictor import Predictor
from allneg.predict.results import Results
from allneg.recipe import Recipe, parse_settings
from allneg.runs import Run, plain
from allneg.training.callbacks import Callbacks
from allneg.training.loop import fit
from allneg.training.train import combined, planned

_MADE = 12_000  # wrong facts of each kind that are made, about


@dataclass(frozen=True)
class SuspiciousFact:
    head: str
    relation: str
    tail: str
    probability: float  # that the fact is right
    head_rank: float  # among new answers to (?, relation, tail)
    tail_rank: float
    expected: str  # the best other answer, such as "tail: France"
    reason: str


@dataclass(frozen=True)
class Audit:
    """The result: facts, and pairs of entities or relations that may be the same."""

    facts: Results[SuspiciousFact]
    duplicates: Results[Duplicate]
    n_facts: int  # judged


def audit(
    data: Any,
    *,
    model: str | None = None,
    recipe: Recipe | str | Path | None = None,
    settings: Iterable[str] | Mapping[str, object] = (),
    folds: int = 4,
    top: int = 1000,
    out: str | Path | None = None,
    progress: bool = False,
    callbacks: Callbacks | Sequence[Callbacks] = (),
    stopped_by: Callable[[], int] | None = None,
) -> Audit:
    """The `top` most suspicious facts of all splits of `data`, anything that `read_graph` takes.

    Each fold is a run in the folder `out`, if that is given; an audit that was interrupted, or
    even killed, then continues. Without a recipe and a number of epochs, each run takes the
    default number divided by `folds`. The other arguments are those of `train`.
    """
    if folds < 2 or top < 1:
        raise UsageError("give at least 2 folds and a top of at least 1")
    settings = settings if isinstance(settings, str | Mapping) else list(settings)
    given = planned(data, model=model, recipe=recipe, settings=settings)
    graph, own = read_graph(data, given.data), combined(callbacks, progress, ())
    plan = quick_plan(data, graph, folds, model=model, recipe=recipe, settings=settings)
    with tempfile.TemporaryDirectory() as temporary:
        judged = judge(graph, plan, folds, Path(out or temporary), own, stopped_by)
        worst = Results(SuspiciousFact, judged.worst(top))
        pairs = Results(Duplicate, judged.duplicates(graph))
        return Audit(worst, pairs, len(judged.facts))


def quick_plan(data: Any, graph: Graph, folds: int, **given: Any) -> Recipe:
    """The recipe of a fold; by default, all folds take about as long as one training."""
    plan = planned(data, graph=graph, **given)
    has_epochs = "epochs" in parse_settings(given["settings"]).get("training", {})
    if given.get("recipe") is None and not has_epochs:
        plan = plan.with_settings({"training.epochs": -(-plan.training.epochs // folds)})
    return plan.with_settings({"training.average": 0.0})  # it needs valid


@dataclass(frozen=True)
class Judged:
    """All facts of a graph, and what the models say that did not learn them."""

    names: Vocabulary
    facts: Triples  # (n, 3)
    runs: list[Run]  # of the folds
    fold: Triples  # (n,)
    rank: Numbers  # (n, 2): column 0 by tail queries, column 1 by head queries
    log_odds: Numbers  # (n,): of a fact being right

    def worst(self, count: int) -> list[SuspiciousFact]:
        """The most suspicious facts with reasons."""
        order = np.argsort(self.log_odds, kind="stable")[:count]
        found: dict[int, SuspiciousFact] = {}
        for k, predictor in enumerate(self._predictors()):
            reasons = Reasons(predictor)
            for i in order[self.fold[order] == k].tolist():
                (h, r, t), (tail_rank, head_rank) = self.facts[i].tolist(), self.rank[i].tolist()
                named = self.names.entities[h], self.names.relations[r], self.names.entities[t]
                probability = float(probability_of(self.log_odds[i]))
                why = reasons(h, r, t, tail_rank, head_rank)
                found[i] = SuspiciousFact(*named, probability, head_rank, tail_rank, *why)
        return [found[i] for i in order.tolist()]

    def duplicates(self, graph: Graph) -> list[Duplicate]:
        """Pairs that may be the same thing by their facts, then by their vectors."""
        found = duplicates(graph, self.facts)
        by_facts = {(pair.first, pair.second) for pair in found if pair.kind == "entities"}
        vectors = (predictor.vectors for predictor in self._predictors())
        others = alike(vectors, graph, self.facts)
        return found + [pair for pair in others if (pair.first, pair.second) not in by_facts]

    def _predictors(self) -> Iterator[Predictor]:
        for k, run in enumerate(self.runs):
            yield _of_fold(run, self.facts[self.fold == k])


def judge(
    graph: Graph,
    plan: Recipe,
    folds: int,
    folder: Path,
    callbacks: Callbacks,
    stopped_by: Callable[[], int] | None = None,
) -> Judged:
    """Train the models of all folds, or continue, and judge all facts."""
    facts = Facts.of(graph).triples
    if len(facts) < 2 * folds:
        raise DataError(f"{graph.name}: too few facts for {folds} folds: {len(facts)}")
    fold = np.random.default_rng(0).permutation(np.arange(len(facts)) % folds)
    runs, rank, right, made, of_made = [], np.zeros((len(facts), 2)), [], [], []
    began = time.monotonic()
    for k in range(folds):
        left = f"; about {(time.monotonic() - began) / k * (folds - k):.0f} s left" if k else ""
        callbacks.on_message(f"fold {k + 1} of {folds}{left}")
        none = facts[:0]
        rest = replace(graph, train=facts[fold != k], valid=none, test=none, weights=None)
        runs.append(run := _opened(folder / f"fold-{k + 1}", plan, rest))
        if not run.finished:
            fit(run, callbacks, stopped_by, again="the same command")
        predictor = _of_fold(run, facts[fold == k])
        evidence = Evidence.of(predictor, predictor.graph.valid)
        rank[fold == k] = evidence.rank
        right.append(features(predictor.graph, predictor.graph.valid, evidence))
        some = predictor.graph.valid[:: max(1, len(facts) // _MADE)]
        for typed in (True, False):
            wrong = typed_negatives(predictor.graph, some, typed=typed)
            made.append(features(predictor.graph, wrong, Evidence.of(predictor, wrong)))
            of_made.append(wrong[:, 1])
    x = np.concatenate(right)[np.argsort(np.argsort(fold, kind="stable"))]
    found = log_odds(x, facts[:, 1], np.concatenate(made), np.concatenate(of_made))
    return Judged(graph.vocabulary, facts, runs, fold, rank, found)


def _of_fold(run: Run, held_out: Triples) -> Predictor:
    """The model of a fold. The facts of the fold are known, but not learned."""
    predictor = Predictor.load(run.folder, run.recipe.hardware.device)
    return replace(predictor, graph=replace(predictor.graph, valid=held_out))


def _opened(folder: Path, plan: Recipe, graph: Graph) -> Run:
    """The run of a fold: the one that an interrupted audit has left, or a new one."""
    if not plain.exists(folder / "run.json"):
        shutil.rmtree(folder, ignore_errors=True)  # killed before it was a run
        return Run.create(folder, plan, graph)
    run = Run.open(folder)
    if run.recipe != plan or not np.array_equal(run.graph.train, graph.train):
        raise UsageError(
            f"{folder.parent}: from an audit with other data or options; delete it, or choose "
            "another --out"
        )
    return run
