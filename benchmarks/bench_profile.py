"""Where the time of a step goes: microseconds per step by kind of work.

On a GPU they come from a profile, on a CPU from timed functions. `floor` is the time of the three
products at the rate of a large square one.
"""

from __future__ import annotations

import gc
import math

import torch
from clock import Clock
from loops import Ours, Task, asked, cpu_precisions, facts, options, product_rate
from measure import write_whole
from torch.profiler import ProfilerActivity, profile

# The first kind whose words a kernel's name has.
KINDS = {
    "products": ("gemm", "nvjet", "cutlass", "splitk"),
    "AdaGrad": ("_adagrad",),
    "softmax": ("_log_sum_exp", "_softmax_gradient"),
    "rounding to bfloat16": ("bfloat16_copy",),
    "query": ("_complex_mul",),
    "rows looked up and added, and the penalty": (
        "_power_gradients",
        "_scatter_add",
        "gather_kernel",
        "indexFunc",
        "indexSelect",
    ),
    "everything else": ("",),
}
# On a CPU, the functions that do a kind of work.
FUNCTIONS = {
    "products": ("allneg.kernels.dot:Dot.scores", "allneg.kernels.dot:Dot.gradients"),
    "AdaGrad": ("allneg.training.optimizers:Adagrad.step",),
    "softmax": (
        "allneg.kernels.fused.reference:log_sum_exp",
        "allneg.kernels.fused.reference:softmax_gradient",
    ),
    "query": ("allneg.training.trainer:Trainer._query",),
    "rows looked up and added, and the penalty": (
        "allneg.scoring.tables:Tables.gather",
        "allneg.training.trainer:Trainer._scatter",
        "allneg.scoring.regularizers:PowerSum.backward",
    ),
}


def main() -> None:
    args = options(__doc__ or "").parse_args()
    task, _ = asked(args)
    steps = min(args.steps, 40)
    on_cpu = task.device.type == "cpu"
    found, floor = {}, {}
    for precision in cpu_precisions() if on_cpu else ("tf32", "bf16"):
        found[precision] = (_timed if on_cpu else _profiled)(task, precision, steps)
        floor[precision] = _floor(task, precision, 2000 if on_cpu else 8192)
        print(precision, found[precision], flush=True)
        gc.collect()
    if args.out:
        report = {"profile": "complex-n3", **facts(task), "microseconds": found, "floor": floor}
        write_whole(args.out, report)


def _profiled(task: Task, precision: str, steps: int) -> dict[str, float]:
    loop = Ours(task, precision)
    loop.steps(60)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        taken = math.ceil(loop.steps(steps) / task.batch)  # an epoch may have fewer
        torch.cuda.synchronize()
    times = dict.fromkeys(KINDS, 0.0)
    for event in seen.key_averages():
        kind = next(k for k, words in KINDS.items() if any(word in event.key for word in words))
        times[kind] += event.self_device_time_total / taken
    return {kind: round(each, 1) for kind, each in times.items()}


def _timed(task: Task, precision: str, steps: int) -> dict[str, float]:
    loop = Ours(task, precision)
    loop.steps(4)
    clock = Clock()
    for kind, places in FUNCTIONS.items():
        for place in places:
            clock.time_function(kind, place)
    clock.restart()
    taken = math.ceil(loop.steps(steps) / task.batch)
    clock.switch()
    times = {kind: 1e6 * clock.seconds[kind] / taken for kind in FUNCTIONS}
    times["everything else"] = 1e6 * clock.seconds["other"] / taken
    return {kind: round(value, 1) for kind, value in times.items()}


def _floor(task: Task, precision: str, square: int) -> float:
    """Microseconds of the three products of a step."""
    operations = 6.0 * task.batch * task.graph.n_entities * 2 * task.dim
    return round(1e6 * operations / product_rate(task.device, precision, square), 1)


if __name__ == "__main__":
    main()
