"""Seconds an epoch of ComplEx-N3: this library, kbc's loop, and PyKEEN where it is installed.

An epoch asks every triple from both sides. With `--steps` the time of that many is scaled up to
an epoch, and PyKEEN's is scaled to the same number of queries: it asks each pair once.
"""

from __future__ import annotations

import torch
from loops import Loop, Task, compare, options, seconds_of


def main() -> None:
    args = options(__doc__ or "").parse_args()
    compare(args, {"epoch": "complex-n3"}, lambda loop, task: _measured(loop, task, args.steps))


def _measured(loop: Loop, task: Task, steps: int) -> dict[str, float]:
    on_gpu = task.device.type == "cuda"
    loop.steps(steps)  # compiling, capturing, allocating; the last batch has a size of its own
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(task.device)
    done: list[int] = []
    took = seconds_of(lambda: done.append(loop.steps(steps)), task.device)
    peak = torch.cuda.max_memory_allocated(task.device) if on_gpu else 0
    return {
        "seconds": round(took * task.queries / done[0], 4),
        "questions_timed": done[0],
        "seconds_timed": round(took, 4),
        **({"peak_mib": round(peak / 2**20, 1)} if on_gpu else {}),
    }


if __name__ == "__main__":
    main()
