"""Queries against candidates: losses and both gradients from one function.

Where all scores fit into one block they are kept and turned into gradients in place. Where they
do not, blocks of rows are compared twice: once for the loss, once for the gradients. The results
are the same to rounding, and the memory is that of one block.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from allneg.kernels import Kernel
from allneg.kernels.fused import mask_out, put
from allneg.scoring.distributed import NO_GROUP, Group, Pending
from allneg.scoring.losses import Loss
from allneg.scoring.negatives import Candidates
from allneg.scoring.streaming import GradientBlocks, Span, stream


def contrast(
    kernel: Kernel,
    query: Tensor,
    candidates: Candidates,
    loss: Loss,
    weight: Tensor,
    block: int | None = None,
    bf16_copy: Tensor | None = None,
    rows_group: Group = NO_GROUP,
    batch_group: Group = NO_GROUP,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each query, and the gradients of their weighted sum: (B,), (B, W), like rows.

    Queries (B, W) are compared with `block` rows at a time, or with all at once; `bf16_copy` may
    replace the rows in products. Processes of `rows_group` hold other rows, those of
    `batch_group` other queries: the row gradients of a block are summed over the latter while
    the next block is compared.
    """
    n = candidates.rows.shape[-2]
    is_whole, size = block is None or block >= n, block or n
    if loss.bf16:
        query = query.bfloat16()
    source = candidates.rows if bf16_copy is None else bf16_copy
    state: Tensor | None = None
    for span, rows in _blocks(source, size, query):
        kept = _scores(kernel, query, rows, candidates, span)
        found = loss.scan(kept[0], candidates.target - span[0], candidates.count - span[0])
        state = found if state is None else loss.merge(torch.stack([state, found]))
        if not is_whole:
            del kept  # it would be held beside the next block's scores
    assert state is not None
    if rows_group.size > 1:
        state = loss.merge(rows_group.all_gather(state))
    d_query: Tensor | None = None
    d_blocks = None if is_whole else GradientBlocks(candidates.rows, query.device)
    sums: list[Pending] = []
    again = [(span, rows)] if is_whole else _blocks(source, size, query)
    for span, rows in again:
        scores, original = kept if is_whole else _scores(kernel, query, rows, candidates, span)
        target, count = candidates.target - span[0], candidates.count - span[0]
        d_scores = loss.grad_scores(state, scores, target, count, weight)
        d_query_part, d_block = kernel.gradients(d_scores, query, rows, original)
        d_query = d_query_part if d_query is None else d_query.add_(d_query_part)
        if d_blocks is None:
            d_rows = d_block.contiguous().to(candidates.rows.device)
        else:
            d_rows = d_blocks.write(span[0], d_block)
        if batch_group.size > 1:
            sums.append(batch_group.start_sum(d_rows))
        del scores, original, d_scores, d_block
    assert d_query is not None
    if rows_group.size > 1:
        d_query = d_query.contiguous()
        sums.append(rows_group.start_sum(d_query))
    if d_blocks is not None:
        d_rows = d_blocks.whole()
    for pending in sums:
        pending.wait()
    return loss.value(state), d_query, d_rows


def _blocks(rows: Tensor, size: int, query: Tensor) -> Iterator[tuple[Span, Tensor]]:
    """Spans of `size` rows, and the rows, on the device and in the dtype of the queries."""
    n = rows.shape[-2]
    if rows.device.type != query.device.type:
        yield from stream(rows, size, query.device)
        return
    for start in range(0, n, size):
        block = rows if size >= n else rows[start : start + size]
        yield (start, min(start + size, n)), block.to(query.dtype)


def _scores(
    kernel: Kernel, query: Tensor, rows: Tensor, candidates: Candidates, span: Span
) -> tuple[Tensor, Tensor | None]:
    """The scores of a block's rows (B, c), with -inf for masked ones, and a copy of the kernel's
    own scores where its gradients need them.
    """
    scores = kernel.scores(query, rows)
    original = scores.clone() if kernel.keeps_scores else None
    if candidates.offset is None and candidates.masked is None:
        return scores, original
    start, stop = span
    target = candidates.target - start
    answer = mask_out(scores, target, candidates.count - start)
    if candidates.offset is not None:
        scores += candidates.offset[..., start:stop]
    if candidates.masked is not None:
        query_index, column = candidates.masked
        here = (column >= start) & (column < stop)
        scores[query_index[here], column[here] - start] = -torch.inf
    put(scores, target, answer)  # neither an offset nor a mask applies to the answer
    return scores, original
