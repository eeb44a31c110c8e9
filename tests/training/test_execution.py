"""How a step runs is decided once, and printed as one line."""

from __future__ import annotations

import pytest
import torch

from allneg.errors import RecipeError
from allneg.kernels.engines import using
from allneg.recipe import Mesh, Recipe
from allneg.runs import make_model
from allneg.training import execution
from allneg.training.execution import ExecutionPlan

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BF16 = "hardware.precision=bf16"
LARGE = (BF16, "training.batch_size=1000")  # of 100,000 candidates


def decide(
    *settings: str, n: int = 2189, device: torch.device = CPU, mesh: Mesh | None = None
) -> ExecutionPlan:
    recipe = Recipe().with_settings(settings)
    return ExecutionPlan.decide(recipe, make_model(recipe), n, device, mesh or Mesh())


def test_the_line_names_queries_candidates_kernel_and_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with using("cpu"):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
        monkeypatch.setattr("allneg.kernels.fused.softmax.library", lambda: object())
        line = "500 queries × 2,189 candidates at once; dot on cpu: matrix products (AVX512)"
        assert str(decide()) == f"{line}, softmax in C"
        monkeypatch.setattr("allneg.kernels.fused.softmax.library", lambda: None)
        assert str(decide()) == f"{line}, softmax in PyTorch; with a C compiler, it is faster"
        blocks = decide("loss.block=100000", "model.name=rotate")
        assert "2,189 candidates, 192 at a time; modulus on cpu: engine cpu (as req" in str(blocks)
        own = decide("loss.negatives=per_query", "loss.n_negatives=7", "model.name=transe")
        assert "500 queries × 8 candidates per query at once; l1 on cpu" in str(own)
    captured = decide(BF16, device=CUDA)
    assert str(captured).endswith("matrix products, bfloat16, captured as a CUDA graph")
    host = decide("hardware.table=host", device=CUDA)
    assert "candidates at once, rows from host memory; dot on cuda" in str(host)


@pytest.mark.parametrize(
    "settings, columns",
    [
        ((), 2189),
        (("loss.negatives=shared", "loss.n_negatives=40"), 540),
        (("loss.negatives=per_query", "loss.n_negatives=40"), 41),
    ],
)
def test_columns_follow_the_negatives(settings: tuple[str, ...], columns: int) -> None:
    assert decide(*settings).columns == columns


def test_a_block_holds_about_as_many_scores_as_allowed() -> None:
    assert decide(f"loss.block={500 * 2189}").block is None
    assert decide("loss.block=100000").block == 192  # of 200 columns, a multiple of 64
    assert decide("loss.block=1").block == 64
    assert decide("loss.block=1", n=11).block == 11
    parts = decide("loss.block=100000", "training.micro_batch=50")
    assert (parts.queries, parts.block, parts.splits_batch) == (50, 1984, True)
    own = decide("loss.block=1", "loss.negatives=per_query", "loss.n_negatives=7")
    assert own.block is None


def test_processes_share_a_batch() -> None:
    plan = decide(mesh=Mesh(rows=2, batch=3))
    assert (plan.queries, plan.splits_batch, plan.overlaps_sums) == (167, True, True)
    # The answers of grouped queries may be more than a process's share of the batch.
    for setting in ("training.micro_batch=50", "loss.grouped=true"):
        assert not decide(setting, mesh=Mesh(batch=3)).overlaps_sums
    with pytest.raises(RecipeError, match=r"hardware.table host is for a single process"):
        decide("hardware.table=host", mesh=Mesh(rows=2))
    with pytest.raises(RecipeError, match=r"loss.distillation is for a single process"):
        decide("loss.distillation=1", mesh=Mesh(batch=2))


@pytest.mark.parametrize(
    "setting",
    [
        "hardware.precision=tf32",
        "hardware.table=host",
        "optimizer.name=adam",
        "model.name=transe",
        "loss.negatives=shared",
    ],
)
def test_a_bfloat16_copy_is_kept_where_adagrad_can_update_it(setting: str) -> None:
    assert decide(BF16, device=CUDA).keeps_bf16_copy
    assert not decide(BF16).keeps_bf16_copy
    more = [setting, "loss.n_negatives=3"] if setting == "loss.negatives=shared" else [setting]
    assert not decide(BF16, *more, device=CUDA).keeps_bf16_copy


def test_only_matrix_products_are_of_bfloat16() -> None:
    assert decide(BF16, device=CUDA).bf16
    for settings in (["model.name=transe"], ["model.name=transe", "model.norm=2"]):
        plan = decide(BF16, *settings, device=CUDA)
        assert not plan.bf16
        assert "float32 (bf16 is for products" in str(plan)
    more = ["loss.negatives=per_query", "loss.n_negatives=3"]
    assert not decide(BF16, *more, device=CUDA).bf16


@pytest.mark.parametrize("has_it", [False, True])
def test_a_cpu_rounds_to_bfloat16_if_that_is_faster(
    has_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "has_fast_bf16", lambda: has_it)
    plan = decide(BF16)
    assert plan.bf16 is has_it
    assert str(plan).endswith(", bfloat16") is has_it
    ignored = str(plan).endswith(", float32 (bf16 is for products on GPUs and on CPUs with AMX)")
    assert ignored is not has_it
    assert not plan.bf16_operands  # float32 tensors, which the products round
    plan = decide("hardware.precision=tf32")
    assert (plan.bf16, plan.ignores_bf16) == (False, False)


def test_a_large_softmax_stores_no_scores() -> None:
    plan = decide(*LARGE, n=100_000, device=CUDA)
    assert plan.by_attention
    assert plan.block is None
    assert str(plan) == (
        "1,000 queries × 100,000 candidates at once; dot on cuda: attention, without scores in "
        "memory, bfloat16, captured as a CUDA graph"
    )
    assert not decide(*LARGE, n=14_592, device=CUDA).by_attention
    assert not decide(*LARGE, n=100_000).by_attention


@pytest.mark.parametrize(
    "settings",
    [
        ["hardware.precision=tf32"],
        ["hardware.table=host"],
        ["model.name=transe"],
        ["model.dim=129"],
        ["loss.name=logistic"],
        ["loss.distillation=1"],
        ["loss.negatives=per_query", "loss.n_negatives=100000"],
        ["loss.mask_known=true", "loss.block=1000000"],
        ["loss.mask_known=true", "loss.label_smoothing=0.1"],
    ],
)
def test_what_attention_cannot_do_stores_scores(settings: list[str]) -> None:
    assert not decide(*LARGE, *settings, n=100_000, device=CUDA).by_attention


@pytest.mark.parametrize(
    "settings",
    [
        ["model.dim=128"],
        ["loss.mask_known=true"],
        ["loss.label_smoothing=0.1"],
        ["loss.grouped=true"],
        ["loss.negatives=shared", "loss.n_negatives=100000"],
        ["hardware.deterministic=true"],
        ["optimizer.name=adam"],
    ],
)
def test_attention_works_with_other_options(settings: list[str]) -> None:
    assert decide(*LARGE, *settings, n=100_000, device=CUDA).by_attention


def test_an_engine_other_than_triton_stores_scores() -> None:
    with using("reference"):
        assert not decide(*LARGE, n=100_000, device=CUDA).by_attention
