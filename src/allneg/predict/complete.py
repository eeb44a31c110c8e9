"""The most probable new facts of a whole graph: exact, streamed and resumable.

Every question (head, relation, ?) is scored against all entities. The log-odds of a fact are a sum
of parts, see `allneg.predict.agreement`: one of the question (head, relation, ?), one of
(?, relation, tail), and one of the known facts. Once `top` facts are found, a fact needs the
log-odds of the last of them. First, the largest part of every question (?, relation, tail) is
found. So these bounds skip work without changing the result:

- A question is not scored if none of its answers can be probable enough. By Jensen's inequality,
  the margin of an answer is at most its distance to the mean score, less log(n) for n candidates.
  Norms bound that distance: for `dot`, |q| · max |e - mean e| (Cauchy-Schwarz); for distances,
  twice the largest distance to the mean row. On some GPUs, `SharpReach` bounds it further.
- First, only the few best answers to each question are looked at. The next best bounds the others:
  most questions are not asked a second time, when many facts are found and more is needed.
- The head's margin is computed only for facts that can be probable enough after the first question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from allneg.errors import DataError, RunError, UsageError
from allneg.evaluation.within import Within
from allneg.graph.graph import Triples
from allneg.graph.queries import KnownAnswers, Queries
from allneg.predict.agreement import LOWEST, Agreement
from allneg.predict.new_facts import Found, NewFact
from allneg.predict.predictor import Predictor
from allneg.predict.reach import Reach, SharpReach, is_sharper
from allneg.predict.scorer import check_finite
from allneg.runs import files, plain

_BLOCK = {"cpu": 1 << 22, "cuda": 1 << 28}  # scores in memory at once
_MOST_PENDING = 1 << 20  # facts whose other direction is not scored yet
_SLACK = 1e-3  # of log-odds, for rounding
_NO_ANSWER = float(torch.finfo(torch.float32).min)  # known facts and impossible ones are lower
_BEST = 4  # answers that are looked at first


@dataclass
class Completion:
    """A search for the `top` new facts with a probability of at least `min_probability`."""

    predictor: Predictor
    relations: Sequence[int]  # in ascending order
    top: int
    min_probability: float = 0.0
    within: Within | None = None
    heads: Tensor | None = None  # of new facts; by default all entities
    exclude: Triples | None = None  # new facts that are not listed: (n, 3)
    prepared: int = 0  # questions (?, relation, tail) asked or found unnecessary
    done: int = 0  # questions asked at least once
    n_again: int = 0  # questions that are asked a second time
    done_again: int = 0
    skipped: int = 0  # of all, those that a bound or `within` made unnecessary
    found: Found = field(default_factory=Found.empty)
    pending: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        predictor = self.predictor
        if not self.relations:
            raise UsageError("give at least one relation")
        if self.top < 1 or not 0 <= self.min_probability < 1:
            raise UsageError("give a top of at least 1 and a probability from 0 to below 1")
        if predictor.agreement is None:
            raise DataError(
                f"{predictor.graph.name}: without valid there are no calibrated probabilities; "
                "train on a graph that has valid"
            )
        self.agreement: Agreement = predictor.agreement
        self.n, self.device = predictor.graph.n_entities, predictor.tables.device
        self.block = max(1, _BLOCK.get(self.device.type, 1 << 24) // self.n)  # questions
        self.reach = Reach(predictor)
        heads = torch.arange(self.n) if self.heads is None else self.heads
        self._heads = heads.to(self.device)
        self._relations = torch.tensor(self.relations, device=self.device)
        sharper = is_sharper(predictor, self.total, self.top)
        self.sharp_reach = SharpReach(predictor) if sharper else None
        self.n_best = min(self.n - 1, max(_BEST, -(-_BEST * self.top // self.total)))
        # An upper bound of the log-odds of each question's answers beyond its few best.
        self.next = torch.full((self.total,), -torch.inf, device=self.device)
        # The largest part of each query (?, relation, tail) in the log-odds, and its logsumexp, or
        # NaN until it is needed: (number of relations, N).
        self.tail_prior = torch.zeros(len(self.relations), self.n, device=self.device)
        self.head_highest = torch.zeros_like(self.tail_prior)
        self.head_logsumexp = torch.full_like(self.tail_prior, torch.nan)
        self._left_out = list(predictor.known.values())
        if self.exclude is not None and len(self.exclude):
            sizes = self.n, predictor.graph.n_relations
            self._left_out.append(KnownAnswers.of([self.exclude], *sizes, self.device))
        self._no_loops = torch.from_numpy(~predictor.graph.has_loops).to(self.device)  # (R,)
        self.is_ready = False

    @property
    def total(self) -> int:
        """The number of questions."""
        return len(self.relations) * len(self._heads)

    @property
    def progress(self) -> tuple[int, int, int]:
        """The current one of three steps, how many of its questions are done, and of how many.

        The steps ask (?, relation, tail), then (head, relation, ?), then some of these again.
        """
        if not self.is_ready:
            return 1, self.prepared, len(self.relations) * self.n
        if self.n_again:
            return 3, self.done_again, self.n_again
        return 2, self.done, self.total

    @property
    def needed(self) -> float:
        """The log-odds that a fact needs."""
        lowest = self.found.log_odds[-1] if len(self.found) == self.top else -np.inf
        p = self.min_probability
        return max(float(np.log(p) - np.log1p(-p)) if p else -np.inf, float(lowest))

    def run(
        self,
        on_block: Callable[[Completion], None] = lambda search: None,
        stopped_by: Callable[[], int] = lambda: 0,
    ) -> bool:
        """Search to the end, or until a signal; `on_block` is called between blocks.

        Returns whether the search is done; then nothing is pending.
        """
        if not self.is_ready and not self._prepare(on_block, stopped_by):
            return False
        while self.done < self.total and not stopped_by():
            stop = min(self.done + self.block, self.total)
            self._ask(torch.arange(self.done, stop, device=self.device), self.n_best)
            self.done = stop
            on_block(self)
        self.agree()
        again = (self.next >= max(self.needed - _SLACK, _NO_ANSWER)).nonzero().squeeze(1)
        self.n_again = len(again)
        for ids in again.split(self.block):
            if stopped_by():
                return False
            self._ask(ids[self.next[ids] >= self.needed - _SLACK], self.n)
            self.done_again += len(ids)
            on_block(self)
        self.agree()
        return self.done == self.total

    @torch.no_grad()
    def _ask(self, ids: Tensor, count: int) -> None:
        """Score the tails of questions; keep the `count` best if they may be probable enough."""
        needed, weight = self.needed - _SLACK, float(self.agreement.margin[0])
        number, head = ids // len(self._heads), self._heads[ids % len(self._heads)]
        relation = self._relations[number]
        queries = Queries.for_side("tail", head, relation, head)
        prior, kept = self._prior(queries), self._allowed(queries)
        if count < self.n:  # the first time
            least = needed - prior - self.tail_prior.amax(1)[number]  # that the tail must add
            kept &= weight * self.reach(queries).clamp(LOWEST, 0) >= least
            if self.sharp_reach is not None and needed > -torch.inf:
                some = kept.nonzero().squeeze(1)
                highest = self.sharp_reach(queries[some], self._not_new(queries[some]))
                kept[some] = weight * highest.clamp(LOWEST, 0) >= least[some]
            self.skipped += len(ids) - int(kept.sum())
        ids, number, queries, prior = ids[kept], number[kept], queries[kept], prior[kept]
        values, logsumexp = self._scores(queries)
        values -= logsumexp.unsqueeze(1)
        values.clamp_(LOWEST, 0).mul_(weight).add_(prior.unsqueeze(1))
        values += self.tail_prior[number]
        values[self._not_new(queries)] = -torch.inf
        if self.within is not None and len(queries):
            values.masked_fill_(self.within.outside(queries), -torch.inf)
        if count < self.n:
            best, tail = values.topk(count + 1, dim=1)
            self.next[ids] = best[:, -1]
            row, column = (best[:, :-1] >= max(needed, _NO_ANSWER)).nonzero().unbind(1)
            tail = tail[row, column]
        else:
            self.next[ids] = -torch.inf
            row, tail = (values >= max(needed, _NO_ANSWER)).nonzero().unbind(1)
        triples = torch.stack([queries.entity[row], queries.relation[row], tail], 1)
        self.pending.append((triples, values[row, tail]))
        if sum(len(triples) for triples, _ in self.pending) > _MOST_PENDING:
            self.agree()

    def _prior(self, queries: Queries) -> Tensor:
        """The log-odds that known facts and the relation add to all answers: (B,)."""
        of_relation = torch.from_numpy(self.agreement.relation).float().to(self.device)
        known = self.predictor.known["train"].counts(queries)
        return of_relation[queries.relation] + self.agreement.of_others(0, known)

    @torch.no_grad()
    def _prepare(
        self, on_block: Callable[[Completion], None], stopped_by: Callable[[], int]
    ) -> bool:
        """Find the largest part of each query (?, relation, tail); False if it was stopped.

        The best head is looked for only if all heads are asked about: it takes as long as they do.
        """
        every = torch.arange(self.n, device=self.device)
        for row, relation in enumerate(self.relations):
            possible = every if self.within is None else every[self.within.allowed(0, relation)]
            for tail in possible.split(self.block):
                if stopped_by():
                    return False
                queries = Queries.for_side("head", tail, torch.full_like(tail, relation), tail)
                known = self.predictor.known["train"].counts(queries)
                self.tail_prior[row, tail] = self.agreement.of_others(1, known)
                if self.heads is None and self.sharp_reach is not None:
                    highest = self.sharp_reach(queries, self._not_new(queries))
                    self.head_highest[row, tail] = highest.clamp(LOWEST, 0)
                elif self.heads is None:
                    values, logsumexp = self._scores(queries)
                    values[self._not_new(queries)] = -torch.inf
                    highest = (values.amax(1) - logsumexp).nan_to_num(LOWEST).clamp(LOWEST, 0)
                    self.head_logsumexp[row, tail] = logsumexp
                    self.head_highest[row, tail] = highest
                self.prepared = row * self.n + (int(tail[-1]) + 1 if len(tail) else self.n)
                on_block(self)
        self.tail_prior += float(self.agreement.margin[1]) * self.head_highest
        self.is_ready = True
        return True

    def _find_logsumexp(self, number: Tensor, tail: Tensor) -> None:
        """That of the queries (?, relation, tail), for relations by their number."""
        key = number * self.n + tail
        for some in key[self.head_logsumexp[number, tail].isnan()].unique().split(self.block):
            row, tails = some // self.n, some % self.n
            queries = Queries.for_side("head", tails, self._relations[row], tails)
            self.head_logsumexp[row, tails] = self._scores(queries)[1]

    def _allowed(self, queries: Queries) -> Tensor:
        """The questions whose head may be an answer itself: bool (B,)."""
        kept = torch.ones_like(queries.entity, dtype=torch.bool)
        if self.within is not None:
            for relation in queries.relation.unique().tolist():
                of_relation = queries.relation == relation
                kept[of_relation] = self.within.allowed(1, relation)[queries.entity[of_relation]]
        return kept

    def _not_new(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Pairs of a query and an answer that is known, or the query's entity without loops."""
        loop = self._no_loops[queries.relation].nonzero().squeeze(1)
        pairs = [*(facts.pairs(queries) for facts in self._left_out), (loop, queries.entity[loop])]
        rows, answers = map(torch.cat, zip(*pairs, strict=True))
        return rows, answers

    def _scores(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """The scores of new answers, -inf for those of train, and their logsumexp: (B, N), (B,)."""
        values = self.predictor.scores(queries)
        check_finite(values)
        values[self.predictor.known["train"].pairs(queries)] = -torch.inf
        return values, values.logsumexp(1)

    @torch.no_grad()
    def agree(self) -> None:
        """Score the heads of all pending facts, and keep the best facts."""
        if not self.pending:
            return
        # These log-odds have the highest margin of any head instead of this one's.
        triples, log_odds = map(torch.cat, zip(*self.pending, strict=True))
        self.pending = []
        kept = log_odds >= self.needed - _SLACK  # more may be needed by now
        triples, log_odds = triples[kept], log_odds[kept]
        number = torch.searchsorted(self._relations, triples[:, 1].contiguous())
        tails = triples[:, 2]
        self._find_logsumexp(number, tails)
        head_score = self.predictor.fact_scores(triples, "head")
        margin = (head_score - self.head_logsumexp[number, tails]).clamp(LOWEST, 0)
        less = self.head_highest[number, tails]
        log_odds = log_odds + float(self.agreement.margin[1]) * (margin - less)
        kept = log_odds >= self.needed
        triples, log_odds, head_score = triples[kept], log_odds[kept], head_score[kept]
        columns = (log_odds, (self.predictor.fact_scores(triples, "tail") + head_score) / 2)
        more = Found(triples.cpu().numpy(), *(c.cpu().double().numpy() for c in columns))
        self.found = self.found.best(self.top, more[more.log_odds >= self.needed])

    def facts(self) -> Iterator[NewFact]:
        """The facts by name, best first."""
        names = self.predictor.graph.vocabulary
        columns = (self.found.triples, self.found.probability, self.found.score)
        for (head, relation, tail), probability, score in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            ends = names.entities[head], names.relations[relation], names.entities[tail]
            yield NewFact(*ends, probability, score)

    def save(self, path: Path, identity: str) -> None:
        """Write what is found so far, so that `restore` continues the same search."""
        self.agree()
        arrays = {**vars(self.found), "progress": np.array([self.done, self.skipped])}
        arrays |= {"next": self.next.cpu().numpy(), "identity": _digest(identity)}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
        about = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        parts = files.tensor_bytes(about, lambda name: [tensors[name]])
        files.write_parts(path, parts, sum(tensor.nbytes for tensor in tensors.values()))

    def restore(self, path: Path, identity: str) -> bool:
        """Continue the search that was saved in a file, if there is one."""
        if not plain.exists(path):
            return False
        try:
            saved = {name: tensor.numpy() for name, tensor in files.read_tensors(path).items()}
        except RunError as error:
            raise DataError(f"{error}: delete it, or choose another --out") from None
        if not np.array_equal(saved.get("identity"), _digest(identity)):  # type: ignore[arg-type]
            raise UsageError(
                f"{path}: from a search with another run or other options; delete it, or choose "
                "another --out"
            )
        self.done, self.skipped = saved["progress"].tolist()
        self.next = torch.from_numpy(saved["next"]).to(self.device)
        self.found = Found(*(saved[name] for name in vars(Found.empty())))
        return True


def _digest(identity: str) -> Triples:
    return np.frombuffer(hashlib.sha256(identity.encode()).digest(), dtype=np.int64).copy()
