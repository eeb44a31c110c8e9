"""One step of a distance kernel, in every way there is: what bench_l1 and bench_modulus share.

A step is forward, softmax loss over all entities, backward to the queries and to the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from measure import benchmark_parser, machine, measure, write_rows
from torch import Tensor

from allneg.kernels import Kernel
from allneg.kernels.compiler import find_compiler
from allneg.kernels.distances import Distance, reference
from allneg.kernels.engines import distance_engine, using
from allneg.recipe import Loss
from allneg.scoring.contrast import contrast
from allneg.scoring.losses import Softmax
from allneg.scoring.negatives import Candidates

Compare = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[Tensor, Tensor, Tensor], object]  # queries, table, answers
# With our own loss; the others with PyTorch's. `captured` replays the engine's step as training
# does.
OURS = ("engine", "compiled", "captured", "without atomics")

GPU_SIZES = [(1000, 14541, 100), (1000, 14541, 1000), (1000, 123182, 500), (250, 1000000, 100)]
CPU_SIZES = [(128, 14541, 100)]
TOY_SIZES = [(3, 50, 4)]


def main(kernel: str, plain: Compare, others: dict[str, Compare], parts: int) -> None:
    """Measure every way at every size; print the rows, and write JSON where `--out` says."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--ways", help="only these, with commas between")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each way and size")
    parser.add_argument("--sizes", type=int, help="only so many of the first sizes")
    parser.add_argument("--toy", action="store_true", help="a tiny size, in a second or two")
    args = parser.parse_args()
    device = torch.device(args.device)
    sizes = TOY_SIZES if args.toy else GPU_SIZES if device.type == "cuda" else CPU_SIZES
    ways = {**_own(kernel, parts, device), **others}
    names = args.ways.split(",") if args.ways else [*ways, "torch.compile"]
    if "torch.compile" in names:  # imports the compiler, which takes seconds
        ways["torch.compile"] = torch.compile(plain, dynamic=False)

    def rows() -> Iterator[dict[str, Any]]:
        for b, n, dim in sizes[: args.sizes]:
            for name in names:
                torch.use_deterministic_algorithms(name == "without atomics")
                step = partial(our_step if name in OURS else plain_step, ways[name])
                work = Work(step, b, n, dim, parts)
                result = attempt(work, device, args.seconds, captured=name == "captured")
                yield {"b": b, "n": n, "dim": dim, "way": name, **result}

    write_rows({"kernel": kernel, **machine(device)}, rows(), args.out)


def _own(name: str, parts: int, device: torch.device) -> dict[str, Compare]:
    """Our engines on this device: a GPU's also without atomic adds, a CPU's also compiled."""
    with using("cpu" if device.type == "cpu" else "auto"):
        chosen = distance_engine(device)
    ways: dict[str, Compare] = {"engine": Distance(name, parts, chosen)}
    if device.type == "cpu" and find_compiler():
        with using("compiled"):
            ways["compiled"] = Distance(name, parts, distance_engine(device))
    if chosen.__name__.endswith("gpu"):
        ways |= {"captured": ways["engine"], "without atomics": ways["engine"]}
    return {**ways, "reference": Distance(name, parts, reference)}


@dataclass(frozen=True)
class Work:
    """A step to measure."""

    step: Step
    b: int
    n: int
    dim: int
    parts: int  # an entity row is so many times `dim` wide

    def ready(self, device: torch.device) -> Callable[[], None]:
        """The step with random rows."""
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
            self.step(query, table, answers)
            query.grad = table.grad = None  # so that the memory of the next ones counts again

        return step


def our_step(
    kernel: Kernel, query: Tensor, table: Tensor, answers: Tensor, block: int | None = None
) -> object:
    """The softmax loss and both gradients, `block` rows at a time."""
    candidates = Candidates(table.detach(), answers, len(table))
    weight = torch.full((len(query),), 1 / len(query), device=query.device)
    return contrast(kernel, query.detach(), candidates, Softmax(Loss()), weight, block)


def plain_step(way: Compare, query: Tensor, table: Tensor, answers: Tensor) -> None:
    F.cross_entropy(way(query, table), answers).backward()


def attempt(
    work: Work, device: torch.device, seconds: float, captured: bool = False
) -> dict[str, float | str]:
    """Time and memory of a step, or that memory did not suffice."""
    try:
        step = work.ready(device)
        if not captured:
            return asdict(measure(step, device, seconds))
        # A captured step holds its memory already, so only its time is measured.
        return {"milliseconds": measure(_recorded(step), device, seconds).milliseconds}
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if "memory" not in str(error):
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
