"""One step of a distance kernel, in every way there is: what bench_l1 and bench_modulus share.

A step is forward, softmax loss over all entities, backward to the queries and to the table.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import machine, measure
from torch import Tensor

from allneg.kernels.choose import compare, engine, using
from allneg.kernels.compiler import find_compiler
from allneg.recipe import Loss
from allneg.scoring.loss import Softmax
from allneg.scoring.streamed import Rivals, losses

Compare = Callable[[Tensor, Tensor], Tensor]
# With our own loss; the others with PyTorch's. `captured` plays the engine's step as training does.
OURS = ("engine", "compiled", "captured", "without atomics")

GPU_SIZES = [(1000, 14541, 100), (1000, 14541, 1000), (1000, 123182, 500), (250, 1000000, 100)]
CPU_SIZES = [(128, 14541, 100)]
TOY_SIZES = [(3, 50, 4)]


def main(kernel: str, plain: Compare, others: dict[str, Compare], parts: int) -> None:
    """Measure every way at every size; print a table, and write JSON where `--out` says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--ways", help="only these, with commas between")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each way and size")
    parser.add_argument("--sizes", type=int, help="only so many of the first sizes")
    parser.add_argument("--toy", action="store_true", help="a tiny size, in a second or two")
    args = parser.parse_args()
    device = torch.device(args.device)
    sizes = TOY_SIZES if args.toy else GPU_SIZES if device.type == "cuda" else CPU_SIZES
    ways = {**_own(kernel, device), **others, "torch.compile": torch.compile(plain, dynamic=False)}
    names = args.ways.split(",") if args.ways else list(ways)
    rows = []
    for size in sizes[: args.sizes]:
        for name in names:
            deterministic = name == "without atomics"
            torch.use_deterministic_algorithms(deterministic)
            mean_loss = our_loss if name in OURS else plain_loss
            work = Work(ways[name], mean_loss, *size, parts)
            result = attempt(work, device, args.seconds, captured=name == "captured")
            rows.append({"b": size[0], "n": size[1], "dim": size[2], "way": name, **result})
            print(kernel, *rows[-1].values(), flush=True)
            if args.out:  # after each, so that what is done is kept
                report = {"kernel": kernel, **machine(device), "rows": rows}
                args.out.write_text(json.dumps(report, indent=1) + "\n")


def _own(kernel: str, device: torch.device) -> dict[str, Compare]:
    """The engines of ours for this device: a GPU's without atomic adds, a CPU's with a compiler."""
    chosen = engine(kernel, device)
    reference = importlib.import_module(f"allneg.kernels.{kernel}.reference")
    ways = {"engine": lambda query, table: compare(chosen, query, table)}
    if device.type == "cpu" and find_compiler():
        with using("compiled"):
            compiled = engine(kernel, device)
        ways["compiled"] = lambda query, table: compare(compiled, query, table)
    if chosen.__name__.endswith("gpu"):
        ways |= {"captured": ways["engine"], "without atomics": ways["engine"]}
    return {**ways, "reference": lambda query, table: compare(reference, query, table)}


@dataclass(frozen=True)
class Work:
    """A step to measure."""

    way: Compare
    mean_loss: Callable[[Compare, Tensor, Tensor, Tensor], Tensor]
    b: int
    n: int
    dim: int
    parts: int  # an entity row is so many times `dim` wide

    def ready(self, device: torch.device) -> Callable[[], None]:
        """The step over made-up rows."""
        width = self.parts * self.dim
        generator = torch.Generator(device).manual_seed(0)
        query, table = (
            torch.randn(rows, width, device=device, generator=generator).div_(width)
            for rows in (self.b, self.n)
        )
        answers = torch.randint(self.n, (self.b,), device=device, generator=generator)
        query.requires_grad_()
        table.requires_grad_()

        def step() -> None:
            self.mean_loss(self.way, query, table, answers).backward()
            query.grad = table.grad = None  # so that the next step's count as its own

        return step


def our_loss(
    way: Compare, query: Tensor, table: Tensor, answers: Tensor, block: int = Loss.block
) -> Tensor:
    rivals = Rivals(answers, len(table))
    return losses(way, query, table, Softmax(Loss()), rivals, block).mean()


def plain_loss(way: Compare, query: Tensor, table: Tensor, answers: Tensor) -> Tensor:
    return F.cross_entropy(way(query, table), answers)


def attempt(
    work: Work, device: torch.device, seconds: float, captured: bool = False
) -> dict[str, float | str]:
    """What a step takes, or that memory did not suffice."""
    try:
        step = work.ready(device)
        if not captured:
            return asdict(measure(step, device, seconds))
        # What a captured step needs is there before it is measured: its time alone is told.
        return {"milliseconds": measure(_recorded(step), device, seconds).milliseconds}
    except (torch.OutOfMemoryError, RuntimeError) as problem:
        if "memory" not in str(problem):
            raise
        return {"problem": "out of memory"}


def _recorded(step: Callable[[], None]) -> Callable[[], None]:
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
