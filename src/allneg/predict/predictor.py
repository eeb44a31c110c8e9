"""Names in, names out: the answers of a trained run to queries, and how often they are right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import Diverged, UsageError, counted, printable
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.queries import SIDES, KnownAnswers, Queries, Side
from allneg.hardware import device_errors, find_device
from allneg.hub import local_folder
from allneg.kernels.packed import packed
from allneg.models import Model
from allneg.predict.questions import Question
from allneg.predict.results import Answers, Neighbour, Prediction, RelationPrediction, Results
from allneg.runs import Run
from allneg.scoring import Tables
from allneg.scoring.scores import query_vectors, scores

Numbers = npt.NDArray[np.float64]
Rows = npt.NDArray[np.float32]

_MAX_SCORES = 1 << 26  # in memory at once
_BLOCK_TRIPLES = 1 << 14  # scored at once
_N_SCORES = 1 << 24  # for a calibration: enough queries for two digits, in seconds
_BLOCK = 1 << 22  # scores of a calibration in memory at once
_EDGE, _N_BINS = 16.0, 512  # bins of log-odds between -16 and 16
_MAX_SHARE = 1 - 1e-9  # the largest share with finite log-odds


@dataclass(frozen=True)
class Predictor:
    """A model, its weights and the graph they were trained on."""

    model: Model
    tables: Tables
    graph: Graph
    known: dict[str, KnownAnswers]  # by split
    packed: Tensor | None = None  # a copy of the entity rows in the layout that CPUs prefer

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
        parts = {split: graph.split(split) for split in SPLITS if len(graph.split(split))}
        with device_errors(torch_device):
            known = {
                split: KnownAnswers.of([part], graph.n_entities, graph.n_relations, torch_device)
                for split, part in parts.items()
            }
            tables = run.tables().to(torch_device).requires_grad_(False)
            return cls(run.model, tables, graph, known).quick()

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
        self, questions: Sequence[Question], k: int = 10, new: bool = False
    ) -> list[Results[Prediction] | Results[RelationPrediction]]:
        """The best answers to many questions (head, relation, tail), one of which is None.

        A missing head or tail is answered by entities, a missing relation by relations.
        """
        _check_count(k)
        found: dict[int, Results[Prediction] | Results[RelationPrediction]] = {}
        asked: dict[int, tuple[Side, str, str]] = {}
        for number, (head, relation, tail) in enumerate(questions):
            if (head, relation, tail).count(None) != 1:
                raise UsageError(f"question {number}: one of head, relation and tail must be None")
            if relation is None:
                found[number] = self.relations(str(head), str(tail), k, new)
            else:
                side: Side = "head" if head is None else "tail"
                asked[number] = side, str(tail if head is None else head), relation
        answers = self.ask(list(asked.values()), k, new)
        found |= {n: of.predictions for n, of in zip(asked, answers, strict=True)}
        return [found[number] for number in range(len(questions))]

    def answer(
        self, queries: Sequence[tuple[str, str]], side: Side, k: int = 10, new: bool = False
    ) -> list[Results[Prediction]]:
        """The best answers to many queries (entity, relation) for the same side."""
        found = self.ask([(side, entity, relation) for entity, relation in queries], k, new)
        return [answers.predictions for answers in found]

    def ask(
        self, queries: Sequence[tuple[Side, str, str]], k: int = 10, new: bool = False
    ) -> list[Answers]:
        """The best answers to many queries (side of the answer, known entity, relation)."""
        _check_count(k)
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
            found += self._best(Queries(side, entity, relation, entity), k, new)
        return found

    @torch.no_grad()
    def relations(
        self, head: str, tail: str, k: int = 10, new: bool = False
    ) -> Results[RelationPrediction]:
        """The `k` best relations between two entities, by their scores in tail queries."""
        _check_count(k)
        vocabulary = self.graph.vocabulary
        ids = torch.arange(self.graph.n_relations, device=self.tables.device)
        heads, tails = (torch.full_like(ids, vocabulary.entity(name)) for name in (head, tail))
        queries = Queries.for_side("tail", heads, ids, tails)
        query = query_vectors(self.model, self.tables, queries)
        values = self.model.kernel.scores(query, self.tables.entity_rows(tails[:1]))[:, 0].float()
        _check_finite(values)
        splits = [split for (split,) in self._splits(queries, tails.unsqueeze(1))]
        share = values.softmax(0).tolist()
        found = [
            RelationPrediction(vocabulary.relations[r], float(values[r]), share[r], splits[r])
            for r in values.argsort(descending=True, stable=True).tolist()
        ]
        chosen = [prediction for prediction in found if not (new and prediction.known)][:k]
        return Results(RelationPrediction, chosen)

    @torch.no_grad()
    def score(self, triples: Iterable[tuple[str, str, str]]) -> list[float]:
        """The score of each triple (head, relation, tail), as that of the tail in `tails`."""
        names, found = self.graph.vocabulary, list[float]()
        ids = [(names.entity(h), names.relation(r), names.entity(t)) for h, r, t in triples]
        for block in torch.tensor(ids, dtype=torch.int64).reshape(-1, 3).split(_BLOCK_TRIPLES):
            queries = Queries.of(block.to(self.tables.device), "tail")
            query = query_vectors(self.model, self.tables, queries)
            rows = self.tables.entity_rows(queries.answer).unsqueeze(1)
            found += self.model.kernel.scores(query, rows)[:, 0].tolist()
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
        _check_count(k)
        names = self.graph.vocabulary
        found = self.vectors.nearest(names.entity(name), k)
        return Results(Neighbour, (Neighbour(names.entities[i], cosine) for i, cosine in found))

    @cached_property
    def vectors(self) -> EntityVectors:
        """The entity vectors without biases, for similarities."""
        return EntityVectors(self.model.coordinates(self.tables.entities.detach()))

    @torch.no_grad()
    def scores(self, queries: Queries) -> Tensor:
        """The score of every entity as the answer: float32 (B, N). The caller may overwrite it."""
        return scores(self.model, self.tables, queries, self.packed).float()

    @torch.no_grad()
    def _best(self, queries: Queries, k: int, new: bool) -> list[Answers]:
        values = self.scores(queries)
        _check_finite(values)
        total = values.logsumexp(1, keepdim=True)
        unknown = values.clone()
        if "train" in self.known:
            unknown[self.known["train"].pairs(queries)] = -torch.inf
        if new:
            for known in self.known.values():
                values[known.pairs(queries)] = -torch.inf
        best, ids = values.topk(min(k, values.shape[1]), dim=1)
        share = (best - total).exp()
        names = self.graph.vocabulary.entities
        columns = (ids, best, share, unknown.logsumexp(1))
        rows = zip(*(c.tolist() for c in columns), self._splits(queries, ids), strict=True)
        return [
            Answers(
                Results(
                    Prediction,
                    (
                        Prediction(names[e], score, share, split)
                        for e, score, share, split in zip(*of_query, splits, strict=True)
                        if score != -torch.inf  # a known fact, which `new` leaves out
                    ),
                ),
                logsumexp,
            )
            for *of_query, logsumexp, splits in rows
        ]

    def _splits(self, queries: Queries, candidates: Tensor) -> list[list[str | None]]:
        """The first split that holds each candidate as an answer, or None: (B, K)."""
        found: list[list[str | None]] = [[None] * candidates.shape[1] for _ in candidates]
        for split in reversed(list(self.known)):
            for b, k in self.known[split].contains(queries, candidates).nonzero().tolist():
                found[b][k] = split
        return found


class EntityVectors:
    """The vectors of all entities: (N, W). Similarity is their cosine."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.norms = rows, rows.norm(dim=1).clamp(min=1e-12)

    @torch.no_grad()
    def nearest(self, entity: int, k: int) -> list[tuple[int, float]]:
        """The `k` entities most similar to one, without itself, and their cosines."""
        cosines = (self.rows @ self.rows[entity]) / self.norms[entity] / self.norms
        cosines[entity] = -torch.inf
        best, ids = cosines.topk(min(k, len(cosines) - 1))
        return list(zip(ids.tolist(), best.tolist(), strict=True))

    @torch.no_grad()
    def similarities(self, entity: int, others: list[int]) -> list[float]:
        """The cosine of one entity with each of the others."""
        ids = torch.tensor([entity, *others], device=self.rows.device)
        units = self.rows[ids] / self.norms[ids].unsqueeze(1)
        cosines: list[float] = (units[1:] @ units[0]).tolist()
        return cosines


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


