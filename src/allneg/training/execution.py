"""How a training step runs on this hardware: decided once, in one value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from allneg.errors import RecipeError
from allneg.kernels.attention import MOST_WIDTH
from allneg.kernels.dot import has_fast_bf16
from allneg.kernels.engines import describe_engine, uses_triton
from allneg.kernels.fused import describe_products
from allneg.models import Model
from allneg.recipe import Mesh, Recipe
from allneg.scoring.losses import Softmax, loss_class
from allneg.scoring.tables import MULTIPLE
from allneg.training.optimizers import OPTIMIZERS

_SINGLE = Mesh()
_MANY_SCORES = 1 << 25  # from here on, storing them takes longer; see docs/kernels.md


@dataclass(frozen=True)
class ExecutionPlan:
    """How a step runs. `str(plan)` is the line that a run prints."""

    device: torch.device
    queries: int  # of a process, compared at once: the batch, or a part of it
    columns: int  # candidates per query
    block: int | None  # columns compared at once; None for all
    by_attention: bool  # a softmax without scores in memory
    negatives: str
    kernel: str
    bf16: bool  # matrix products round their operands to bfloat16
    ignores_bf16: bool  # it is set, but not used here
    keeps_bf16_copy: bool  # the optimizer's step rounds the entities for the next products
    host_table: bool  # entity rows stay in host memory
    is_captured: bool  # steps are replayed as a CUDA graph
    overlaps_sums: bool  # gradients are summed over processes while blocks are compared
    splits_batch: bool  # into micro-batches, or over processes
    draws_sample: bool  # of negatives or dropout masks
    weighs_queries: bool  # by their frequency in train
    needs_known: bool  # the loss looks up the answers known in train

    @classmethod
    def decide(
        cls, recipe: Recipe, model: Model, n: int, device: torch.device, mesh: Mesh = _SINGLE
    ) -> ExecutionPlan:
        """The plan for a process that holds `n` entity rows."""
        loss, hardware, optimizer = recipe.loss, recipe.hardware, OPTIMIZERS[recipe.optimizer.name]
        host_table = hardware.table == "host"
        if host_table and mesh.size > 1:
            raise RecipeError("hardware.table host is for a single process; set it to device")
        if loss.distillation and mesh.size > 1:
            raise RecipeError("loss.distillation is for a single process; set it to 0")
        if recipe.model.features is not None and mesh.size > 1:
            raise RecipeError("model.features is for a single process; reset it")
        drawn, batch = loss.n_negatives or 0, recipe.training.batch_size
        columns = {"all": n, "shared": batch + drawn, "per_query": 1 + drawn}[loss.negatives]
        share = -(-batch // mesh.batch)
        queries = min(share, recipe.training.micro_batch or share)
        is_cuda, kernel = device.type == "cuda", model.kernel.name
        all_entities, per_query = loss.negatives == "all", loss.negatives == "per_query"
        wants_bf16 = hardware.precision == "bf16"
        bf16 = wants_bf16 and kernel == "dot" and not per_query
        bf16 = bf16 and (device.type != "cpu" or has_fast_bf16())
        by_attention = can_attend(recipe, model, queries * columns) and attention_pays(
            device, queries * columns, bf16
        )
        whole = per_query or by_attention
        stays_on_gpu = is_cuda and not host_table
        varies = loss.mask_known and not per_query  # how many answers there are
        has_fixed_shapes = recipe.training.micro_batch is None and not varies
        # Distillation may begin after a step was captured.
        can_capture = stays_on_gpu and optimizer.capturable and not loss.distillation
        # l2 looks for close pairs and waits for the device; captured sums over processes would not
        # notice that a process has ended.
        never_waits = kernel != "l2" and mesh.size == 1 and not hardware.deterministic
        once_per_query = loss.grouped and loss_class(loss).once_per_query
        dropout = recipe.model.entity_dropout or recipe.model.relation_dropout
        keeps_copy = stays_on_gpu and bf16 and all_entities and optimizer.updates_bf16_copy
        return cls(
            device=device,
            queries=queries,
            columns=columns,
            block=None if whole else block_rows(queries, columns, loss.block),
            by_attention=by_attention,
            negatives=loss.negatives,
            kernel=kernel,
            bf16=bf16,
            ignores_bf16=wants_bf16 and not bf16,
            keeps_bf16_copy=keeps_copy,
            host_table=host_table,
            is_captured=can_capture and has_fixed_shapes and never_waits,
            overlaps_sums=mesh.batch > 1 and all_entities and queries == share and not loss.grouped,
            splits_batch=queries < batch,
            draws_sample=not all_entities or dropout > 0,
            weighs_queries=loss.class_weights or loss.subsampling or once_per_query,
            needs_known=loss.mask_known or loss.subsampling or loss.grouped,
        )

    @property
    def bf16_operands(self) -> bool:
        """Whether operands are stored as bfloat16; on a CPU, products round float32 ones."""
        return self.bf16 and self.device.type != "cpu"

    def __str__(self) -> str:
        scores = f"{self.queries:,} queries × {self.columns:,} candidates"
        if self.negatives == "per_query":
            scores += " per query"
        scores += f", {self.block:,} at a time" if self.block else " at once"
        where = ", rows from host memory" if self.host_table else ""
        products = self.kernel in ("dot", "l2", "squared_l2")
        engine = (describe_products if products else describe_engine)(self.device)
        if self.by_attention:
            engine = "attention, without scores in memory"
        extra = ", captured as a CUDA graph" if self.is_captured else ""
        precision = ", bfloat16" if self.bf16 else ""
        if self.ignores_bf16:
            precision = ", float32 (bf16 is for products on GPUs and on CPUs with AMX)"
        return f"{scores}{where}; {self.kernel} on {self.device}: {engine}{precision}{extra}"


def block_rows(queries: int, columns: int, scores: int) -> int | None:
    """How many columns are compared at once so that about `scores` scores are held."""
    if queries * columns <= scores:
        return None
    return min(columns, max(MULTIPLE, scores // queries // MULTIPLE * MULTIPLE))


def can_attend(recipe: Recipe, model: Model, scores: int) -> bool:
    """Whether scoring/attention.py can compute the loss of a recipe."""
    loss = recipe.loss
    if model.kernel.name != "dot" or model.entity_width > MOST_WIDTH:
        return False
    if not issubclass(loss_class(loss), Softmax) or loss.negatives == "per_query":
        return False
    if recipe.hardware.table == "host" or loss.distillation:
        return False
    # A mask has a bit for each score.
    fits = not loss.mask_known or scores // 8 <= 4 * loss.block
    # Smoothing needs the sum of the rows that are negatives, which is the same for all queries.
    same = not loss.label_smoothing or not (loss.mask_known or loss.negatives == "shared")
    return fits and same


def attention_pays(device: torch.device, scores: int, bf16: bool) -> bool:
    """Whether attention is faster than products that store their scores, measured on an H200."""
    return device.type == "cuda" and uses_triton(device) and bf16 and scores >= _MANY_SCORES
