"""Self-distillation: tables and a pruned copy of them learn each other's scores.

The student is the tables with all but their largest numbers set to 0 (Li et al., 2022). p and q
are the softmax of all scores of a query, divided by a temperature, from the tables and from the
student. The tables minimise 3 KL(p ‖ q) + KL(q ‖ p) for constant q, and the student minimises
3 KL(q ‖ p) + KL(p ‖ q) for constant p.
"""

import torch
from torch import Tensor

from allneg.kernels import Kernel
from allneg.scoring.tables import Tables

_KEPT = 0.2  # share of the numbers of a table
_TEMPERATURE = 3.0
_OWN = 3.0  # weight of the divergence whose expectation is over the own distribution


def pruned(tables: Tables) -> Tables:
    """A copy of the tables where only the numbers with the largest absolute values are not 0."""
    kept, weights = {}, tables.weights()  # without padding, which would count
    for name, table in tables.named_parameters():
        sizes = weights[name].abs().flatten()
        limit = sizes.kthvalue(max(1, round((1 - _KEPT) * len(sizes)))).values
        kept[name] = table.detach().masked_fill(table.detach().abs() <= limit, 0.0)
    return tables.replaced(kept)


def divergences(
    kernel: Kernel,
    queries: list[Tensor],
    rows: list[Tensor],
    weight: Tensor,
    block: int | None = None,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Both losses of each query together, and the gradients of the tables and of the student.

    Query vectors (B, W) and entity rows (n, W) are those of the tables and of the student. Returns
    (B,), the gradients of both query vectors and those of both entity rows, for `weight` (B,).
    """
    n, size = len(rows[0]), block or len(rows[0])

    def logits(start: int) -> list[Tensor]:
        parts = (table[start : start + size] for table in rows)
        pairs = zip(queries, parts, strict=True)
        return [kernel.scores(query, part) / _TEMPERATURE for query, part in pairs]

    states = []
    for start in range(0, n, size):
        p, q = logits(start)
        means = (p.softmax(1) * (p - q)).sum(1), (q.softmax(1) * (q - p)).sum(1)
        states.append(torch.stack([p.logsumexp(1), q.logsumexp(1), *means]))
    of_blocks = torch.stack(states)
    totals = of_blocks[:, :2].logsumexp(0)
    shares = (of_blocks[:, :2] - totals).exp()
    gaps = (shares * of_blocks[:, 2:]).sum(0)
    kl = gaps - totals + totals.flip(0)  # KL(p ‖ q) and KL(q ‖ p)
    d_queries, d_rows = [torch.zeros_like(q) for q in queries], [torch.zeros_like(r) for r in rows]
    for start in range(0, n, size):
        logs = [z - total.unsqueeze(1) for z, total in zip(logits(start), totals, strict=True)]
        for i, (own, other) in enumerate((logs, logs[::-1])):
            slope = _OWN * own.exp() * (own - other - kl[i].unsqueeze(1)) + own.exp() - other.exp()
            slope *= (weight / _TEMPERATURE).unsqueeze(1)
            part = rows[i][start : start + size]
            kept = own.add(totals[i].unsqueeze(1)) * _TEMPERATURE if kernel.keeps_scores else None
            d_query, d_part = kernel.gradients(slope, queries[i], part, kept)
            d_queries[i] += d_query
            d_rows[i][start : start + size] = d_part
    return (_OWN + 1) * kl.sum(0), d_queries, d_rows
