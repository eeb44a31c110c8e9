"""Queries against candidates: losses and both gradients from one function.

If all scores fit into one block, they are kept and turned into gradients in place. Otherwise,
blocks of rows are compared twice: once for the loss and once for the gradients. The results are
the same up to rounding, and the memory is that of one block. scoring/attention.py has the same
function for a large softmax on a GPU, without scores in memory.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from allneg.kernels import Kernel
from allneg.kernels.fused import mask_out, put, subtract_at, values_at
from allneg.scoring.distributed import NO_GROUP, Group, Pending
from allneg.scoring.groups import answers_part
from allneg.scoring.losses import Loss
from allneg.scoring.negatives import Candidates
from allneg.scoring.streaming import GradientBlocks, stream


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
    elsewhere: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each query, and the gradients of their weighted sum: (B,), (B, W), like rows.

    Queries (B, W) are compared with `block` rows at a time, or with all; `bf16_copy` may replace
    the rows in products. Processes of `rows_group` hold other rows, those of `batch_group` other
    queries: row gradients of a block are summed over the latter while the next is compared.
    `elsewhere` (1 + k, B) is the state of the loss for more candidates, which get no gradients.
    """
    n = candidates.rows.shape[-2]
    is_whole, size = block is None or block >= n, block or n
    query = query.bfloat16() if loss.bf16 else query
    source = candidates.rows if bf16_copy is None else bf16_copy
    states, of_answers, kept, answers = [], [], None, candidates.answers
    for start, rows in _blocks(source, size, query):
        kept = None  # before the next block's scores are made
        kept = _scores(kernel, query, rows, candidates, start)
        if answers is not None:
            of_answers.append(values_at(kept[0], answers.query, answers.column - start))
        states.append(loss.scan(kept[0], *candidates.columns(start)))
    states += [] if elsewhere is None else [elsewhere]
    state = states[0] if len(states) == 1 else loss.merge(torch.stack(states))
    if rows_group.size > 1:
        state = loss.merge(rows_group.all_gather(state))
    d_query: Tensor | None = None
    d_blocks = None if is_whole else GradientBlocks(candidates.rows, query.device)
    sums: list[Pending] = []
    for start, rows in [(start, rows)] if is_whole else _blocks(source, size, query):  # noqa: B020
        if not is_whole:
            kept = None
            kept = _scores(kernel, query, rows, candidates, start)
        assert kept is not None
        d_scores = loss.grad_scores(state, kept[0], *candidates.columns(start), weight)
        if answers is not None:
            subtract_at(d_scores, answers.query, answers.column - start, answers.weight)
        d_part, d_rows = kernel.gradients(d_scores, query, rows, kept[1])
        d_query = d_part if d_query is None else d_query.add_(d_part)
        d_rows = d_rows.contiguous() if d_blocks is None else d_blocks.write(start, d_rows)
        if batch_group.size > 1:
            sums.append(batch_group.start_sum(d_rows))
        del d_scores, d_part  # free their memory before the next block's scores
    assert d_query is not None
    if rows_group.size > 1:
        d_query = d_query.contiguous()
        sums.append(rows_group.start_sum(d_query))
    if d_blocks is not None:
        d_rows = d_blocks.whole()
    for pending in sums:
        pending.wait()
    losses = loss.value(state)
    if answers is not None:
        losses -= answers_part(loss, answers, of_answers, weight, rows_group)
    return losses, d_query, d_rows.to(candidates.rows.device)


def scan(
    kernel: Kernel, query: Tensor, candidates: Candidates, loss: Loss, block: int | None = None
) -> Tensor:
    """The state of the loss of each query, as `elsewhere` in `contrast`: (1 + k, B)."""
    query = query.bfloat16() if loss.bf16 else query
    blocks = _blocks(candidates.rows, block or candidates.rows.shape[-2], query)
    states = [
        loss.scan(_scores(kernel, query, rows, candidates, start)[0], *candidates.columns(start))
        for start, rows in blocks
    ]
    return loss.merge(torch.stack(states))


def _blocks(rows: Tensor, size: int, query: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The first row of each block of `size` rows, and the block on the queries' device."""
    n = rows.shape[-2]
    if rows.device.type != query.device.type:
        for start, block in stream(rows, size, query.device):
            yield start, block.to(query.dtype)
        return
    for start in range(0, n, size):
        block = rows if size >= n else rows[start : start + size]
        yield start, block.to(query.dtype)


def _scores(
    kernel: Kernel, query: Tensor, rows: Tensor, candidates: Candidates, start: int
) -> tuple[Tensor, Tensor | None]:
    """The scores of a block's rows (B, c), with -inf for masked ones, and a copy of the kernel's
    own scores where its gradients need them.
    """
    scores = kernel.scores(query, rows)
    original = scores.clone() if kernel.keeps_scores else None
    if candidates.offset is not None or candidates.masked is not None:
        _mask(scores, candidates, start)
    return scores, original


def _mask(scores: Tensor, candidates: Candidates, start: int) -> None:
    """Add offsets to the negatives' scores, and make those of masked ones -inf."""
    target, count = candidates.columns(start)
    stop = start + scores.shape[1]
    answer = mask_out(scores, target, count)
    if candidates.offset is not None:
        scores += candidates.offset[..., start:stop]
    if candidates.masked is not None:
        query_index, column = candidates.masked
        here = (column >= start) & (column < stop)
        scores[query_index[here], column[here] - start] = -torch.inf
    put(scores, target, answer)  # neither an offset nor a mask applies to the answer
