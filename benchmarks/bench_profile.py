"""Where a step's time goes on a GPU: microseconds a step by kind of work, from a profile."""

from __future__ import annotations

import gc
import json
import math

import torch
from loops import Ours, Task, asked, facts, options
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


def main() -> None:
    args = options(__doc__ or "").parse_args()
    task, _ = asked(args)
    steps = min(args.steps, 40)
    reports = {}
    for precision in ("tf32", "bf16"):
        reports[precision] = _profiled(task, precision, steps)
        print(precision, reports[precision], flush=True)
        gc.collect()
    if args.out:
        report = {"profile": "complex-n3", **facts(task), "microseconds": reports}
        args.out.write_text(json.dumps(report, indent=1) + "\n")


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


if __name__ == "__main__":
    main()
