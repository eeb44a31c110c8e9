"""The softmax loss over all entities: streamed, in one block of ours, and plain PyTorch's.

A step is forward, loss, backward to the queries and to the table, for each kernel.
"""

from __future__ import annotations

from functools import partial

from distance import Step, Work, attempt, our_step, plain_step
from measure import benchmark_parser, machine, write_rows

from allneg.hardware import prepare
from allneg.kernels import Kernel, dot, l1, modulus
from allneg.recipe import Hardware

GPU_SIZES = [
    (1000, 14541, 100),
    (1000, 14541, 1000),
    (1000, 1_000_000, 100),
    (1000, 4_600_000, 100),
]
CPU_SIZES = [(128, 14541, 100)]
TOY_SIZES = [(3, 500, 4)]
KERNELS = {"dot": (dot, 1), "l1": (l1, 1), "modulus": (modulus, 2)}  # and parts of a row


def ways(kernel: Kernel, b: int, n: int) -> dict[str, Step]:
    """Scores held at once: a block of them, all of them, and what PyTorch's own loss keeps."""
    rows = max(1, min(1 << 26, b * n // 8) // b)
    return {
        "streamed": partial(our_step, kernel, block=rows),
        "one block": partial(our_step, kernel),
        "plain": partial(plain_step, kernel),
    }


def main() -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each way and size")
    parser.add_argument("--toy", action="store_true", help="a tiny size, in a second or two")
    args = parser.parse_args()
    device = prepare(Hardware(device=args.device))  # TF32 products, as in training
    sizes = TOY_SIZES if args.toy else GPU_SIZES if device.type == "cuda" else CPU_SIZES
    rows = (
        {
            "kernel": name, "b": b, "n": n, "dim": dim, "way": way,
            **attempt(Work(step, b, n, dim, parts), device, args.seconds),
        }
        for b, n, dim in sizes
        for name, (kernel, parts) in KERNELS.items()
        for way, step in ways(kernel, b, n).items()
    )  # fmt: skip
    write_rows({"loss": "softmax", **machine(device)}, rows, args.out)


if __name__ == "__main__":
    main()