def _check_count(k: int) -> None:
    if k < 1:
        raise UsageError(f"the number of answers is {k}; use at least 1")


def _check_finite(values: Tensor) -> None:
    low, high = values.aminmax()  # one pass; a NaN shows up in both
    if not (low.isfinite() and high.isfinite()):
        raise Diverged("a score is not finite: the model has diverged and has no answers")


load = Predictor.load


@dataclass(frozen=True)
class Calibration:
    """How often an answer with such a score is right, learned on valid.

    The margin of an answer is its score minus the log of the summed exp(score) of all entities
    that are no answers in train. Isotonic regression maps the log-odds of margins to the rate of
    right answers. Every query of valid has one, so the rate is too high for queries without one.
    """

    log_odds: npt.NDArray[np.floating]  # (n,): increasing
    rate: Numbers  # (n,): never decreasing, between 0 and 1
    n_queries: int

    @classmethod
    def fit(cls, predictor: Predictor) -> Calibration | None:
        """Learn from valid; None if valid is empty or train holds all its answers."""
        if "valid" not in predictor.known:
            return None
        graph = predictor.graph
        most = max(1, _N_SCORES // graph.n_entities // 2)
        right, total, n_queries = np.zeros(_N_BINS), np.zeros(_N_BINS), 0
        for side, columns in zip(SIDES, ([0, 1], [2, 1]), strict=True):
            # Every query counts once, however many answers it has.
            _, first = np.unique(graph.valid[:, columns], axis=0, return_index=True)
            sample = first[np.linspace(0, len(first) - 1, min(most, len(first))).astype(np.int64)]
            n_queries += len(sample)
            triples = torch.from_numpy(graph.valid[sample]).to(predictor.tables.device)
            for block in triples.split(max(1, _BLOCK // graph.n_entities)):
                counts = _counts(predictor, Queries.of(block, side))
                right, total = right + counts[0], total + counts[1]
        used = total > 0
        if not used.any():
            return None
        middles = (np.arange(_N_BINS) + 0.5) * (2 * _EDGE / _N_BINS) - _EDGE
        return cls(middles[used], isotonic(right[used], total[used]), n_queries)

    def __call__(self, margins: Sequence[float]) -> list[float]:
        """The rate of right answers at each margin."""
        rates: list[float] = np.interp(_log_odds(margins), self.log_odds, self.rate).tolist()
        return rates

    @property
    def description(self) -> str:
        return (
            "isotonic regression of the score margin on "
            f"{counted(self.n_queries, 'query')} of valid, each of which has an answer"
        )


def isotonic(right: Numbers, total: Numbers) -> Numbers:
    """The never decreasing rates closest to right / total, by pooling neighbours: (n,), (n,).

    A pool's rate is (right + ½) / (total + 1), so that no rate is 0 or 1.
    """
    pools: list[list[float]] = []  # right, total, members
    for r, t in zip(right.tolist(), total.tolist(), strict=True):
        pools.append([r, t, 1])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    rates = np.array([(r + 0.5) / (t + 1) for r, t, _ in pools])
    # The added half weighs more in a small pool and could lift it above the next one.
    rising = np.maximum.accumulate(rates)
    return np.repeat(rising, [int(members) for _, _, members in pools])


def _counts(predictor: Predictor, queries: Queries) -> tuple[Numbers, Numbers]:
    """Right answers and all answers per bin, without those of train and test: (_N_BINS,)."""
    values = predictor.scores(queries)
    values[predictor.known["train"].pairs(queries)] = -torch.inf
    values -= values.logsumexp(1, keepdim=True)
    is_counted = values.isfinite()
    if "test" in predictor.known:
        is_counted[predictor.known["test"].pairs(queries)] = False
    is_right = torch.zeros_like(is_counted)
    is_right[predictor.known["valid"].pairs(queries)] = True
    right, total = (
        np.histogram(_log_odds(values[mask].cpu().numpy()), _N_BINS, (-_EDGE, _EDGE))[0]
        for mask in (is_counted & is_right, is_counted)
    )
    return right, total


def _log_odds(log_share: npt.ArrayLike) -> Numbers:
    clipped = np.clip(np.asarray(log_share, dtype=np.float64), -_EDGE, 0)
    share = np.minimum(np.exp(clipped), _MAX_SHARE)
    return np.asarray(np.minimum(clipped - np.log1p(-share), _EDGE))
