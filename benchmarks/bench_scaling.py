"""How a step of ComplEx-N3 grows with entities, width and batch, beside the time of its products.

The floor of a step is its three matrix products, 6·B·N·W operations, at the rate that a large
square product reaches on the same device in the same run.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from loops import Ours, Task, made_up, product_rate, seconds_of
from measure import benchmark_parser, machine, write_rows


@dataclass(frozen=True)
class Size:
    """A step's size: B queries of N entities, rows W floats wide."""

    b: int
    n: int
    w: int

    @property
    def operations(self) -> float:
        return 6.0 * self.b * self.n * self.w


GPU = Size(1000, 14541, 2000)
CPU = Size(256, 5000, 200)
TOY = Size(16, 100, 8)
FACTORS = {"b": (0.1, 0.3, 1, 3, 10), "n": (0.3, 1, 3, 10), "w": (0.1, 0.25, 0.5, 1, 2)}


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--toy", action="store_true", help="a tiny size, in a second or two")
    args = parser.parse_args()
    device = torch.device(args.device)
    write_rows({"scaling": "complex-n3", **machine(device)}, rows(device, args.toy), args.out)


def rows(device: torch.device, toy: bool) -> Iterator[dict[str, Any]]:
    on_gpu = device.type == "cuda"
    base = TOY if toy else GPU if on_gpu else CPU
    for precision in ("tf32", "bf16") if on_gpu else ("float32",):
        rate = product_rate(device, precision, 256 if toy else 8192 if on_gpu else 2048)
        for axis, factors in FACTORS.items():
            for factor in (1, 2) if toy else factors:
                number = 2 * max(2, round(getattr(base, axis) * factor / 2))
                size = replace(base, **{axis: number})
                took = _step_seconds(size, device, precision, 2 if toy else 150)
                gc.collect()  # the tables of this size, before those of the next
                yield {
                    "precision": precision, "axis": axis, **asdict(size),
                    "milliseconds": round(took * 1e3, 4),
                    "floor": round(size.operations / rate * 1e3, 4),
                }  # fmt: skip


def _step_seconds(size: Size, device: torch.device, precision: str, steps: int) -> float:
    graph = made_up(size.n, 50, steps * size.b)  # enough for so many steps
    loop = Ours(Task(graph, size.w // 2, size.b, device), precision)
    loop.steps(steps)
    return seconds_of(lambda: loop.steps(steps), device) / steps


if __name__ == "__main__":
    main()
