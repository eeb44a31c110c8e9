"""Seconds to rank test from both sides, filtered: this library, kbc's loop, and PyKEEN."""

from __future__ import annotations

import gc
import json
import statistics

from loops import Loop, Task, asked, facts, options, seconds_of


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--turns", type=int, default=3, help="the median of so many")
    args = parser.parse_args()
    task, ways = asked(args)
    rows = []
    for name, make in ways.items():
        rows.append({"way": name, **_measured(make(), task, args.turns)})
        print(*rows[-1].items(), flush=True)
        gc.collect()
        if args.out:  # after each, so that what is done is kept
            report = {"ranking": "test", **facts(task), "ranked": 2 * len(task.graph.test)}
            args.out.write_text(json.dumps({**report, "rows": rows}, indent=1) + "\n")


def _measured(loop: Loop, task: Task, turns: int) -> dict[str, float]:
    found = [loop.rank()]  # compiles, and builds what is kept
    times = [seconds_of(lambda: found.append(loop.rank()), task.device) for _ in range(turns)]
    return {"seconds": round(statistics.median(times), 4), "mrr": round(found[-1], 6)}


if __name__ == "__main__":
    main()
