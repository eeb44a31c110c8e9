"""Names in, names out: the answers of a trained run to queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import UsageError, counted, printable
from allneg.evaluation.calibration import Calibration
from allneg.evaluation.within import Within
from allneg.graph.graph import SPLITS
from allneg.graph.memory import fact_rows, rows_of_three
from allneg.graph.queries import SIDES, Queries, Side, known_by_split
from allneg.hardware import device_errors, find_device
from allneg.hub import local_folder
from allneg.kernels.packed import packed
from allneg.predict.agreement import Agreement
from allneg.predict.query_files import NamedQuery
from allneg.predict.results import Answers, Neighbour, Prediction, RelationPrediction, Results
from allneg.predict.scorer import Scorer, check_finite
from allneg.runs import Run
from allneg.scoring.scores import query_vectors

if TYPE_CHECKING:
    from allneg.predict.ask import Answer
    from allneg.predict.classify import Classification
    from allneg.predict.new_facts import NewFact

Rows = npt.NDArray[np.float32]

_MAX_SCORES = 1 << 26  # in memory at once


@dataclass(frozen=True)
class Predictor(Scorer):
    """A model, its weights and the graph they were trained on."""

    stored: Calibration | None = None  # with the run
    fitted: Agreement | None = None  # else it is learned when it is needed

    def __repr__(self) -> str:
        graph = self.graph
        size = f"{counted(graph.n_entities, 'entity')}, {counted(graph.n_relations, 'relation')}"
        return f"<Predictor {type(self.model).__name__} on {graph.name}: {size}>"

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> Predictor:
        """The best weights of a run, ready to answer queries.

        `hf:user/name` is a run on the Hugging Face Hub. It is downloaded into the cache and
        checked; `hf:user/name@revision` is a commit, branch or tag of it.
        """
        run, torch_device = Run.open(local_folder(folder)), find_device(device)
        graph = run.graph
        with device_errors(torch_device):
            known = known_by_split(graph, torch_device)
            tables = run.tables().to(torch_device).requires_grad_(False)
            return cls(run.model, tables, graph, known, stored=run.calibration).quick()

    @cached_property
    def calibration(self) -> Calibration | None:
        """The run's calibration; fitted now if the run has none; None without valid."""
        return self.stored or Calibration.fit(self.scores, self.graph, self.known)

    @cached_property
    def agreement(self) -> Agreement | None:
        """How both directions give the probability of a fact; None without valid."""
        return self.fitted or Agreement.fit(self)

    def quick(self) -> Predictor:
        """The same predictor with packed entity rows, where the kernel and the CPU allow it."""
        table = packed(self.tables.entities) if self.model.kernel.name == "dot" else None
        return replace(self, packed=table)

    def tails(
        self, head: str, relation: str, k: int = 10, new: bool = False
    ) -> Results[Prediction]:
        """The `k` best answers to (head, relation, ?), best first; `new` leaves out known facts."""
        return self.answer([(head, relation)], "tail", k, new)[0]

    def heads(
        self, tail: str, relation: str, k: int = 10, new: bool = False
    ) -> Results[Prediction]:
        """The `k` best answers to (?, relation, tail), best first; `new` leaves out known facts."""
        return self.answer([(tail, relation)], "head", k, new)[0]

    def predict(
        self,
        questions: Sequence[NamedQuery],
        k: int = 10,
        new: bool = False,
        within: Within | None = None,
    ) -> list[Results[Prediction] | Results[RelationPrediction]]:
        """The best answers to many questions (head, relation, tail), one of which is None.

        A missing head or tail is answered by entities, a missing relation by relations.
        """
        found: dict[int, Results[Prediction] | Results[RelationPrediction]] = {}
        asked: dict[int, tuple[Side, str, str]] = {}
        for number, (head, relation, tail) in enumerate(rows_of_three(questions)):
            if (head, relation, tail).count(None) != 1:
                raise UsageError(f"question {number}: one of head, relation and tail must be None")
            if relation is None:
                if within is not None:
                    raise UsageError("within restricts entities, but a relation is asked for")
                found[number] = self.relations(str(head), str(tail), k, new)
            else:
                side: Side = "head" if head is None else "tail"
                asked[number] = side, str(tail if head is None else head), relation
        answers = self.answers(list(asked.values()), k, new, within)
        found |= {n: of.predictions for n, of in zip(asked, answers, strict=True)}
        return [found[number] for number in range(len(questions))]

    def answer(
        self, queries: Sequence[tuple[str, str]], side: Side, k: int = 10, new: bool = False
    ) -> list[Results[Prediction]]:
        """The best answers to many queries (entity, relation) for the same side."""
        found = self.answers([(side, entity, relation) for entity, relation in queries], k, new)
        return [answers.predictions for answers in found]

    def answers(
        self,
        queries: Sequence[tuple[Side, str, str]],
        k: int = 10,
        new: bool = False,
        within: Within | None = None,
    ) -> list[Answers]:
        """The best answers to many queries (side of the answer, known entity, relation)."""
        check_count(k)
        vocabulary = self.graph.vocabulary
        ids = [
            (SIDES.index(_checked(side)), vocabulary.entity(entity), vocabulary.relation(relation))
            for side, entity, relation in queries
        ]
        size = max(1, _MAX_SCORES // self.graph.n_entities)
        found: list[Answers] = []
        for start in range(0, len(ids), size):
            block = torch.tensor(ids[start : start + size], device=self.tables.device)
            side, entity, relation = block.unbind(1)
            # The answer is unknown and not used: the entity fills its field.
            found += self._best(Queries(side, entity, relation, entity), k, new, within)
        return found

    @torch.no_grad()
    def relations(
        self, head: str, tail: str, k: int = 10, new: bool = False
    ) -> Results[RelationPrediction]:
        """The `k` best relations between two entities, by their scores in tail queries."""
        check_count(k)
        vocabulary = self.graph.vocabulary
        ids = torch.arange(self.graph.n_relations, device=self.tables.device)
        heads, tails = (torch.full_like(ids, vocabulary.entity(name)) for name in (head, tail))
        queries = Queries.for_side("tail", heads, ids, tails)
        query = query_vectors(self.model, self.tables, queries)
        values = self.model.kernel.scores(query, self.tables.entity_rows(tails[:1]))[:, 0].float()
        values = self._give_back(values, queries)
        check_finite(values)
        splits = [split for (split,) in self._splits(queries, tails.unsqueeze(1))]
        share = values.softmax(0).tolist()
        found = [
            RelationPrediction(vocabulary.relations[r], float(values[r]), share[r], splits[r])
            for r in values.argsort(descending=True, stable=True).tolist()
        ]
        chosen = [prediction for prediction in found if not (new and prediction.known)][:k]
        return Results(RelationPrediction, chosen)

    @torch.no_grad()
    def score(self, triples: Any) -> list[float]:
        """The score of each triple, as that of the tail in `tails`: a list or a data frame."""
        names = self.graph.vocabulary
        ids = [
            (names.entity(head), names.relation(relation), names.entity(tail))
            for head, relation, tail in fact_rows(triples)
        ]
        block = torch.tensor(ids, dtype=torch.int64).reshape(-1, 3).to(self.tables.device)
        found: list[float] = self.fact_scores(block, "tail").tolist()
        return found

    def embedding(self, names: str | Sequence[str]) -> Rows:
        """The vector of an entity, or those of several: float32 (W,) or (n, W)."""
        ids = [self.graph.vocabulary.entity(name) for name in _listed(names)]
        return _as_array(self.tables.entity_rows(torch.tensor(ids, dtype=torch.int64)), names)

    def relation_embedding(self, names: str | Sequence[str], side: Side = "tail") -> Rows:
        """The vector of a relation, or those of several: float32 (V,) or (n, V).

        With reciprocal relations, queries for heads have vectors of their own: `side="head"`.
        """
        ids = torch.tensor([self.graph.vocabulary.relation(name) for name in _listed(names)])
        queries = Queries.for_side(_checked(side), ids.long(), ids.long(), ids.long())
        return _as_array(self.tables.relation_rows(self.tables.relation_ids(queries)), names)

    @torch.no_grad()
    def query_vector(
        self, *, relation: str, head: str | None = None, tail: str | None = None
    ) -> Rows:
        """The vector that is compared with every entity's: float32 (W,).

        Give `head` to ask for tails, or `tail` to ask for heads. If the kernel of the model is
        `dot`, the inner products with entity vectors are the scores.
        """
        if (head is None) == (tail is None):
            raise UsageError("give either head or tail; the other one is asked for")
        side: Side = "tail" if tail is None else "head"
        ids = self.graph.vocabulary.entity(str(head if tail is None else tail))
        entity = torch.tensor([ids], device=self.tables.device)
        link = torch.full_like(entity, self.graph.vocabulary.relation(relation))
        queries = Queries.for_side(side, entity, link, entity)
        return _as_array(query_vectors(self.model, self.tables, queries), "")

    def neighbours(self, name: str, k: int = 10) -> Results[Neighbour]:
        """The `k` entities with the most similar vectors, by their cosine, best first."""
        check_count(k)
        names = self.graph.vocabulary
        found = self.vectors.nearest(names.entity(name), k)
        return Results(Neighbour, (Neighbour(names.entities[i], cosine) for i, cosine in found))

    @torch.no_grad()
    def _best(self, queries: Queries, k: int, new: bool, within: Within | None) -> list[Answers]:
        values = self.scores(queries)
        check_finite(values)
        total = values.logsumexp(1, keepdim=True)
        log_sum = self.log_sum_of_new(values, queries)
        if new:
            for known in self.known.values():
                values[known.pairs(queries)] = -torch.inf
        if within is not None:
            values.masked_fill_(within.outside(queries), -torch.inf)
        best, ids = values.topk(min(k, values.shape[1]), dim=1)
        share = (best - total).exp()
        names = self.graph.vocabulary.entities
        columns = (ids, best, share, self._calibrated(queries, best, log_sum), log_sum)
        rows = zip(*(c.tolist() for c in columns), self._splits(queries, ids), strict=True)
        found = []
        for *of_query, logsumexp, splits in rows:
            predictions = [
                Prediction(names[e], score, p, split, None if math.isnan(rate) else rate)
                for e, score, p, rate, split in zip(*of_query, splits, strict=True)
                if score != -torch.inf  # left out by `new` or `within`
            ]
            found.append(Answers(Results(Prediction, predictions), logsumexp))
        return found

    def _calibrated(self, queries: Queries, best: Tensor, logsumexp: Tensor) -> Tensor:
        """The calibrated probability of each query's answers; NaN without a calibration: (B, K)."""
        rates = torch.full(best.shape, torch.nan, dtype=torch.float64)
        if self.calibration is not None:
            margins = (best - logsumexp.unsqueeze(1)).cpu().numpy()
            for number, side in enumerate(SIDES):
                rows = (queries.side == number).cpu()
                rates[rows] = torch.from_numpy(self.calibration(side, margins[rows.numpy()]))
        return rates

    def ask(self, question: str, k: int = 10, facts: bool = False, **how: Any) -> list[Answer]:
        """The `k` best answers to a question such as `?x : borders(France, ?y), speaks(?y, ?x)`.

        With `facts`, known facts are certain. `how` may give beam, norm and scores: docs/ask.md.
        """
        from allneg.predict.ask import Search

        return Search(self, facts=SPLITS if facts else (), **how).answers(question, k)

    def classify(
        self,
        facts: Any,
        labels: Sequence[bool] | None = None,
        negatives: Any = None,
    ) -> Classification:
        """Scores, probabilities, ranks and verdicts of facts in a list or a data frame.

        See `allneg.predict.classify`.
        """
        from allneg.predict.classify import classify

        return classify(self, facts, labels, negatives)

    def complete(
        self,
        top: int = 10_000,
        min_probability: float = 0.0,
        relations: str | Sequence[str] | None = None,
        within: Within | str | None = None,
        exclude: Any = None,
    ) -> Results[NewFact]:
        """The most probable new facts of the whole graph; see `allneg.predict.complete`.

        `relations` are those to search: a name, several, or all of them. `within` may be a text,
        as that of `allneg.evaluate`. `exclude` are facts that are not listed, such as rejected
        ones: a list, a data frame, or the path of a file.
        """
        from allneg.predict.complete import Completion
        from allneg.predict.fact_files import fact_ids
        from allneg.predict.new_facts import NewFact

        names = self.graph.vocabulary.relations if relations is None else _listed(relations)
        ids = sorted({self.graph.vocabulary.relation(name) for name in names})
        if isinstance(within, str):
            within = Within.parse(within, self.graph, self.tables.device)
        left_out = None if exclude is None else fact_ids(self.graph, exclude)
        search = Completion(self, ids, top, min_probability, within, exclude=left_out)
        search.run()
        return Results(NewFact, search.facts())


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _as_array(rows: Tensor, names: str | Sequence[str]) -> Rows:
    """Rows as a NumPy array; the only row if `names` is one name."""
    array: Rows = rows.detach().cpu().numpy()
    return array[0] if isinstance(names, str) else array


def _checked(side: str) -> Side:
    if side not in SIDES:
        raise UsageError(f"{printable(side)} is not a side; use 'tail' or 'head'")
    return side


def check_count(k: int) -> None:
    """Raise `UsageError` unless at least one answer is wanted."""
    if k < 1:
        raise UsageError(f"the number of answers is {k}; use at least 1")


load = Predictor.load
