"""Query × rows → losses, holding one block of scores at a time and no second copy of it.

Where all scores fit in one block they are kept for the backward pass and turned into slopes in
place; where they do not, each block is compared again there. Losses and gradients are the same
to rounding, and the memory is that of one block. Rows that lie in the host's memory come to the
queries' device a block at a time, and their gradients go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from allneg.kernels.answers import strike
from allneg.kernels.dot import NarrowDot
from allneg.scoring.feed import Returned, fed
from allneg.scoring.loss import Loss
from allneg.scoring.shard import NO_GROUP, Group, Pending
from allneg.scoring.tables import MULTIPLE


@dataclass(frozen=True)
class Narrow:
    """Says that queries and rows are compared by `dot`, rounded to bfloat16."""

    rounded: Tensor | None = None  # bfloat16 (N, W): all the rows, where they are kept so


Compare: TypeAlias = Callable[[Tensor, Tensor], Tensor] | Narrow  # queries, rows -> scores


@dataclass(frozen=True)
class Rivals:
    """What the columns of a batch's scores mean."""

    target: Tensor  # int64 (B,): the column of each question's answer
    count: int  # columns; rows beyond are padding
    hidden: tuple[Tensor, Tensor] | None = None  # (query, column) pairs that are no rivals
    offset: Tensor | None = None  # (columns,) or (B, columns): added to the rivals' scores
    elsewhere: Group = NO_GROUP  # processes that compare the same queries with other rows
    batch: Group = NO_GROUP  # processes that compare other queries with the same rows


def losses(
    compare: Compare, query: Tensor, rows: Tensor, loss: Loss, rivals: Rivals, block: int
) -> Tensor:
    """The loss of each query: (B,), holding at most about `block` scores at once.

    `rows` is a table (N, W), or holds each question's own rows (B, C, W), which are few.
    """
    n = rows.shape[-2]
    size = n if rows.dim() == 3 else block_rows(len(query), n, block)
    blocks = [_Block(first, min(first + size, n)) for first in range(0, n, size)]
    out: Tensor = _Losses.apply(  # type: ignore[no-untyped-call]
        query, rows, compare, loss, rivals, blocks
    )
    return out


def block_rows(queries: int, n: int, block: int) -> int:
    """How many of `n` rows are compared at once so that about `block` scores are held."""
    if queries * n <= block:
        return n
    return min(n, max(MULTIPLE, block // queries // MULTIPLE * MULTIPLE))


@dataclass(frozen=True)
class _Compared:
    """A block of scores, which may be overwritten once."""

    scores: Tensor  # (B, c)
    gradients: Callable[[Tensor], tuple[Tensor, ...]]  # of the query and the rows, from slopes


@dataclass(frozen=True)
class _Block:
    """Columns `start` to `stop` of the scores."""

    start: int
    stop: int

    def compared(self, compare: Compare, query: Tensor, some: Tensor) -> _Compared:
        """The scores of the block's rows, and the way back from them."""
        if isinstance(compare, Narrow):
            all_rows = compare.rounded
            rows = some.bfloat16() if all_rows is None else all_rows[self.start : self.stop]
            both = NarrowDot(query.bfloat16(), rows)
            return _Compared(both.scores(), both.gradients)
        with torch.enable_grad():
            leaves = query.detach().requires_grad_(), some.detach().requires_grad_()
            scores = compare(*leaves)
        return _Compared(scores.detach(), partial(torch.autograd.grad, scores, leaves))

    def strike(self, scores: Tensor, rivals: Rivals) -> Tensor:
        """Make -inf what is no rival; the answers' scores, where they are in this block."""
        answer = strike(scores, self.places(rivals), rivals.count - self.start)
        if rivals.offset is not None:
            scores += rivals.offset[..., self.start : self.stop]
        if rivals.hidden is not None:
            query, column = rivals.hidden
            if not self._is_whole(rivals):
                mine = (column >= self.start) & (column < self.stop)
                query, column = query[mine], column[mine]
            scores[query, column - self.start] = -torch.inf
        return answer

    def places(self, rivals: Rivals) -> Tensor:
        """The answers' columns; those of other blocks are outside."""
        return rivals.target - self.start if self.start else rivals.target

    def _is_whole(self, rivals: Rivals) -> bool:
        return self.start == 0 and self.stop >= rivals.count


def _fed(rows: Tensor, blocks: list[_Block], query: Tensor) -> Iterator[Tensor]:
    """The rows of each block, where the queries are."""
    if rows.dim() == 3:
        return iter([rows])
    return fed(rows, [(block.start, block.stop) for block in blocks], query.device)


class _Losses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        rows: Tensor,
        compare: Compare,
        loss: Loss,
        rivals: Rivals,
        blocks: list[_Block],
    ) -> Tensor:
        memory: Tensor | None = None
        answer: Tensor | None = None
        ctx.kept = None
        for block, some in zip(blocks, _fed(rows, blocks, query), strict=True):
            compared = block.compared(compare, query, some)
            found = block.strike(compared.scores, rivals)
            answer = found if answer is None else torch.maximum(answer, found)
            memory = loss.fold(memory, compared.scores)
            if len(blocks) == 1:
                ctx.kept = compared
            del compared  # or the next block would be held beside this one
        assert memory is not None
        assert answer is not None
        if rivals.elsewhere.size > 1:
            # A few numbers a query are all that other processes need to know.
            told = rivals.elsewhere.stack(torch.cat([memory, answer.unsqueeze(0)]))
            memory, answer = loss.merged(told[:, :-1]), told[:, -1].amax(0)
        ctx.plan = compare, loss, rivals, blocks
        ctx.save_for_backward(query, rows, memory, answer)
        return loss.value(memory, answer)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, rows, memory, answer = ctx.saved_tensors
        compare, loss, rivals, blocks = ctx.plan
        to_query, to_rows, returned = None, None, None
        sums: list[Pending] = []
        coming = _fed(rows, blocks, query)
        for block in blocks:
            compared, ctx.kept = ctx.kept, None
            if compared is None:
                compared = block.compared(compare, query, next(coming))
                block.strike(compared.scores, rivals)
            place = block.places(rivals)
            slopes = loss.slopes(memory, answer, grad, compared.scores, place)
            now = compared.gradients(slopes)
            if len(blocks) == 1:
                to_query, to_rows = now[0].contiguous(), now[1].contiguous().to(rows.device)
                sums.append(rivals.batch.begin_sum(to_rows))
            else:
                to_query = now[0] if to_query is None else to_query.add_(now[0])
                returned = returned or Returned(rows, query.device)
                # This block's sum is on its way while the next block is compared.
                sums.append(rivals.batch.begin_sum(returned.put(block.start, now[1])))
            del compared, slopes, now
        if returned is not None:
            to_rows = returned.whole()
        sums.append(rivals.elsewhere.begin_sum(to_query))
        for each in sums:
            each.wait()
        return to_query, to_rows, None, None, None, None
