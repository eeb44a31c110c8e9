"""A run opened for exploring: what it knows and believes, by name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from allneg.errors import DataError, printable
from allneg.graph.graph import SPLITS
from allneg.graph.queries import Side
from allneg.runs import Run
from allneg.serving import shapes
from allneg.serving.calibration import Calibration
from allneg.serving.explain import explain
from allneg.serving.facts import Facts
from allneg.serving.names import Names
from allneg.serving.predictor import Answers, Predictor
from allneg.serving.projection import MOST_POINTS, colours, has_tsne, pca, tsne
from allneg.serving.quality import examples, quality
from allneg.serving.refusal import Refusal
from allneg.serving.space import Space


@dataclass(frozen=True)
class Opened:
    """One run, ready to be asked anything the page shows."""

    id: str
    run: Run
    predictor: Predictor
    labels: Mapping[str, str]  # of entities, by name
    names: Names  # of entities
    relation_names: Names
    facts: Facts
    space: Space
    calibration: Calibration | None

    @classmethod
    def load(cls, folder: Path, id: str, labels: Mapping[str, str], device: str) -> Opened:
        return cls.of(id, Run.open(folder), Predictor.load(folder, device), labels)

    @classmethod
    def of(cls, id: str, run: Run, predictor: Predictor, labels: Mapping[str, str]) -> Opened:
        """Everything that takes a while is made here, before the first query."""
        graph, facts = predictor.graph, Facts.of(predictor.graph)
        count = np.bincount(graph.train[:, 1], minlength=graph.n_relations)
        return cls(
            id,
            run,
            predictor,
            labels,
            Names.of(graph.vocabulary.entities, facts.degree, labels),
            Names.of(graph.vocabulary.relations, count, {}),
            facts,
            Space.of(predictor.model, predictor.tables),
            Calibration.fit(predictor),
        )

    def entity(self, name: str) -> int:
        """The id of an entity; an unknown one is refused with names like it."""
        found = self.predictor.graph.vocabulary.entity_ids.get(name)
        if found is None:
            text = f"no entity is called {printable(name)}"
            raise Refusal("unknown_entity", text, self.names.close_names(name))
        return found

    def relation(self, name: str) -> int:
        found = self.predictor.graph.vocabulary.relation_ids.get(name)
        if found is None:
            text = f"no relation is called {printable(name)}"
            raise Refusal("unknown_relation", text, self.relation_names.close_names(name))
        return found

    def knows(self, entity: str, relation: str) -> bool:
        vocabulary = self.predictor.graph.vocabulary
        return entity in vocabulary.entity_ids and relation in vocabulary.relation_ids

    def name(self, entity: int) -> str:
        return self.predictor.graph.vocabulary.entities[entity]

    @cached_property
    def card(self) -> shapes.ModelCard:
        graph, recipe, metrics = self.predictor.graph, self.run.recipe, self.run.metrics()
        report = self.run.report if self.run.has_report else None
        return shapes.ModelCard(
            self.id,
            graph.name,
            recipe.model.name,
            recipe.model.dim,
            graph.n_entities,
            graph.n_relations,
            len(graph.train),
            len(graph.valid),
            len(graph.test),
            report.mrr if report else None,
            dict(report.hits) if report else None,
            dict(report.protocol) if report else None,
            recipe.to_tables(),
            self.run.finished,
            len(metrics),
            metrics[-1]["seconds"] if metrics else 0.0,
        )

    @cached_property
    def examples(self) -> list[shapes.Example]:
        return examples(self.predictor, self._degree)

    @cached_property
    def categories(self) -> tuple[str, ...]:
        return self.predictor.graph.categories

    @cached_property
    def quality(self) -> shapes.Quality:
        return quality(self.run, self.predictor)

    def entities(self, typed: str, limit: int) -> shapes.Entities:
        found = self.names.search(typed, limit)
        degree = self._degree
        rows = [
            shapes.EntityName(self.name(i), self.labels.get(self.name(i)), int(degree[i]))
            for i in found.ids
        ]
        return shapes.Entities(rows, found.match)

    def relations(self, typed: str, head: str | None) -> shapes.Relations:
        """The relations that `typed` means; those that the head has in train come first."""
        names = self.predictor.graph.vocabulary.relations
        typical: set[int] = set()
        if head is not None:
            around = self.facts.around(self.entity(head))
            typical = set(around.relation[(around.split == 0) & ~around.reverse].tolist())
        found = self.relation_names.search(typed, len(names)).ids
        count = np.bincount(self.predictor.graph.train[:, 1], minlength=len(names))
        rows = [
            shapes.RelationName(names[i], int(count[i]), self.categories[i], i in typical)
            for i in sorted(found, key=lambda each: each not in typical)
        ]
        return shapes.Relations(rows)

    def answers(
        self, side: Side, entity: str, relation: str, found: Answers, seconds: float
    ) -> shapes.Predicted:
        """A query about an entity with its answers."""
        asked = shapes.Asked(
            entity if side == "tail" else None, relation, entity if side == "head" else None
        )
        rows: list[shapes.EntityAnswer | shapes.RelationAnswer] = [
            shapes.EntityAnswer(
                rank,
                each.entity,
                self.labels.get(each.entity),
                each.score,
                each.probability,
                calibrated,
                each.known,
            )
            for rank, (each, calibrated) in enumerate(
                zip(found.predictions, self.calibrated(found), strict=True), 1
            )
        ]
        words = self.calibration.in_words if self.calibration else None
        return shapes.Predicted(asked, rows, seconds, words)

    def calibrated(self, found: Answers) -> Sequence[float | None]:
        """How often an answer like each of these is right, by valid; None where there is none."""
        if self.calibration is None:
            return [None] * len(found.predictions)
        return self.calibration([each.score - found.rest for each in found.predictions])

    def joining(self, head: str, tail: str, k: int, new: bool) -> shapes.Predicted:
        """The relations that may join two entities. Valid says nothing of how often they do."""
        self.entity(head), self.entity(tail)
        began = time.perf_counter()
        found = self.predictor.relations(head, tail, k, new)
        rows: list[shapes.EntityAnswer | shapes.RelationAnswer] = [
            shapes.RelationAnswer(
                rank, each.relation, None, each.score, each.probability, None, each.known
            )
            for rank, each in enumerate(found, 1)
        ]
        asked = shapes.Asked(head, None, tail)
        return shapes.Predicted(asked, rows, time.perf_counter() - began, None)

    def explain(self, head: str, relation: str, tail: str, side: Side) -> shapes.Explanation:
        triple = (self.entity(head), self.relation(relation), self.entity(tail))
        return explain(self.predictor.graph.vocabulary, self.facts, self.space, triple, side)

    def neighbours(self, name: str, k: int) -> shapes.Neighbours:
        return shapes.Neighbours(name, self.nearest(self.entity(name), k))

    def nearest(self, entity: int, k: int) -> list[shapes.Neighbour]:
        return [
            shapes.Neighbour(self.name(other), self.labels.get(self.name(other)), likeness)
            for other, likeness in self.space.nearest(entity, k)
        ]

    def map(self, relation: str | None, method: str) -> shapes.Map:
        by = None if relation is None else self.relation(relation)
        if method == "tsne" and not has_tsne():
            text = "method: t-SNE needs openTSNE, which is not installed here; use pca"
            raise Refusal("bad_parameter", text)
        graph, shown = self.predictor.graph, self._shown
        points = self._pca if method == "pca" else self._tsne
        legend, colour = ["all"], np.zeros(len(shown), dtype=np.int64)
        if by is not None:
            everything = np.concatenate([graph.split(split) for split in SPLITS])
            colour, top = colours(everything[everything[:, 1] == by], shown, graph.n_entities)
            legend = [*(self.name(i) for i in top), "other", "none"]
        note = "distances on the map are only indicative"
        if len(shown) < graph.n_entities:
            note = f"the {len(shown):,} of {graph.n_entities:,} entities with most facts; {note}"
        names = [self.name(i) for i in shown.tolist()]
        return shapes.Map(method, points, names, colour.tolist(), legend, note)

    @cached_property
    def _degree(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return self.facts.degree

    @cached_property
    def _shown(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The entities on the map."""
        return np.argsort(-self._degree, kind="stable")[:MOST_POINTS]

    @cached_property
    def _pca(self) -> list[list[float]]:
        return _points(pca(self._rows()))

    @cached_property
    def _tsne(self) -> list[list[float]]:
        return _points(tsne(self._rows()))

    def _rows(self) -> torch.Tensor:
        ids = torch.from_numpy(self._shown).to(self.predictor.tables.device)
        return self.predictor.model.coordinates(self.predictor.tables.entity_rows(ids))


def open_runs(folders: Sequence[Path], labels: Mapping[str, str], device: str) -> dict[str, Opened]:
    """Runs by id: the folder's name, with a number where two have the same."""
    found: dict[str, Opened] = {}
    for folder in folders:
        name = base = folder.resolve().name
        number = 2
        while name in found:
            name, number = f"{base}-{number}", number + 1
        found[name] = Opened.load(folder, name, labels, device)
    known = {name for each in found.values() for name in each.predictor.graph.vocabulary.entities}
    if labels and not known & labels.keys():
        raise DataError("no label is of an entity in these runs; is it the right file of labels?")
    return found


def _points(places: torch.Tensor) -> list[list[float]]:
    return [[round(x, 3), round(y, 3)] for x, y in places.cpu().double().tolist()]
