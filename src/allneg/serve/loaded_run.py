"""A run loaded for the explorer, by name: answers, similar entities, and maps of their vectors."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import DataError, Diverged, ResourceError, extra, in_other_form, printable
from allneg.graph.graph import SPLITS, Triples
from allneg.graph.queries import Side
from allneg.predict.lookup import Facts, NameIndex
from allneg.predict.predictor import Predictor
from allneg.predict.results import Answers
from allneg.runs import Run
from allneg.serve import schemas
from allneg.serve.server import ApiError

Ids = npt.NDArray[np.int64]

MAX_POINTS = 20_000  # on the map
_N_COLOURS = 9  # answers with a colour of their own


class LoadedRun:
    """One run with all that its answers need; `labels` are those of entity names."""

    def __init__(self, id: str, run: Run, predictor: Predictor, labels: Mapping[str, str]) -> None:
        """Compute all that takes a while before the first request."""
        self.id, self.run, self.predictor, self.labels = id, run, predictor, labels
        self.graph, self.vocabulary = predictor.graph, predictor.graph.vocabulary
        self.facts = Facts.of(self.graph)
        counts = np.bincount(self.graph.train[:, 1], minlength=self.graph.n_relations)
        self.relation_counts: list[int] = counts.tolist()  # facts in train
        self.entity_index = NameIndex(self.vocabulary.entities, self.facts.degree, labels)
        self.relation_index = NameIndex(self.vocabulary.relations, counts, {})
        self.vectors = predictor.vectors
        self.calibration = predictor.calibration
        self.report = run.report if run.has_report else None
        self.points: dict[str, list[list[float]]] = {}  # of maps, by method

    @classmethod
    def load(cls, folder: Path, id: str, labels: Mapping[str, str], device: str) -> LoadedRun:
        run = Run.open(folder)
        return cls(id, run, Predictor.load(folder, device), {**run.graph.labels, **labels})

    def entity_id(self, name: str) -> int:
        return _id("entity", name, self.vocabulary.entity_ids, self.entity_index)

    def relation_id(self, name: str) -> int:
        return _id("relation", name, self.vocabulary.relation_ids, self.relation_index)

    def name(self, entity: int) -> str:
        return self.vocabulary.entities[entity]

    def labels_of(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.labels[name] for name in names if name in self.labels}

    @property
    def card(self) -> schemas.ModelCard:
        graph, model, report = self.graph, self.run.model, self.report
        metrics = self.run.metrics()
        return schemas.ModelCard(
            id=self.id,
            data=graph.name,
            model=self.run.model_name,
            dim=model.dim,
            entities=graph.n_entities,
            relations=graph.n_relations,
            train=len(graph.train),
            valid=len(graph.valid),
            test=len(graph.test),
            mrr=report.mrr if report else None,
            hits=dict(report.hits) if report else None,
            protocol=dict(report.protocol) if report else None,
            recipe=self.run.recipe.to_tables(),
            finished=self.run.finished,
            epochs=len(metrics),
            seconds=metrics[-1]["seconds"] if metrics else 0.0,
        )

    def entities(self, typed: str, limit: int) -> schemas.Entities:
        ids, match = self.entity_index.search(typed, limit)
        return schemas.Entities([schemas.FoundEntity(*self.about(i)) for i in ids], match)

    def about(self, entity: int) -> tuple[str, str | None, int, bool]:
        """Name, label, number of facts, and whether the entity is new."""
        name, is_new = self.name(entity), entity >= self.run.first_new_entity
        return name, self.labels.get(name), int(self.facts.degree[entity]), is_new

    def relations(self, typed: str, head: str | None) -> list[schemas.RelationName]:
        """The relations that match `typed`; those that the head has in train come first."""
        typical = set()
        if head is not None:
            facts = self.facts.of_entity(self.entity_id(head))
            typical = set(facts.relation[(facts.split == 0) & ~facts.reverse].tolist())
        found, _ = self.relation_index.search(typed, self.graph.n_relations)
        names, categories = self.vocabulary.relations, self.graph.categories
        return [
            schemas.RelationName(names[i], self.relation_counts[i], categories[i], i in typical)
            for i in sorted(found, key=lambda i: i not in typical)
        ]

    def predicted(
        self, query: tuple[Side, str, str], answers: Answers, seconds: float
    ) -> schemas.Predicted:
        """The response to a query (side of the answer, known entity, relation)."""
        rows = [
            schemas.EntityAnswer(
                rank, self.labels.get(p.entity), p.score, p.share, p.calibrated, p.known, p.entity
            )
            for rank, p in enumerate(answers.predictions, 1)
        ]
        description = self.calibration.description if self.calibration else None
        return schemas.Predicted(query_for(*query), rows, seconds, description)

    def relations_between(self, head: str, tail: str, k: int, new: bool) -> schemas.Predicted:
        """The best relations between two entities. There is no calibration for them."""
        self.entity_id(head), self.entity_id(tail)
        began = time.perf_counter()
        rows = [
            schemas.RelationAnswer(rank, None, p.score, p.share, None, p.known, p.relation)
            for rank, p in enumerate(self.predictor.relations(head, tail, k, new), 1)
        ]
        question = schemas.Query(head, None, tail)
        return schemas.Predicted(question, rows, time.perf_counter() - began, None)

    def neighbours(self, name: str, k: int) -> list[schemas.Neighbour]:
        return [
            schemas.Neighbour(self.name(other), self.labels.get(self.name(other)), similarity)
            for other, similarity in self.vectors.nearest(self.entity_id(name), k)
        ]

    def map(self, relation: str | None, method: str) -> schemas.Map:
        """The entities with most facts in two dimensions, coloured by their answers."""
        by = None if relation is None else self.relation_id(relation)
        graph = self.graph
        shown = np.argsort(-self.facts.degree, kind="stable")[:MAX_POINTS]
        legend, colour = ["all"], np.zeros(len(shown), dtype=np.int64)
        if by is not None:
            triples = np.concatenate([graph.split(split) for split in SPLITS])
            colour, top = colours(triples[triples[:, 1] == by], shown, graph.n_entities)
            legend = [*(self.name(i) for i in top), "other", "none"]
        note = "distances on the map are only indicative"
        if len(shown) < graph.n_entities:
            note = f"the {len(shown):,} of {graph.n_entities:,} entities with most facts; {note}"
        names = [self.name(i) for i in shown.tolist()]
        if method not in self.points:
            points = (pca if method == "pca" else tsne)(self.vectors.rows[shown])
            self.points[method] = [[round(x, 3), round(y, 3)] for x, y in points.tolist()]
        return schemas.Map(method, self.points[method], names, colour.tolist(), legend, note)


def query_for(side: Side, entity: str, relation: str) -> schemas.Query:
    head, tail = (entity, None) if side == "tail" else (None, entity)
    return schemas.Query(head, relation, tail)


def _id(kind: str, name: str, ids: Mapping[str, int], index: NameIndex) -> int:
    if name not in ids:
        near = index.close_names(name)
        forms = [f"; close is {form}" for other in near if (form := in_other_form(other, name))]
        text = f"no {kind} is called {printable(name)}{''.join(forms)}"
        raise ApiError(f"unknown_{kind}", text, near)
    return ids[name]


@torch.no_grad()
def pca(rows: Tensor) -> Tensor:
    """The two principal components: (n, W) -> (n, 2), scaled to [-1, 1]; always the same."""
    centred = rows.float() - rows.float().mean(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        axes = torch.pca_lowrank(centred, min(8, *centred.shape), center=False, niter=12)[2]
    points = centred @ axes[:, :2]
    # The sign of a component is arbitrary: make its largest coordinate positive.
    points = points * points.gather(0, points.abs().argmax(0, keepdim=True)).sign()
    return _scaled(torch.nn.functional.pad(points, (0, 2 - points.shape[1])))


def tsne(rows: Tensor) -> Tensor:
    """t-SNE by openTSNE: (n, W) -> (n, 2), scaled to [-1, 1]."""
    with extra("tsne", "t-SNE"):
        from openTSNE import TSNE

    points = TSNE(random_state=0, n_jobs=2).fit(rows.float().cpu().numpy())
    return _scaled(torch.from_numpy(np.asarray(points)))


def _scaled(points: Tensor) -> Tensor:
    largest: Tensor = points.abs().max().clamp(min=1e-12)
    return points / largest


def colours(triples: Triples, entities: Ids, n_entities: int) -> tuple[Ids, list[int]]:
    """A colour per entity by its answer to one relation, and the answers of the first colours.

    `triples` are those of the relation. Of several answers the most common one counts. The last
    two colours mean other answers and no answer: (n,) and up to 9 ids.
    """
    count = np.bincount(triples[:, 2], minlength=n_entities)
    answers = np.argsort(-count, kind="stable")[:_N_COLOURS]
    top = answers[count[answers] > 0]
    colour_of_answer = np.full(n_entities, len(top))
    colour_of_answer[top] = np.arange(len(top))
    colour = np.full(n_entities, len(top) + 1)
    # From the rarest answer to the most common one, which overwrites the others.
    order = np.argsort(count[triples[:, 2]], kind="stable")
    colour[triples[order, 0]] = colour_of_answer[triples[order, 2]]
    return colour[entities], top.tolist()


@contextlib.contextmanager
def errors_named(folder: Path) -> Iterator[None]:
    """Name the run in errors about its weights, since there may be several runs."""
    try:
        yield
    except (Diverged, ResourceError) as error:
        raise type(error)(f"{folder}: {error}") from None


def load_runs(
    folders: Sequence[Path], labels: Mapping[str, str], device: str
) -> dict[str, LoadedRun]:
    """Runs by id: the folder's name, with a number if several have the same."""
    runs: dict[str, LoadedRun] = {}
    for folder in folders:
        base = folder.resolve().name
        names = chain([base], (f"{base}-{number}" for number in count(2)))
        name = next(name for name in names if name not in runs)
        with errors_named(folder):
            runs[name] = LoadedRun.load(folder, name, labels, device)
    if labels and not any(labels.keys() & r.vocabulary.entity_ids.keys() for r in runs.values()):
        raise DataError("no label belongs to an entity of these runs; is it the right file?")
    return runs
