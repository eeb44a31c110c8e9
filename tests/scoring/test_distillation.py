"""Self-distillation: the divergences against autograd, and which numbers a student keeps."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from allneg.kernels import Kernel, dot, l2
from allneg.models import TuckER
from allneg.scoring import Shard, Tables
from allneg.scoring.distillation import divergences, pruned


@pytest.mark.parametrize("block", [None, 4, 9])
@pytest.mark.parametrize("kernel", [dot, l2])
def test_values_and_gradients_are_those_of_the_formula(kernel: Kernel, block: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = list(2 * torch.randn(2, 5, 3, generator=generator, dtype=torch.float64))
    rows = list(2 * torch.randn(2, 9, 3, generator=generator, dtype=torch.float64))
    weight = torch.rand(5, generator=generator, dtype=torch.float64)
    leaves = [tensor.clone().requires_grad_() for tensor in (*queries, *rows)]
    full, student = ((kernel(leaves[i], leaves[2 + i]) / 3).log_softmax(1) for i in range(2))

    def kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return F.kl_div(q, p, reduction="none", log_target=True).sum(1)

    truth = 3 * kl(full, student.detach()) + kl(student.detach(), full)
    truth = truth + 3 * kl(student, full.detach()) + kl(full.detach(), student)
    true_gradients = torch.autograd.grad((weight * truth).sum(), leaves)
    values, d_queries, d_rows = divergences(kernel, queries, rows, weight, block)
    torch.testing.assert_close(values, truth.detach())
    torch.testing.assert_close([*d_queries, *d_rows], list(true_gradients))


def test_a_student_keeps_the_largest_fifth_of_every_table() -> None:
    model = TuckER(dim=10, scale=1.0)
    tables = Tables.create(model, 4, Shard.whole(30), True, seed=0).padded(64)
    student = pruned(tables)
    for (name, whole), (_, kept) in zip(
        tables.named_parameters(), student.named_parameters(), strict=True
    ):
        held = kept != 0
        assert int(held.sum()) == tables.weights()[name].numel() // 5, name
        assert kept[held].equal(whole[held])
        assert whole[held].abs().min() > whole[~held].abs().max()
