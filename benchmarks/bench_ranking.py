"""Seconds to rank test from both sides, filtered: this library, kbc's loop, and PyKEEN."""

from __future__ import annotations

import statistics

from loops import GROUPED, Loop, Task, compare, options, seconds_of


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--turns", type=int, default=3, help="the median of so many")
    args = parser.parse_args()
    what, without = {"ranking": "test"}, {GROUPED}  # which differs in training only
    compare(args, what, lambda loop, task: _measured(loop, task, args.turns), without)


def _measured(loop: Loop, task: Task, turns: int) -> dict[str, float]:
    found = [loop.rank()]  # compiles, and builds what is kept
    times = [seconds_of(lambda: found.append(loop.rank()), task.device) for _ in range(turns)]
    return {
        "seconds": round(statistics.median(times), 4),
        "ranked": 2 * len(task.graph.test),
        "mrr": round(found[-1], 6),
    }


if __name__ == "__main__":
    main()
